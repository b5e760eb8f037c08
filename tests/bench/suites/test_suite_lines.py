"""A user's suite file: what is taken, and how each fault is told with its line and its remedy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from tandem.bench.fault import BenchError
from tandem.bench.suites.suite import SuiteError, load_suite

GOOD = {"id": "a", "class": "chat", "prompt": "Why is the sky blue?"}


def suite_file(folder: Path, *lines: object) -> Path:
    """Write a line for each value; bytes as they are."""
    path = folder / "mine.jsonl"
    path.write_bytes(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))
    return path


def refused(path: Path) -> SuiteError:
    with pytest.raises(SuiteError) as caught:
        load_suite(path)
    return caught.value


def test_a_line_becomes_a_prompt(tmp_path: Path) -> None:
    line = {**GOOD, "system": "Be brief.", "max_tokens": 40, "check": ["code", "repeats"]}

    (prompt,) = load_suite(suite_file(tmp_path, line)).prompts

    assert (prompt.id, prompt.class_, prompt.max_tokens) == ("a", "chat", 40)
    assert prompt.check == {"code", "repeats"}
    assert prompt.as_messages() == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why is the sky blue?"},
    )
    assert prompt.as_text() == "Be brief.\n\nWhy is the sky blue?"


def test_a_conversation_is_sent_as_it_stands(tmp_path: Path) -> None:
    roles = ("system", "user", "assistant", "user")
    turns = [{"role": role, "content": f"text {number}"} for number, role in enumerate(roles)]

    (prompt,) = load_suite(suite_file(tmp_path, {"id": "a", "class": "chat", "messages": turns})).prompts

    assert list(prompt.as_messages()) == turns
    assert prompt.max_tokens is None


def test_blank_lines_windows_line_ends_no_last_one_and_a_byte_order_mark_are_no_faults(tmp_path: Path) -> None:
    first, second = json.dumps(GOOD).encode(), json.dumps({**GOOD, "id": "b"}).encode()
    path = suite_file(tmp_path, b"\xef\xbb\xbf" + first + b"\r\n\r\n  \n" + second)
    assert [prompt.id for prompt in load_suite(path).prompts] == ["a", "b"]


def test_text_of_any_script_is_kept_to_the_character_and_no_system_message_is_added(tmp_path: Path) -> None:
    text = "  Привет, 世界 \U0001f30a\n\ttwo lines \u00a0"
    (prompt,) = load_suite(suite_file(tmp_path, {**GOOD, "prompt": text})).prompts
    assert prompt.as_text() == text
    assert prompt.as_messages() == ({"role": "user", "content": text},)


def conversation(*turns: tuple[object, object]) -> dict[str, object]:
    messages = [{"role": role, "content": content} for role, content in turns]
    return {"id": "b", "class": "c", "messages": messages}


OTHER = {**GOOD, "id": "b"}
# one fault each: the line, then words of the problem, of what is allowed and of what to change
LINES: dict[str, tuple[object, tuple[str, ...]]] = {
    "bad JSON": (b'{"id": "b", "class": chat}\n', ("not JSON", "column 22", "one whole JSON object")),
    "cut line": (b'{"id": "b", "class": "chat", "prom\n', ("not JSON", "one whole JSON object on one line")),
    "not UTF-8": (b'{"id": "b", "class": "chat", "prompt": "na\xefve"}\n', ("0xef", "save the file as UTF-8")),
    "UTF-16": ('{"id": "b"}\n'.encode("utf-16"), ("position 0", "save the file as UTF-8")),
    "a list": (["b", "chat", "Why?"], ('got ["b", "chat", "Why?"]', "JSON object on one line")),
    "a number": (7, ("got 7", "JSON object")),
    "an endless number": (b"9" * 5000 + b"\n", ("5000 digits",)),
    "a deep list": (b"[" * 100_000 + b"\n", ("recursion depth",)),
    "a key twice": (b'{"id": "b", "id": "c"}\n', ("key 'id' stands twice",)),
    "unknown key": ({**OTHER, "max_token": 4}, ("unknown key 'max_token'", "did you mean 'max_tokens'?")),
    "key of another format": ({"id": "b", "class": "c", "text": "Why?"}, ("'text'", "did you mean 'prompt'?")),
    "far key": ({**OTHER, "zzz": 1}, ("unknown key 'zzz'", "id, class, prompt, messages", "delete it")),
    "no id": ({"class": "chat", "prompt": "Why?"}, ("no 'id'", "letters, digits", "add 'id'")),
    "odd id": ({**GOOD, "id": "b c"}, ('id "b c"', "letters, digits")),
    "id with a line end": ({**GOOD, "id": "b\n"}, ('id "b\\n"',)),
    "numeric id": ({**GOOD, "id": 3}, ("id 3",)),
    "no class": ({"id": "b", "prompt": "Why?"}, ("no 'class'", "add 'class'")),
    "odd class": ({**OTHER, "class": "Chat & more"}, ('class "Chat & more"', "lower-case")),
    "class with a comma": ({**OTHER, "class": "a,b"}, ('class "a,b"', "lower-case")),
    "long class": ({**OTHER, "class": "c" * 33}, ("up to 32",)),
    "reserved class": ({**OTHER, "class": "all"}, ('class "all"', "not 'all'")),
    "no prompt": ({"id": "b", "class": "chat"}, ("neither 'prompt' nor 'messages'", "exactly one", "add 'prompt'")),
    "empty prompt": ({**OTHER, "prompt": ""}, ('prompt ""', "a text in quotes that asks for something")),
    "blank prompt": ({**OTHER, "prompt": " \n"}, ("prompt",)),
    "prompt that is no text": ({**OTHER, "prompt": ["Why?"]}, ('prompt ["Why?"]', "a text in quotes")),
    "half a pair": (b'{"id": "b", "class": "c", "prompt": "\\ud83c"}\n', ("surrogates not allowed", "UTF-8")),
    "both": ({**conversation(("user", "a")), "prompt": "Why?"}, ("both 'prompt' and 'messages'", "delete one")),
    "no messages": (conversation(), ("messages []", "a list of")),
    "bad role": (
        conversation(("usr", "Why?"), ("user", "a")),
        ("messages[0]", "usr", "system (only as the first), user"),
    ),
    "late system": (conversation(("user", "a"), ("system", "x"), ("user", "b")), ("only as the first",)),
    "role that is no text": (conversation((["user"], "Why?")), ("messages[0]",)),
    "message without content": ({**conversation(), "messages": [{"role": "user"}]}, ("messages[0]",)),
    "message with more": ({**conversation(), "messages": [{"role": "user", "content": "a", "x": 1}]}, ("messages[0]",)),
    "empty content": (conversation(("user", "")), ("messages[0]",)),
    "last word not the user's": (conversation(("user", "a"), ("assistant", "b")), ("messages [", "as the last")),
    "system beside messages": ({**conversation(("user", "a")), "system": "x"}, ("make it the first message",)),
    "empty system": ({**OTHER, "system": ""}, ('system ""',)),
    "max_tokens of 0": ({**OTHER, "max_tokens": 0}, ("max_tokens 0", "from 1 to")),
    "max_tokens in quotes": ({**OTHER, "max_tokens": "40"}, ('max_tokens "40"', "a whole number")),
    "max_tokens true": ({**OTHER, "max_tokens": True}, ("max_tokens true", "a whole number")),
    "max_tokens with a fraction": ({**OTHER, "max_tokens": 40.5}, ("max_tokens 40.5", "a whole number")),
    "unknown hint": ({**OTHER, "check": ["jsn"]}, ('check ["jsn"]', "repeats, json")),
    "hint that is no list": ({**OTHER, "check": "json"}, ('check "json"', "a list of repeats")),
    "hint that is no word": ({**OTHER, "check": [{}]}, ("check [{}]", "a list of repeats")),
    "id of another line": (GOOD, ("id 'a' stands on line 1 already", "each id once", "rename one of the two")),
}


@pytest.mark.parametrize("case", LINES)
def test_a_line_that_cannot_be_used_is_told_with_its_place_and_remedy(case: str, tmp_path: Path) -> None:
    line, words = LINES[case]
    path = suite_file(tmp_path, GOOD, line)

    error = refused(path)

    assert error.where == f"{path}:2"
    assert [word for word in words if word not in str(error)] == []


def test_all_faults_of_a_file_are_told_together(tmp_path: Path) -> None:
    path = suite_file(tmp_path, b"{\n", GOOD, {**GOOD, "id": "b", "class": "Chat"}, {"id": "c", "class": "chat"})
    error = refused(path)
    assert [fault.where for fault in error.faults] == [f"{path}:1", f"{path}:3", f"{path}:4"]
    assert len(str(error).splitlines()) == 3


def test_a_file_of_another_format_and_a_value_of_any_length_do_not_fill_the_screen(tmp_path: Path) -> None:
    error = refused(suite_file(tmp_path, *[b"id;class;prompt\n"] * 500))

    assert len(error.faults) == 500
    assert len(str(error).splitlines()) == 21
    assert "480 more faults" in str(error)
    assert len(str(refused(suite_file(tmp_path, {**GOOD, "id": "x" * 10_000})))) < 400


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.write_bytes(b""), "the file has no prompt"),
        (lambda path: path.write_bytes(b"\n \n\n"), "the file has no prompt"),
        (lambda path: path.write_bytes(b"\xef\xbb\xbf"), "the file has no prompt"),
        (Path.mkdir, "this is a folder"),
        (str, "no such file"),
        (os.mkfifo, "a device or a pipe"),  # and not waited for
        (lambda path: path.open("wb").truncate(65 * 2**20), "at most 67108864"),
        (lambda path: path.symlink_to(path), "no such file"),
    ],
    ids=["empty", "blank", "mark", "folder", "missing", "pipe", "big", "circle"],
)
def test_a_file_that_cannot_be_a_suite_is_refused_as_bad_input(
    tmp_path: Path, make: Callable[[Path], object], problem: str
) -> None:
    path = tmp_path / "mine.jsonl"
    make(path)

    error = refused(path)

    assert (error.where, error.exit_code, isinstance(error, BenchError)) == (str(path), 2, True)
    assert problem in str(error)


def test_a_file_that_cannot_be_read_is_told_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = suite_file(tmp_path, GOOD)
    monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=PermissionError(13, "Permission denied")))
    assert "cannot be read: Permission denied" in str(refused(path))


def test_every_fault_of_a_line_is_told(tmp_path: Path) -> None:
    line = {"id": "a b", "class": "Chat", "prompt": "", "max_tokens": 0, "check": ["jsn"], "zzz": 1}

    with pytest.raises(SuiteError) as refused:
        load_suite(suite_file(tmp_path, line))

    said = [fault.problem for fault in refused.value.faults]
    assert [problem.split()[0] for problem in said] == ["id", "class", "prompt", "max_tokens", "check", "unknown"]
    assert len({fault.where for fault in refused.value.faults}) == 1
