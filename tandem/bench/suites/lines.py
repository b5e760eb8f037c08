"""Reading a suite's file: JSON lines become prompts, or faults with their lines.

Invariant: every line is read before anything is refused, so that all faults of a file are told together; what passes
here is sent to a server as it is.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args

from tandem.bench.suites.fault import Fault, SuiteError
from tandem.bench.suites.prompt import HINTS, Hint, Prompt

P = ParamSpec("P")
T = TypeVar("T")

KEYS = ("id", "class", "prompt", "messages", "system", "max_tokens", "check")
MEANT = {"text": "prompt", "question": "prompt", "input": "prompt", "category": "class", "hints": "check"}
ROLES = ("system", "user", "assistant")
RESERVED = "all"  # the summary's own row over all classes
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
CLASS = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
MOST_TOKENS = 131_072
MOST_BYTES = 64 * 2**20
SHOWN = 60  # characters of a wrong value that a fault repeats


class _Wrong(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, problem: str, allowed: str, change: str) -> None:
        super().__init__(problem)
        self.problem, self.allowed, self.change = problem, allowed, change


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Return the prompts of one file, in order.

    Raises:
        SuiteError: the file cannot be read, or some of its lines cannot be used; with every fault.
    """
    faults: list[Fault] = []
    prompts: list[Prompt] = []
    lines_of: dict[str, int] = {}
    for number, raw in _lines(path):
        where = f"{path}:{number}"
        line = LineReader()
        data = line.take(_object, raw)
        prompt = line.prompt(data, lines_of) if data is not None else None
        faults += [
            Fault(where=where, problem=wrong.problem, allowed=wrong.allowed, change=wrong.change)
            for wrong in line.wrongs
        ]
        if prompt is not None:
            lines_of[prompt.id] = number
            prompts.append(prompt)
    if not faults and not prompts:
        faults.append(_fault(path, "the file has no prompt", "one JSON object a line", "write at least one line"))
    if faults:
        raise SuiteError(faults)
    return tuple(prompts)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield each line that is not blank, with its number."""
    content = _content(path).removeprefix(b"\xef\xbb\xbf")  # editors on Windows begin UTF-8 files so
    for number, raw in enumerate(content.split(b"\n"), start=1):
        if raw.strip():
            yield number, raw.rstrip(b"\r")


def _content(path: Path) -> bytes:
    """Return the file's bytes.

    Raises:
        SuiteError: there is no such file, it is none, or it cannot be read.
    """
    a_file = "a JSONL file: one JSON object a line, UTF-8"
    try:
        if path.is_dir():
            raise SuiteError([_fault(path, "this is a folder", a_file, "name a file in it")])
        if not path.exists():
            raise SuiteError([_fault(path, "no such file", a_file, "create it, or correct the path")])
        if not path.is_file():
            raise SuiteError([_fault(path, "this is a device or a pipe", a_file, "write it to a file first")])
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise SuiteError([_fault(path, f"the file has {size} bytes", f"at most {MOST_BYTES}", "split the suite")])
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        change = "give this user the right to read it, or correct the path"
        raise SuiteError([_fault(path, f"cannot be read: {reason}", a_file, change)]) from None


def _fault(path: Path, problem: str, allowed: str, change: str) -> Fault:
    return Fault(where=str(path), problem=problem, allowed=allowed, change=change)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        found = f"not UTF-8: byte {error.object[error.start]:#04x} at position {error.start + 1} of the line"
        raise _Wrong(found, "UTF-8", "save the file as UTF-8") from None
    try:
        value = json.loads(text, object_pairs_hook=_each_key_once)
    except json.JSONDecodeError as error:
        found = f"not JSON: {error.msg} at column {error.colno}"
        raise _Wrong(found, "one whole JSON object on one line", "correct the line") from None
    except (RecursionError, ValueError):  # ValueError: a number of thousands of digits
        raise _Wrong("nested too deeply, or a number too long", "one flat JSON object", "correct the line") from None
    if not isinstance(value, dict):
        raise _Wrong(f"got {_shown(value)}", "one JSON object on one line", "put the line's values under their keys")
    return value


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Wrong(f"key {twice!r} stands twice", "each key once", "delete one of them")
    return value


class LineReader:
    """Read one line, and keep everything that is wrong with it."""

    def __init__(self) -> None:
        self.wrongs: list[_Wrong] = []

    def take(self, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Return what `read` returns; None where it found a fault, which is kept."""
        try:
            return read(*args, **kwargs)
        except _Wrong as wrong:
            self.wrongs.append(wrong)
            return None

    def prompt(self, line: dict[str, Any], lines_of: dict[str, int]) -> Prompt | None:
        """Return the prompt of a line; None where something of it is wrong.

        Args:
            line: its keys and values.
            lines_of: id to line of the prompts before it.
        """
        meant = {self._unknown(key) for key in line if key not in KEYS}
        identity = class_ = None
        if "id" not in meant:
            identity = self.take(
                _matched, line, "id", ID, "up to 64 letters, digits, '.', '_' and '-', the first a letter or digit"
            )
        if identity is not None:
            self.take(_once, identity, lines_of)
        if "class" not in meant:
            class_ = self.take(_class, line)
        if meant.isdisjoint({"prompt", "messages"}):
            self.take(_one_question, line)
        text = self.take(_text, line["prompt"], "prompt") if "prompt" in line else None
        messages = self.take(_messages, line["messages"]) if "messages" in line else None
        system, most = self.take(_system, line), self.take(_max_tokens, line)
        check = self.take(_check, line)
        if self.wrongs or identity is None or class_ is None or check is None:
            return None
        return Prompt(
            id=identity, class_=class_, prompt=text, messages=messages, system=system, max_tokens=most, check=check
        )

    def _unknown(self, key: str) -> str | None:
        """Keep the fault of an unknown key, and return the key that was meant."""
        close = MEANT.get(key) or next(iter(difflib.get_close_matches(key, KEYS, n=1)), None)
        change = f"did you mean {close!r}?" if close else "delete it"
        self.wrongs.append(_Wrong(f"unknown key {key!r}", ", ".join(KEYS), change))
        return close


def _class(line: dict[str, Any]) -> str:
    """Return the line's class."""
    class_ = _matched(line, "class", CLASS, "up to 32 lower-case letters, digits and '-'")
    if class_ == RESERVED:
        raise _Wrong(f"class {RESERVED!r}", "any other word", "rename it: the summary's row over all classes has it")
    return class_


def _one_question(line: dict[str, Any]) -> None:
    """See that the line has either a prompt or messages."""
    if ("prompt" in line) == ("messages" in line):
        both = "both 'prompt' and 'messages'" if "prompt" in line else "neither 'prompt' nor 'messages'"
        raise _Wrong(both, "exactly one of them", "delete one" if "prompt" in line else "add 'prompt'")


def _matched(line: dict[str, Any], key: str, pattern: re.Pattern[str], allowed: str) -> str:
    if key not in line:
        raise _Wrong(f"no {key!r}", allowed, f"add {key!r}")
    value = line[key]
    if not (isinstance(value, str) and pattern.fullmatch(value)):
        raise _Wrong(f"{key} {_shown(value)}", allowed, "rename it")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise _Wrong(f"{what} {_shown(value)}", "a text in quotes", "write it as one text")
    if not value.strip():
        raise _Wrong(f"{what} is empty", "a text that asks for something", "write it, or delete the line")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        found = f"{what} holds half a surrogate pair, {value[error.start]!a}"
        raise _Wrong(found, "characters that UTF-8 can spell", "write the character itself") from None
    return value


def _messages(value: Any) -> tuple[dict[str, str], ...]:
    if not (isinstance(value, list) and value):
        raise _Wrong(f"messages {_shown(value)}", 'a list of {"role", "content"}', "write at least one message")
    messages = tuple(_message(entry, index) for index, entry in enumerate(value))
    if messages[-1]["role"] != "user":
        found = f"the last message is of role {messages[-1]['role']!r}"
        raise _Wrong(found, "'user'", "end with what is asked")
    return messages


def _message(entry: Any, index: int) -> dict[str, str]:
    what = f"messages[{index}]"
    if not (isinstance(entry, dict) and set(entry) == {"role", "content"}):
        raise _Wrong(f"{what} {_shown(entry)}", 'an object with "role" and "content" alone', "correct it")
    role = entry["role"]
    if role not in ROLES or (role == "system" and index):
        allowed = ", ".join(ROLES) + " (system only as the first)"
        close = difflib.get_close_matches(role, ROLES, n=1) if isinstance(role, str) and role not in ROLES else []
        raise _Wrong(f"{what} role {_shown(role)}", allowed, f"did you mean {close[0]!r}?" if close else "name another")
    return {"role": role, "content": _text(entry["content"], f"{what} content")}


def _system(line: dict[str, Any]) -> str | None:
    if "system" not in line:
        return None
    if "messages" in line:
        raise _Wrong("both 'system' and 'messages'", "'system' beside 'prompt' only", "make it the first message")
    return _text(line["system"], "system")


def _max_tokens(line: dict[str, Any]) -> int | None:
    if "max_tokens" not in line:
        return None
    value = line["max_tokens"]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TOKENS:
        raise _Wrong(f"max_tokens {_shown(value)}", f"a whole number from 1 to {MOST_TOKENS}", "correct it")
    return value


def _check(line: dict[str, Any]) -> frozenset[Hint]:
    value = line.get("check", [])
    allowed = "a list of " + ", ".join(HINTS)
    if not isinstance(value, list):
        raise _Wrong(f"check {_shown(value)}", allowed, "put it in brackets")
    for word in value:
        if word not in get_args(Hint):
            close = difflib.get_close_matches(word, HINTS, n=1) if isinstance(word, str) else []
            raise _Wrong(f"check {_shown(word)}", allowed, f"did you mean {close[0]!r}?" if close else "delete it")
    return frozenset(value)


def _once(identity: str, lines_of: dict[str, int]) -> None:
    if identity in lines_of:
        found = f"id {identity!r} stands on line {lines_of[identity]} already"
        raise _Wrong(found, "each id once", "rename one of the two")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
