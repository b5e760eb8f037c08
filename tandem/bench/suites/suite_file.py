"""Reading a suite's file: JSON lines become prompts, or faults with their lines.

Invariant: every line is read before anything is refused, so that all faults of a file are told together; what passes
here is sent to a server as it is.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.bench.fault import BenchError
from tandem.bench.suites.prompt import HINTS, Prompt

KEYS = ("id", "class", "prompt", "messages", "system", "max_tokens", "check")
KEY_ALIASES = {"text": "prompt", "question": "prompt", "input": "prompt", "category": "class", "hints": "check"}
ROLES = ("system", "user", "assistant")
ID_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
ID_RULE = "up to 64 letters, digits, '.', '_' and '-', the first a letter or digit"
# `all` is the summary's own row over all classes
CLASS_PATTERN = r"(?!all$)[a-z0-9][a-z0-9-]{0,31}"
CLASS_RULE = "up to 32 lower-case letters, digits and '-', and not 'all'"
MAX_TOKENS = 131_072
MAX_BYTES = 64 * 2**20
MAX_VALUE_CHARACTERS = 60  # characters of a wrong value that a fault repeats
MAX_FAULTS = 20  # faults that are spelt out; a file of another format has one on every line


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
        hidden_count = len(faults) - MAX_FAULTS
        more = [f"{hidden_count} more faults of this file are not shown"] if hidden_count > 0 else []
        self.args = ("\n".join([*map(str, faults[:MAX_FAULTS]), *more]),)


def suggest_name(name: object, names: Collection[str], otherwise: str) -> str:
    """Return the question whether the nearest of `names` was meant, or `otherwise` where none is near."""
    close = difflib.get_close_matches(name, names, n=1) if isinstance(name, str) else []
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
        line = PromptLine(f"{path}:{number}")
        prompt = line.read_prompt(raw, line_numbers)
        faults += line.faults
        if prompt is not None:
            line_numbers[prompt.id] = number
            prompts.append(prompt)
    if not faults and not prompts:
        faults.append(_describe_file(path, "the file has no prompt", "write at least one line"))
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
            fault = _describe_file(path, "this is a folder", "name a file in it")
        elif not path.exists():
            fault = _describe_file(path, "no such file", "create it, or correct the path")
        elif not path.is_file():
            fault = _describe_file(path, "this is a device or a pipe", "write it to a file first")
        elif (size := path.stat().st_size) > MAX_BYTES:
            fault = _describe_file(path, f"the file has {size} bytes, at most {MAX_BYTES} are read", "split the suite")
        else:
            return path.read_bytes()
    except OSError as error:
        fault = _describe_file(path, f"cannot be read: {error.strerror or error}", "correct its rights, or the path")
    raise SuiteError([fault])


def _describe_file(path: Path, problem: str, change: str) -> SuiteFault:
    allowed = "a JSONL file: one JSON object a line, UTF-8"
    return SuiteFault(where=str(path), problem=problem, allowed=allowed, change=change)


class PromptLine:
    """One line, and everything that is wrong with it.

    Args:
        where: the file and the line's number.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.faults: list[SuiteFault] = []

    def read_prompt(self, raw: bytes, line_numbers: dict[str, int]) -> Prompt | None:
        """Return the prompt of a line; None where something of it is wrong.

        Args:
            raw: the line.
            line_numbers: id to line of the prompts before it.
        """
        line = self._parse_object(raw)
        if line is None:
            return None
        meant_keys = self._check_keys(line)
        if "id" not in meant_keys and self._check_word(line, "id", ID_PATTERN, ID_RULE) and line["id"] in line_numbers:
            problem = f"id {line['id']!r} stands on line {line_numbers[line['id']]} already"
            self._refuse(problem, "each id once", "rename one of the two")
        if "class" not in meant_keys:
            self._check_word(line, "class", CLASS_PATTERN, CLASS_RULE)
        if ("prompt" in line) == ("messages" in line) and meant_keys.isdisjoint({"prompt", "messages"}):
            problem = "both 'prompt' and 'messages'" if "prompt" in line else "neither 'prompt' nor 'messages'"
            self._refuse(problem, "exactly one of them", "delete one" if "prompt" in line else "add 'prompt'")
        for key in ("prompt", "system"):
            self._check_text(line.get(key, "absent"), key)
        if "messages" in line:
            self._check_messages(line["messages"])
            if "system" in line:
                problem = "both 'system' and 'messages'"
                self._refuse(problem, "'system' beside 'prompt' only", "make it the first message")
        max_tokens = line.get("max_tokens", 1)
        if type(max_tokens) is not int or not 1 <= max_tokens <= MAX_TOKENS:
            self._refuse_value("max_tokens", max_tokens, f"a whole number from 1 to {MAX_TOKENS}", "correct it")
        self._check_hints(line.get("check", []))
        if self.faults:
            return None
        values = {"class_" if key == "class" else key: value for key, value in line.items()}
        messages = tuple(line["messages"]) if "messages" in line else None
        return Prompt(**values | {"messages": messages, "check": frozenset(line.get("check", []))})

    def _parse_object(self, raw: bytes) -> dict[str, Any] | None:
        allowed = "one whole JSON object on one line"
        try:
            value = json.loads(raw.decode(), object_pairs_hook=self._build_object)
        except (RecursionError, ValueError) as error:  # also of a number of thousands of digits
            problem = f"not JSON in UTF-8: {error}"
            self._refuse(problem, allowed, "correct the line, and save the file as UTF-8")
            return None
        if not isinstance(value, dict):
            self._refuse_value("got", value, allowed, "put the line's values under their keys")
            return None
        return value

    def _build_object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            keys = [key for key, _ in pairs]
            duplicate = next(key for key in keys if keys.count(key) > 1)
            self._refuse(f"key {duplicate!r} stands twice", "each key once", "delete one of them")
        return value

    def _check_keys(self, line: dict[str, Any]) -> set[str]:
        """Return the keys that were meant by unknown ones."""
        meant_keys = set()
        for key in (key for key in line if key not in KEYS):
            close = difflib.get_close_matches(key, KEYS, n=1)
            suggestion = KEY_ALIASES.get(key, close[0] if close else "")
            change = f"did you mean {suggestion!r}?" if suggestion else "delete it"
            self._refuse(f"unknown key {key!r}", ", ".join(KEYS), change)
            meant_keys.add(suggestion)
        return meant_keys

    def _check_word(self, line: dict[str, Any], key: str, pattern: str, allowed: str) -> bool:
        if key not in line:
            self._refuse(f"no {key!r}", allowed, f"add {key!r}")
        elif not (isinstance(line[key], str) and re.fullmatch(pattern, line[key])):
            self._refuse_value(key, line[key], allowed, "rename it")
        else:
            return True
        return False

    def _check_text(self, value: Any, label: str) -> None:
        if not isinstance(value, str):
            self._refuse_value(label, value, "a text in quotes", "write it as one text")
        elif not value.strip():
            self._refuse(f"{label} is empty", "a text that asks for something", "write it, or delete the line")
        elif any("\ud800" <= sign <= "\udfff" for sign in value):
            problem = f"{label} holds half a surrogate pair"
            self._refuse(problem, "characters that UTF-8 can spell", "write the character itself")

    def _check_messages(self, messages: Any) -> None:
        if not (isinstance(messages, list) and messages):
            self._refuse_value("messages", messages, 'a list of {"role", "content"}', "write at least one message")
            return
        for index, message in enumerate(messages):
            label = f"messages[{index}]"
            if not (isinstance(message, dict) and set(message) == {"role", "content"}):
                self._refuse_value(label, message, 'an object with "role" and "content" alone', "correct it")
                continue
            role = message["role"]
            if role not in ROLES or (role == "system" and index):
                allowed = f"{', '.join(ROLES)} (system only as the first)"
                change = "name another" if role in ROLES else suggest_name(role, ROLES, "name another")
                self._refuse_value(f"{label} role", role, allowed, change)
            self._check_text(message["content"], f"{label} content")
        if not self.faults and messages[-1]["role"] != "user":
            problem = f"the last message is of role {messages[-1]['role']!r}"
            self._refuse(problem, "'user'", "end with what is asked")

    def _check_hints(self, hints: Any) -> None:
        allowed = f"a list of {', '.join(HINTS)}"
        if not isinstance(hints, list):
            self._refuse_value("check", hints, allowed, "put it in brackets")
            return
        for hint in hints:
            if hint not in list(HINTS):
                self._refuse_value("check", hint, allowed, suggest_name(hint, HINTS, "delete it"))

    def _refuse_value(self, label: str, value: Any, allowed: str, change: str) -> None:
        text = json.dumps(value)
        short_text = text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}..."
        self._refuse(f"{label} {short_text}", allowed, change)

    def _refuse(self, problem: str, allowed: str, change: str) -> None:
        self.faults.append(SuiteFault(where=self.where, problem=problem, allowed=allowed, change=change))
