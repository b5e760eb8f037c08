"""The prompt of a row of a file that is not in Tandem's own form.

Invariant: what is sent is the file's text, unchanged. A row has its text under one of a few known
keys, or under the key that the user names; nothing is guessed from other keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tandem.bench.suites.conversation import (
    RECORDED_KEYS,
    OmissionError,
    Turn,
    cut_turns,
    read_turns,
)
from tandem.bench.suites.file_options import ONE_CLASS, FileOptions
from tandem.bench.suites.file_row import FileRow, RowError
from tandem.bench.suites.prompt import (
    CLASS_PATTERN,
    ID_PATTERN,
    MAX_TOKENS_LIMITS,
    Message,
    Prompt,
    TokenLimit,
)

REQUEST_KEYS = ("prompt", "messages")
QUESTION_KEYS = ("turns",)  # the user's turns alone, as in MT-Bench and Spec-Bench
TOKEN_KEYS = ("max_tokens", "output_tokens", "max_completion_tokens")
ID_KEYS = ("id", "custom_id")
USED_KEYS = frozenset(
    (*REQUEST_KEYS, *RECORDED_KEYS, *QUESTION_KEYS, *TOKEN_KEYS, *ID_KEYS, "system")
)
CLASS_RULE = "up to 32 letters a to z, digits and '-', not all"
SHOWN_KEYS = 12


def list_fields(value: Any) -> dict[str, Any]:
    """Return the keys of a row; a text or a list is its prompt.

    A line of OpenAI's batch files has its request under `body`.

    Raises:
        RowError: the row is a number, a truth value or null.
    """
    if isinstance(value, str):
        return {"prompt": value}
    if isinstance(value, list):
        return {"messages": value}
    if not isinstance(value, Mapping):
        raise RowError("neither an object nor a text: write one a prompt")
    body = value.get("body")
    if not isinstance(body, Mapping):
        return dict(value)
    outer = {key: entry for key, entry in value.items() if key not in ("body", "method", "url")}
    return {**body, **outer}


def build_prompt(row: FileRow, options: FileOptions) -> Prompt:
    """Return the prompt of a row.

    Raises:
        OmissionError: a recorded conversation has nothing to send.
        RowError: the row is no prompt; the error says why, and what to change.
    """
    if row.fault is not None:
        raise RowError(row.fault)
    fields = list_fields(row.value)
    return Prompt(
        id=_find_id(fields) or row.place_id,
        class_=_name_class(fields, options.class_field),
        max_tokens=_read_max_tokens(fields),
        **_read_content(fields, options),
    )


def _read_content(fields: Mapping[str, Any], options: FileOptions) -> dict[str, Any]:
    """Return what a prompt sends, by the prompt's own keys."""
    key = _find_key(fields, options)
    value = fields[key]
    if isinstance(value, str):
        return {"prompt": _require_text(key, value), "system": _read_system(fields)}
    if value == [] and key in RECORDED_KEYS:
        raise OmissionError("no turn of the user")
    if not isinstance(value, list) or not value:
        raise RowError(f"`{key}` is neither a text nor a list of turns: correct it")
    if isinstance(value[0], str):
        return {"prompt": _choose_question(key, value, options)}
    return {"messages": _read_messages(key, value, options.turns)}


def _require_text(key: str, text: str) -> str:
    """Return a prompt.

    Raises:
        RowError: it is empty.
    """
    if not text.strip():
        raise RowError(f"`{key}` is empty: write a prompt, or delete the row")
    return text


def _read_system(fields: Mapping[str, Any]) -> str | None:
    """Return the system message beside a prompt; None without one.

    Raises:
        RowError: it is no text.
    """
    system = fields.get("system")
    if system is None:
        return None
    if not isinstance(system, str):
        raise RowError("`system` is no text: correct it, or delete the key")
    return system if system.strip() else None


def _find_key(fields: Mapping[str, Any], options: FileOptions) -> str:
    """Return the key of a row's prompt.

    Raises:
        RowError: the row has no such key, or two that may be meant.
    """
    keys = _list_keys(fields)
    column = options.prompt_column
    if column is not None:
        if column not in fields:
            raise RowError(f"no `{column}`, or an empty one; its keys: {keys}")
        return column
    requests = [key for key in REQUEST_KEYS if fields.get(key) is not None]
    if len(requests) > 1:
        flag = options.name_option("prompt_column", "prompt")
        raise RowError(f"`prompt` and `messages`: say which one, as in {flag}")
    others = [key for key in (*RECORDED_KEYS, *QUESTION_KEYS) if fields.get(key) is not None]
    if not requests and not others:
        for key in (*REQUEST_KEYS, *RECORDED_KEYS, *QUESTION_KEYS):
            if key in fields:
                raise RowError(f"`{key}` is null: write a prompt, or delete the row")
        flag = options.name_option("prompt_column", "NAME")
        raise RowError(
            f"no `prompt`, `messages` or `conversations`; its keys: {keys}:"
            f" name the prompt's key with {flag}"
        )
    return (requests or others)[0]


def _list_keys(fields: Mapping[str, Any]) -> str:
    """Return the first keys of a row, for a fault."""
    keys = list(fields)[:SHOWN_KEYS]
    return ", ".join(keys) or "none"


def _choose_question(key: str, questions: Sequence[Any], options: FileOptions) -> str:
    """Return the first of the user's turns.

    Raises:
        RowError: more turns are wanted, or it is no text.
    """
    if (options.turns or 1) > 1:
        flag = options.name_option("turns")
        raise RowError(f"`{key}` has no answers between its turns: leave out {flag}")
    return _require_text(key, questions[0])


def _read_messages(key: str, entries: Sequence[Any], turns: int | None) -> tuple[Message, ...]:
    """Return the messages of a conversation: a request as it stands, a recorded one cut.

    Raises:
        OmissionError: a recorded conversation has nothing to send.
        RowError: it cannot be sent.
    """
    if key in RECORDED_KEYS:
        return _list_messages(cut_turns(read_turns(entries), turns or 1))
    try:
        request = tuple(read_turns(entries))
    except OmissionError as error:
        raise RowError(f"{error}: allowed are system, user and assistant") from error
    if turns is not None or request[-1][0] == "assistant":
        return _list_messages(cut_turns(iter(request), turns or 1))
    for number, (_, text) in enumerate(request, start=1):
        if not text.strip():
            raise RowError(f"turn {number} has no text: write one, or delete it")
    return _list_messages(request)


def _list_messages(turns: Sequence[Turn]) -> tuple[Message, ...]:
    return tuple(Message(role=role, content=text) for role, text in turns)


def _find_id(fields: Mapping[str, Any]) -> str | None:
    """Return the row's own id; None if it has none that can be one."""
    for key in ID_KEYS:
        name = str(fields.get(key, ""))
        if re.fullmatch(ID_PATTERN, name):
            return name
    return None


def _name_class(fields: Mapping[str, Any], field: str | None) -> str:
    """Return the class of a row, in the letters that a class may have.

    Raises:
        RowError: the row has no such key, or its value gives no class.
    """
    if field is None:
        return ONE_CLASS
    value = fields.get(field)
    if value is None or isinstance(value, Mapping | list):
        keys = _list_keys(fields)
        raise RowError(f"no class under `{field}`, or an empty one; its keys: {keys}")
    name = re.sub(r"[^a-z0-9]+", "-", str(value).lower()).strip("-")
    if not re.fullmatch(CLASS_PATTERN, name):
        raise RowError(f"`{field}` is {value!r}, which gives no class; allowed: {CLASS_RULE}")
    return name


def _read_max_tokens(fields: Mapping[str, Any]) -> int | None:
    """Return the limit of the answer; None without one.

    Raises:
        RowError: it is no number within the limits.
    """
    for key in TOKEN_KEYS:
        if fields.get(key) is None:
            continue
        try:
            return msgspec.convert(fields[key], TokenLimit, strict=False)
        except msgspec.ValidationError as error:
            low, high = MAX_TOKENS_LIMITS
            raise RowError(
                f"`{key}` is {fields[key]!r}; allowed: a whole number from {low} to {high}"
            ) from error
    return None
