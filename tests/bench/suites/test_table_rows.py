"""The head and the records of a table, from content that a test states."""

from __future__ import annotations

import pytest

from tandem.bench.suites.file_options import FileOptions
from tandem.bench.suites.table_rows import find_head, read_table
from tandem.errors import InputError

PROMPT_COLUMN = FileOptions(prompt_column="prompt")


def read_values(content: bytes):
    head = find_head(content, "prompt", is_table=True)
    assert head is not None
    return [row.value for row in read_table(content, head, "t.csv", PROMPT_COLUMN)]


def test_the_users_column_tells_the_sign_between_cells():
    # a comma would give four columns, a semicolon gives three
    content = b"a,b,c;d,e;prompt\n1;2;Hi\n"
    head = find_head(content, "prompt", is_table=False)
    assert head is not None
    assert head.delimiter == ";"


def test_a_cell_under_no_name_is_left_out():
    assert read_values(b",prompt\n0,Hi\n") == [{"prompt": "Hi"}]


def test_a_cell_above_the_csv_modules_limit_is_read():
    text = "a" * (128 * 1024 + 1)
    assert read_values(b"prompt,kind\n%s,QA\n" % text.encode()) == [{"prompt": text, "kind": "QA"}]


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(InputError) as caught:
        read_values(b"prompt,kind,kind\nHi,QA,chat\n")
    assert "two columns are named 'kind'" in caught.value.problem
