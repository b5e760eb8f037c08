"""Reading a suite's file: JSON lines become prompts, or faults with their lines.

Invariant: every line is read before anything is refused, so that all faults of a file are told together; what passes
here is sent to a server as it is.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.bench.fault import BenchError
from tandem.bench.suites.prompt import HINTS, Prompt

ROLES = ("system", "user", "assistant")
ID_PATTERN, CLASS_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", r"(?!all\Z)[a-z0-9][a-z0-9-]{0,31}"
MAX_TOKENS = 131_072
# key of a line: what its value must be
KEYS = {
    "id": "up to 64 letters, digits, '.', '_' and '-', the first a letter or digit",
    "class": "up to 32 lower-case letters, digits and '-', and not 'all', the summary's row over all classes",
    "prompt": "a text in quotes that asks for something",
    "messages": 'a list of {"role", "content"}; a role is system (only as the first), user (as the last) or assistant',
    "system": "a text in quotes, beside 'prompt' only",
    "max_tokens": f"a whole number from 1 to {MAX_TOKENS}",
    "check": f"a list of {', '.join(HINTS)}",
}
KEY_ALIASES = {"text": "prompt", "question": "prompt", "input": "prompt", "category": "class", "hints": "check"}
MAX_BYTES = 64 * 2**20
MAX_VALUE_CHARACTERS = 60  # characters of a wrong value that a fault repeats
MAX_FAULTS = 20  # faults that are spelt out; a file of another format has one on every line
FILE_FORM, LINE_FORM = "a JSONL file: one JSON object a line, UTF-8", "one whole JSON object on one line"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFault:
    """One fault.

    Args:
        where: the file as the user named it, with `:line` where a line is at fault.
        problem: what is wrong.
        allowed: what would be accepted.
        change: what to do about it.
    """

    where: str
    problem: str
    allowed: str
    change: str

    def __str__(self) -> str:
        """Render it as one line, for a log."""
        return f"{self.where}: {self.problem}; allowed: {self.allowed}; {self.change}"


class SuiteError(BenchError):
    """A suite cannot be used.

    Args:
        faults: every fault, at least one; `problem`, `where` and `change` are those of the first.
    """

    def __init__(self, faults: Sequence[SuiteFault]) -> None:
        first = faults[0]
        super().__init__(f"{first.problem}; allowed: {first.allowed}", where=first.where, change=first.change)
        self.faults = tuple(faults)
        more = f"{len(faults) - MAX_FAULTS} more faults of this file are not shown"
        self.args = ("\n".join([*map(str, faults[:MAX_FAULTS]), *[more] * (len(faults) > MAX_FAULTS)]),)


def suggest_name(name: str, names: Collection[str], otherwise: str) -> str:
    """Return the question whether the nearest of `names` was meant, or `otherwise` where none is near."""
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else otherwise


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Return the prompts of one file, in order.

    Raises:
        SuiteError: the file cannot be read, or some of its lines cannot be used; with every fault.
    """
    faults: list[SuiteFault] = []
    prompts: list[Prompt] = []
    line_numbers: dict[str, int] = {}
    content = _read_content(path).removeprefix(b"\xef\xbb\xbf")  # editors on Windows begin UTF-8 files so
    for number, raw in enumerate(content.split(b"\n"), start=1):
        if not raw.strip():
            continue
        line, problems = _read_line(raw)
        if "id" in line and (earlier_number := line_numbers.setdefault(repr(line["id"]), number)) != number:
            problem = f"id {line['id']!r} stands on line {earlier_number} already"
            problems.append((problem, "each id once", "rename one of the two"))
        where = f"{path}:{number}"
        faults += [SuiteFault(where=where, problem=text, allowed=rule, change=do) for text, rule, do in problems]
        if not problems:
            values = {"class_" if key == "class" else key: value for key, value in line.items()}
            messages = tuple({key: message[key] for key in ("role", "content")} for message in line.get("messages", ()))
            prompts.append(Prompt(**values | {"messages": messages or None, "check": frozenset(line.get("check", []))}))
    if not faults and not prompts:
        change = "write at least one line"
        faults = [SuiteFault(where=str(path), problem="the file has no prompt", allowed=FILE_FORM, change=change)]
    if faults:
        raise SuiteError(faults)
    return tuple(prompts)


def _read_content(path: Path) -> bytes:
    """Return the file's bytes.

    Raises:
        SuiteError: there is no such file, it is none, or it cannot be read.
    """
    try:
        if path.is_dir():
            problem, change = "this is a folder", "name a file in it"
        elif not path.exists():
            problem, change = "no such file", "create it, or correct the path"
        elif not path.is_file():
            problem, change = "this is a device or a pipe", "write it to a file first"
        elif (size := path.stat().st_size) > MAX_BYTES:
            problem, change = f"the file has {size} bytes, at most {MAX_BYTES} are read", "split the suite"
        else:
            return path.read_bytes()
    except OSError as error:
        problem, change = f"cannot be read: {error.strerror or error}", "correct its rights, or the path"
    raise SuiteError([SuiteFault(where=str(path), problem=problem, allowed=FILE_FORM, change=change)])


def _read_line(raw: bytes) -> tuple[dict[str, Any], list[tuple[str, str, str]]]:
    """Return the values of a line, and everything that is wrong with them: problem, what is allowed, what to change."""
    try:
        line = json.loads(raw.decode(), object_pairs_hook=_build_object)
        json.dumps(line, ensure_ascii=False).encode()  # half a surrogate pair has no spelling
    except (RecursionError, ValueError) as error:  # also of a number of thousands of digits
        return {}, [(f"not JSON in UTF-8: {error}", LINE_FORM, "correct the line, and save the file as UTF-8")]
    if not isinstance(line, dict):
        return {}, [(f"got {_format_value(line)}", LINE_FORM, "put the line's values under their keys")]
    problems, meant_keys = [], set[str]()
    for key, value in line.items():
        if key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, n=1)
            meant_key = KEY_ALIASES.get(key, close[0] if close else "")
            change = f"did you mean {meant_key!r}?" if meant_key else "delete it"
            problems.append((f"unknown key {key!r}", ", ".join(KEYS), change))
            meant_keys.add(meant_key)
            continue
        for label, part in _find_wrong_parts(key, value):
            problems.append((f"{label} {_format_value(part)}", KEYS[key], "correct it"))
    keys = line.keys() | meant_keys
    problems += [(f"no {key!r}", KEYS[key], f"add {key!r}") for key in ("id", "class") if key not in keys]
    if len(keys & {"prompt", "messages"}) != 1:
        problem = "both 'prompt' and 'messages'" if "prompt" in keys else "neither 'prompt' nor 'messages'"
        problems.append((problem, "exactly one of them", "delete one" if "prompt" in keys else "add 'prompt'"))
    if {"system", "messages"} <= keys:
        problems.append(("both 'system' and 'messages'", KEYS["system"], "make it the first message"))
    return line, problems


def _find_wrong_parts(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each part of a value that is not what its key asks for, with the name of the part."""
    if key in {"id", "class"}:
        pattern = ID_PATTERN if key == "id" else CLASS_PATTERN
        is_right = isinstance(value, str) and bool(re.fullmatch(pattern, value))
    elif key == "max_tokens":
        is_right = type(value) is int and 1 <= value <= MAX_TOKENS
    elif key == "check":
        is_right = isinstance(value, list) and all(hint in HINTS for hint in value)
    elif key == "messages" and isinstance(value, list) and value:
        for index, message in enumerate(value):
            is_whole = isinstance(message, dict) and message.keys() == {"role", "content"} and message["role"] in ROLES
            is_misplaced = is_whole and index > 0 and message["role"] == "system"
            if not is_whole or is_misplaced or not _is_text(message["content"]):
                yield f"messages[{index}]", message
        is_right = not isinstance(value[-1], dict) or value[-1].get("role") == "user"
    else:
        is_right = key != "messages" and _is_text(value)
    if not is_right:
        yield key, value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if duplicates := [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]:
        raise ValueError(f"key {duplicates[0]!r} stands twice")
    return dict(pairs)


def _format_value(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}..."
