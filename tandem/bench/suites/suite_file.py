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

from tandem.bench.suites.fault import SuiteError, SuiteFault
from tandem.bench.suites.prompt import HINTS, Hint, Prompt

P = ParamSpec("P")
T = TypeVar("T")

KEYS = ("id", "class", "prompt", "messages", "system", "max_tokens", "check")
KEY_ALIASES = {"text": "prompt", "question": "prompt", "input": "prompt", "category": "class", "hints": "check"}
ROLES = ("system", "user", "assistant")
RESERVED_CLASS = "all"  # the summary's own row over all classes
ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
CLASS_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
MAX_TOKENS = 131_072
MAX_BYTES = 64 * 2**20
MAX_VALUE_CHARACTERS = 60  # characters of a wrong value that a fault repeats


class _LineFault(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, problem: str, requirement: str, change: str) -> None:
        super().__init__(problem)
        self.problem, self.requirement, self.change = problem, requirement, change


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Return the prompts of one file, in order.

    Raises:
        SuiteError: the file cannot be read, or some of its lines cannot be used; with every fault.
    """
    faults: list[SuiteFault] = []
    prompts: list[Prompt] = []
    line_numbers: dict[str, int] = {}
    for number, raw in _read_lines(path):
        location = f"{path}:{number}"
        line = PromptLineReader()
        data = line.take(_parse_object, raw)
        prompt = line.parse_prompt(data, line_numbers) if data is not None else None
        faults += [
            SuiteFault(
                where=location, problem=line_fault.problem, allowed=line_fault.requirement, change=line_fault.change
            )
            for line_fault in line.line_faults
        ]
        if prompt is not None:
            line_numbers[prompt.id] = number
            prompts.append(prompt)
    if not faults and not prompts:
        faults.append(_build_fault(path, "the file has no prompt", "one JSON object a line", "write at least one line"))
    if faults:
        raise SuiteError(faults)
    return tuple(prompts)


def _read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield each line that is not blank, with its number."""
    content = _read_content(path).removeprefix(b"\xef\xbb\xbf")  # editors on Windows begin UTF-8 files so
    for number, raw in enumerate(content.split(b"\n"), start=1):
        if raw.strip():
            yield number, raw.rstrip(b"\r")


def _read_content(path: Path) -> bytes:
    """Return the file's bytes.

    Raises:
        SuiteError: there is no such file, it is none, or it cannot be read.
    """
    requirement = "a JSONL file: one JSON object a line, UTF-8"
    try:
        if path.is_dir():
            raise SuiteError([_build_fault(path, "this is a folder", requirement, "name a file in it")])
        if not path.exists():
            raise SuiteError([_build_fault(path, "no such file", requirement, "create it, or correct the path")])
        if not path.is_file():
            raise SuiteError(
                [_build_fault(path, "this is a device or a pipe", requirement, "write it to a file first")]
            )
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise SuiteError(
                [_build_fault(path, f"the file has {size} bytes", f"at most {MAX_BYTES}", "split the suite")]
            )
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        change = "give this user the right to read it, or correct the path"
        raise SuiteError([_build_fault(path, f"cannot be read: {reason}", requirement, change)]) from None


def _build_fault(path: Path, problem: str, requirement: str, change: str) -> SuiteFault:
    return SuiteFault(where=str(path), problem=problem, allowed=requirement, change=change)


def _parse_object(raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        problem = f"not UTF-8: byte {error.object[error.start]:#04x} at position {error.start + 1} of the line"
        raise _LineFault(problem, "UTF-8", "save the file as UTF-8") from None
    try:
        value = json.loads(text, object_pairs_hook=_refuse_duplicate_keys)
    except json.JSONDecodeError as error:
        problem = f"not JSON: {error.msg} at column {error.colno}"
        raise _LineFault(problem, "one whole JSON object on one line", "correct the line") from None
    except (RecursionError, ValueError):  # ValueError: a number of thousands of digits
        raise _LineFault(
            "nested too deeply, or a number too long", "one flat JSON object", "correct the line"
        ) from None
    if not isinstance(value, dict):
        raise _LineFault(
            f"got {_format_value(value)}", "one JSON object on one line", "put the line's values under their keys"
        )
    return value


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise _LineFault(f"key {duplicate!r} stands twice", "each key once", "delete one of them")
    return value


class PromptLineReader:
    """Read one line, and keep everything that is wrong with it."""

    def __init__(self) -> None:
        self.line_faults: list[_LineFault] = []

    def take(self, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Return what `read` returns; None where it found a fault, which is kept."""
        try:
            return read(*args, **kwargs)
        except _LineFault as wrong:
            self.line_faults.append(wrong)
            return None

    def parse_prompt(self, line: dict[str, Any], line_numbers: dict[str, int]) -> Prompt | None:
        """Return the prompt of a line; None where something of it is wrong.

        Args:
            line: its keys and values.
            line_numbers: id to line of the prompts before it.
        """
        suggestions = {self._record_unknown_key(key) for key in line if key not in KEYS}
        prompt_id = class_ = None
        if "id" not in suggestions:
            prompt_id = self.take(
                _parse_value,
                line,
                "id",
                ID_PATTERN,
                "up to 64 letters, digits, '.', '_' and '-', the first a letter or digit",
            )
        if prompt_id is not None:
            self.take(_require_new_id, prompt_id, line_numbers)
        if "class" not in suggestions:
            class_ = self.take(_parse_class, line)
        if suggestions.isdisjoint({"prompt", "messages"}):
            self.take(_require_question, line)
        text = self.take(_parse_text, line["prompt"], "prompt") if "prompt" in line else None
        messages = self.take(_parse_messages, line["messages"]) if "messages" in line else None
        system, max_tokens = self.take(_parse_system, line), self.take(_parse_max_tokens, line)
        check = self.take(_parse_check, line)
        if self.line_faults or prompt_id is None or class_ is None or check is None:
            return None
        return Prompt(
            id=prompt_id,
            class_=class_,
            prompt=text,
            messages=messages,
            system=system,
            max_tokens=max_tokens,
            check=check,
        )

    def _record_unknown_key(self, key: str) -> str | None:
        """Keep the fault of an unknown key, and return the key that was meant."""
        suggestion = KEY_ALIASES.get(key) or next(iter(difflib.get_close_matches(key, KEYS, n=1)), None)
        change = f"did you mean {suggestion!r}?" if suggestion else "delete it"
        self.line_faults.append(_LineFault(f"unknown key {key!r}", ", ".join(KEYS), change))
        return suggestion


def _parse_class(line: dict[str, Any]) -> str:
    """Return the line's class."""
    class_ = _parse_value(line, "class", CLASS_PATTERN, "up to 32 lower-case letters, digits and '-'")
    if class_ == RESERVED_CLASS:
        raise _LineFault(
            f"class {RESERVED_CLASS!r}", "any other word", "rename it: the summary's row over all classes has it"
        )
    return class_


def _require_question(line: dict[str, Any]) -> None:
    """See that the line has either a prompt or messages."""
    if ("prompt" in line) == ("messages" in line):
        both = "both 'prompt' and 'messages'" if "prompt" in line else "neither 'prompt' nor 'messages'"
        raise _LineFault(both, "exactly one of them", "delete one" if "prompt" in line else "add 'prompt'")


def _parse_value(line: dict[str, Any], key: str, pattern: re.Pattern[str], requirement: str) -> str:
    if key not in line:
        raise _LineFault(f"no {key!r}", requirement, f"add {key!r}")
    value = line[key]
    if not (isinstance(value, str) and pattern.fullmatch(value)):
        raise _LineFault(f"{key} {_format_value(value)}", requirement, "rename it")
    return value


def _parse_text(value: Any, label: str) -> str:
    if not isinstance(value, str):
        raise _LineFault(f"{label} {_format_value(value)}", "a text in quotes", "write it as one text")
    if not value.strip():
        raise _LineFault(f"{label} is empty", "a text that asks for something", "write it, or delete the line")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        problem = f"{label} holds half a surrogate pair, {value[error.start]!a}"
        raise _LineFault(problem, "characters that UTF-8 can spell", "write the character itself") from None
    return value


def _parse_messages(value: Any) -> tuple[dict[str, str], ...]:
    if not (isinstance(value, list) and value):
        raise _LineFault(
            f"messages {_format_value(value)}", 'a list of {"role", "content"}', "write at least one message"
        )
    messages = tuple(_parse_message(entry, index) for index, entry in enumerate(value))
    if messages[-1]["role"] != "user":
        problem = f"the last message is of role {messages[-1]['role']!r}"
        raise _LineFault(problem, "'user'", "end with what is asked")
    return messages


def _parse_message(entry: Any, index: int) -> dict[str, str]:
    label = f"messages[{index}]"
    if not (isinstance(entry, dict) and set(entry) == {"role", "content"}):
        raise _LineFault(f"{label} {_format_value(entry)}", 'an object with "role" and "content" alone', "correct it")
    role = entry["role"]
    if role not in ROLES or (role == "system" and index):
        requirement = ", ".join(ROLES) + " (system only as the first)"
        close = difflib.get_close_matches(role, ROLES, n=1) if isinstance(role, str) and role not in ROLES else []
        raise _LineFault(
            f"{label} role {_format_value(role)}",
            requirement,
            f"did you mean {close[0]!r}?" if close else "name another",
        )
    return {"role": role, "content": _parse_text(entry["content"], f"{label} content")}


def _parse_system(line: dict[str, Any]) -> str | None:
    if "system" not in line:
        return None
    if "messages" in line:
        raise _LineFault("both 'system' and 'messages'", "'system' beside 'prompt' only", "make it the first message")
    return _parse_text(line["system"], "system")


def _parse_max_tokens(line: dict[str, Any]) -> int | None:
    if "max_tokens" not in line:
        return None
    value = line["max_tokens"]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_TOKENS:
        raise _LineFault(f"max_tokens {_format_value(value)}", f"a whole number from 1 to {MAX_TOKENS}", "correct it")
    return value


def _parse_check(line: dict[str, Any]) -> frozenset[Hint]:
    value = line.get("check", [])
    requirement = "a list of " + ", ".join(HINTS)
    if not isinstance(value, list):
        raise _LineFault(f"check {_format_value(value)}", requirement, "put it in brackets")
    for word in value:
        if word not in get_args(Hint):
            close = difflib.get_close_matches(word, HINTS, n=1) if isinstance(word, str) else []
            raise _LineFault(
                f"check {_format_value(word)}", requirement, f"did you mean {close[0]!r}?" if close else "delete it"
            )
    return frozenset(value)


def _require_new_id(prompt_id: str, line_numbers: dict[str, int]) -> None:
    if prompt_id in line_numbers:
        problem = f"id {prompt_id!r} stands on line {line_numbers[prompt_id]} already"
        raise _LineFault(problem, "each id once", "rename one of the two")


def _format_value(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}..."
