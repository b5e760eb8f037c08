"""A user's suite file: what is taken, and how each fault is told with its line and its remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandem.bench.suites.suite import load_suite
from tandem.errors import InputError

GOOD = {"id": "a", "class": "chat", "prompt": "Why is the sky blue?"}


def suite_file(folder: Path, *lines: object) -> Path:
    """Write a line for each value; bytes as they are."""
    path = folder / "mine.jsonl"
    path.write_bytes(
        b"".join(
            line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines
        )
    )
    return path


def refused(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        load_suite(path)
    return caught.value


def test_a_line_becomes_a_prompt(tmp_path):
    line = {**GOOD, "system": "Be brief.", "max_tokens": 40, "check": ["code", "repeats"]}

    (prompt,) = load_suite(suite_file(tmp_path, line)).prompts

    assert (prompt.id, prompt.class_, prompt.max_tokens) == ("a", "chat", 40)
    assert prompt.check == {"code", "repeats"}
    assert prompt.as_messages() == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why is the sky blue?"},
    )
    assert prompt.as_text() == "Be brief.\n\nWhy is the sky blue?"


def test_text_of_any_script_is_kept_without_a_system_message(tmp_path):
    text = "  Привет, 世界 \U0001f30a\n\ttwo lines \u00a0"
    (prompt,) = load_suite(suite_file(tmp_path, {**GOOD, "prompt": text})).prompts
    assert prompt.as_text() == text
    assert prompt.as_messages() == ({"role": "user", "content": text},)


def conversation(*turns: tuple[object, object]) -> dict[str, object]:
    messages = [{"role": role, "content": content} for role, content in turns]
    return {"id": "b", "class": "c", "messages": messages}


OTHER = {**GOOD, "id": "b"}
# one fault each: the line, then words of its problem
LINES: dict[str, tuple[object, str]] = {
    "not UTF-8": (b'{"id": "b", "class": "chat", "prompt": "na\xefve"}\n', "invalid"),
    "unknown key": ({**OTHER, "max_token": 4}, "unknown field `max_token`"),
    "id with a line end": ({**GOOD, "id": "b\n"}, "at `$.id`"),
    "reserved class": ({**OTHER, "class": "all"}, "at `$.class`"),
    "no prompt": ({"id": "b", "class": "chat"}, "exactly one of `prompt` and `messages`"),
    "both": (
        {**conversation(("user", "a")), "prompt": "Why?"},
        "exactly one of `prompt` and `messages`",
    ),
    "last word not the user's": (
        conversation(("user", "a"), ("assistant", "b")),
        "`messages` ends with the user",
    ),
    "a key twice": (
        b'{"id": "b", "class": "c", "prompt": "Why?", "prompt": "How?"}\n',
        "duplicate key",
    ),
    "id of another line": (GOOD, "duplicate id 'a'"),
}


@pytest.mark.parametrize("case", LINES)
def test_an_unusable_line_is_named_by_its_number(case, tmp_path):
    line, words = LINES[case]
    path = suite_file(tmp_path, GOOD, line)

    error = refused(path)

    assert (error.where, error.exit_code) == (str(path), 2)
    assert error.problem.startswith("line 2: ")
    assert words in error.problem


def test_faulty_lines_are_named_together_on_one_screen(tmp_path):
    path = suite_file(
        tmp_path, b"{\n", GOOD, {**GOOD, "id": "b", "class": "Chat"}, {"id": "c", "class": "chat"}
    )
    assert [line.split(":")[0] for line in refused(path).problem.splitlines()] == [
        "line 1",
        "line 3",
        "line 4",
    ]

    problem = refused(suite_file(tmp_path, *[GOOD] * 501)).problem
    assert len(problem.splitlines()) == 21
    assert "and 480 more lines" in problem


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.write_bytes(b""), "the file has no prompt"),
        (Path.mkdir, "Is a directory"),
        (str, "No such file"),
    ],
    ids=["empty", "folder", "missing"],
)
def test_a_file_that_is_no_suite_is_bad_input(tmp_path, make, problem):
    path = tmp_path / "mine.jsonl"
    make(path)

    error = refused(path)

    assert (error.where, error.exit_code) == (str(path), 2)
    assert problem in str(error)
