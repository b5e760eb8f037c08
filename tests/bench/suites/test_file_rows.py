"""The rows of a file: what tells its form, and where each row stands."""

from __future__ import annotations

import sys
import tracemalloc

import pytest

from tandem.bench.suites.file_options import FileOptions
from tandem.bench.suites.file_rows import read_rows
from tandem.errors import InputError

HI = {"prompt": "Hi"}
# the name of a file, its content and its rows
ROWS = {
    "lines": ("a", '\n{"prompt": "Hi"}\r\n', [("line 2", HI)]),
    "list": ("a", '[{"prompt": "Hi"},\n "Why?"]', [("entry 1", HI), ("entry 2", "Why?")]),
    "numbers below a blank line": ("a.json", "\n [1,\n2]", [("entry 1", 1), ("entry 2", 2)]),
    "table of Excel": ("a", "prompt,kind,,\nHi,QA,,\n", None),
    "table of Excel with empty rows": ("a", "prompt,kind\nHi,QA\n,\n , \n", None),
    "table of Excel with its sign": ("a", "sep=;\r\nprompt;kind\r\nHi;QA\r\n", None),
    "prose like the sign": (
        "a",
        "sep=a b\nprompt\n",
        [("line 1", "sep=a b"), ("line 2", "prompt")],
    ),
    "a list a line": ("a", "[[1]]\n[[2]]\n", [("line 1", [[1]]), ("line 2", [[2]])]),
    "table by its cells": ("a", "prompt,kind\nHi,QA\n", None),
    "table by its name": ("a.CSV", "prompt\nHi\n", None),
    "one known column": ("a", "prompt\nHi\n", None),
    "prose with commas": (
        "a",
        "Well,hello\nA,b,c\n",
        [("line 1", "Well,hello"), ("line 2", "A,b,c")],
    ),
    "prose with quotes": ("a", '"Hi" she said\n', [("line 1", '"Hi" she said')]),
    "old ends of JSON lines": (
        "a",
        '{"prompt": "Hi"}\r\r"Why?"\r',
        [("line 1", HI), ("line 3", "Why?")],
    ),
    "old ends of lines": ("a", "a\r\rb", [("line 1", "a"), ("line 3", "b")]),
}


@pytest.mark.parametrize("case", ROWS)
def test_content_before_name_tells_the_form(case):
    name, content, rows = ROWS[case]
    options = FileOptions(prompt_column="prompt" if rows is None else None)

    read = [(row.place, row.value) for row in read_rows(content.encode(), name, options)]

    if rows is None:
        assert [value["prompt"] for _, value in read] == ["Hi"]
        with pytest.raises(InputError, match="the file is a table with the columns"):
            read_rows(content.encode(), name)
    else:
        assert read == rows


def test_a_record_of_several_lines_stands_at_its_first():
    content = b'id,prompt\n\n1,"two\nlines"\n2,Hi\n'
    rows = read_rows(content, "a", FileOptions(prompt_column="prompt"))
    assert [row.place for row in rows] == ["line 3", "line 5"]


def test_a_json_file_of_something_else_is_not_sent_as_text():
    (row,) = read_rows(b"Hi\n", "a.jsonl")
    assert (row.place, row.value) == ("line 1", None)
    assert "JSON is malformed" in str(row.fault)


def test_a_line_of_any_depth_is_a_row_or_a_fault():
    start = b'{"id": "a", "class": "QA", "prompt": '
    lines = [start + b"[" * depth + b"]" * depth + b"}" for depth in range(sys.getrecursionlimit())]
    rows = read_rows(b"\n".join(lines), "a.jsonl")
    assert {bool(row.fault) != bool(row.value) for row in rows} == {True}


@pytest.mark.parametrize("form", ["table", "lines"])
def test_reading_takes_little_more_than_the_file_again(form):
    text = "word " * 1000
    content = b"".join(f'{{"prompt": "{text}"}}\n'.encode() for _ in range(200))
    if form == "table":
        content = b"prompt\n" + b"".join(f"{text}\n".encode() for _ in range(200))

    tracemalloc.start()
    read_rows(content, "a", FileOptions(prompt_column="prompt"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1.6 * len(content)
