"""One event of a stream: its JSON, and what stands where in it.

Invariant: nothing a server sends raises anything but EventError, whose word is one of `tandem.bench.record.ERRORS`.

The forms are OpenAI's, with what vLLM adds and renames: `token_ids`, `reasoning` for what was `reasoning_content`, an
error object in the middle of a stream (protocol.py of chat_completion and completion in vllm/entrypoints/openai).
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tandem.bench.record import NULL, Kind

DONE = b"[DONE]"
DETAIL = 300  # characters of what a server said that a record keeps
NESTED_MOST = 4  # how deep in error objects a message may stand
BIG = 2**53  # a count beyond is no count


class EventError(Exception):
    """What is wrong with what a server sent.

    Args:
        word: the error's word.
        detail: what was seen, for a person; cut to DETAIL characters.
    """

    def __init__(self, word: str, detail: str) -> None:
        super().__init__(word)
        self.word, self.detail = word, detail[:DETAIL]


def has_output(event: bytes) -> bool:
    """Return whether an event holds output: text, reasoning, token ids, or a running count above 0."""
    try:
        message = decoded(event)
        choice = choice_of(message) if isinstance(message, dict) else None
    except EventError:
        return False
    if choice is None:
        return False
    text, reasoning = texts(choice)
    usage = message.get("usage")
    counted = isinstance(usage, dict) and count(usage.get("completion_tokens"))
    return bool(text or reasoning or choice.get("token_ids") or counted)


def decoded(event: bytes) -> Any:
    """Return an event's JSON.

    Raises:
        EventError: `decode` for what is no UTF-8, `not_json` for what is no JSON.
    """
    try:
        return msgspec.json.decode(event)
    except UnicodeDecodeError as error:
        raise EventError("decode", f"an event is no UTF-8: {error.reason} in {shown(event)}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        if _has_half_a_pair(event):
            raise EventError("decode", f"an event holds half of a surrogate pair: {shown(event)}") from error
        raise EventError("not_json", f"an event is no JSON: {shown(event)}") from error


def _has_half_a_pair(event: bytes) -> bool:
    r"""Return whether an escape like \ud800 stands alone: JSON's grammar allows it, UTF-8 cannot hold it."""
    try:
        json.dumps(json.loads(event), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def dumped(value: Any) -> str:
    """Return a value as JSON for a person, cut."""
    return bytes(raw(value))[:DETAIL].decode(errors="replace")


def shown(data: bytes) -> str:
    """Return bytes for a person, cut."""
    return repr(data[:DETAIL].decode(errors="replace"))


def choice_of(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the first choice; None where there is none.

    Raises:
        EventError: there is no list of choices and no usage in its place.
    """
    choices = message.get("choices")
    if isinstance(choices, list):
        return choices[0] if choices and isinstance(choices[0], dict) else None
    if isinstance(message.get("usage"), dict):
        return None
    raise EventError("no_choices", f"an event has no choices: {dumped(message)}")


def texts(choice: dict[str, Any]) -> tuple[str, str]:
    """Return text and reasoning of a choice: of chat's delta (`reasoning` is vLLM's newer name), or of completions."""
    delta = choice.get("delta") or choice.get("message")
    if not isinstance(delta, dict):
        return string(choice.get("text")), ""
    return string(delta.get("content")), string(delta.get("reasoning_content")) or string(delta.get("reasoning"))


def string(value: Any) -> str:
    """Return a string as it is, anything else as an empty one."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int | None:
    """Return a count as it is, None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < BIG else None


def refuse(message: Any) -> None:
    """Refuse a JSON event that is no object or says of itself that something failed.

    Raises:
        EventError: `no_choices` or `api_error`.
    """
    if not isinstance(message, dict):
        raise EventError("no_choices", f"an event is JSON, but no object: {dumped(message)}")
    error = message.get("error") or (message if message.get("object") == "error" else None)
    if error:
        raise EventError("api_error", message_of(error))


def message_of(error: Any) -> str:
    """Return what an error object says, in the forms of OpenAI, vLLM and FastAPI."""
    for _ in range(NESTED_MOST):
        if not isinstance(error, dict):
            break
        error = next((error[key] for key in ("message", "error", "detail") if error.get(key)), None) or json.dumps(
            error
        )
    return error if isinstance(error, str) else dumped(error)


def kind_of(choice: dict[str, Any], text: str, reasoning: str, finish: str) -> Kind | None:
    """Return what a choice is; None for one without text, finish and role, whose tokens decide."""
    if text:
        return "text"
    if reasoning:
        return "reasoning"
    if finish:
        return "end"
    delta = choice.get("delta")
    return "role" if isinstance(delta, dict) and delta.get("role") else None


def raw(value: Any) -> msgspec.Raw:
    """Return a value as JSON to keep."""
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except RecursionError:  # nested as deeply as no server means
        return NULL


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, anything else as an empty one."""
    return value if isinstance(value, list) else []
