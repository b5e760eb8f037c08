"""One event of a stream: its JSON and its fields.

Invariant: a server's bytes raise only EventError, whose word is one of
`tandem.bench.records.record.ERROR_WORDS`.

The forms are OpenAI's, with vLLM's additions: `token_ids`, `reasoning` (the former
`reasoning_content`), an error object in the middle of a stream (protocol.py of chat_completion and
completion in vllm/entrypoints/openai).
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec

from tandem.bench.records.record import JSON_NULL

DONE = b"[DONE]"
DETAIL_CHARACTERS = 300  # characters of a server's message that a record keeps
MAX_ERROR_DEPTH = 4  # deepest nesting of a message in error objects
_ERROR_CODES = range(400, 600)  # HTTP statuses of errors
COUNT_LIMIT = 2**53  # a larger number is no count


class EventError(Exception):
    """Fault in a server's bytes.

    Args:
        word: the error's word.
        detail: the fault, for a person; cut to DETAIL_CHARACTERS characters.
    """

    def __init__(self, word: str, detail: str) -> None:
        super().__init__(word)
        self.word = word
        self.detail = detail[:DETAIL_CHARACTERS]


def decode_event(data: bytes) -> Any:
    """Return an event's JSON; NaN and Infinity, which are no JSON, become None.

    Python's own writer puts them into log-probabilities and counts.

    Raises:
        EventError: `decode` for bytes that are no UTF-8, `not_json` for text that is no JSON.
    """
    try:
        return msgspec.json.decode(data)
    except UnicodeDecodeError as error:
        raise EventError(
            "decode", f"an event is no UTF-8: {error.reason} in {format_bytes(data)}"
        ) from error
    except (msgspec.DecodeError, RecursionError) as error:
        fault = EventError("not_json", f"an event is no JSON: {format_bytes(data)}")
        if b"NaN" not in data and b"Infinity" not in data:
            raise fault from error
    try:
        value = json.loads(data, parse_constant=lambda _: None)
        msgspec.json.encode(value)  # refuses half of a surrogate pair, as the decoder does
    except (ValueError, TypeError, RecursionError) as error:
        raise fault from error
    return value


def read_event(data: bytes) -> dict[str, Any]:
    """Return the fields of an event.

    Raises:
        EventError: those of `decode_event`; `api_error` if the event reports an error; `no_choices`
            if the event is no object.
    """
    message = decode_event(data)
    error = find_error(message)
    if error is not None:
        raise EventError("api_error", describe_error(error))
    if not isinstance(message, dict):
        raise EventError("no_choices", f"an event is JSON, but no object: {format_json(message)}")
    return message


def find_error(message: Any) -> Any | None:
    """Return the error in an event's JSON; None if the event reports none.

    The forms are OpenAI's and vLLM's (`error`), those of gateways that list `errors` or put the
    object into an array, Groq's `x_groq.error` (groq-python, chat_completion_chunk.py), and objects
    that call themselves an error by `object` or `type`, or by an HTTP status in `code` or `status`.
    """
    if isinstance(message, list) and len(message) == 1:
        message = message[0]
    if not isinstance(message, dict):
        return None
    for name in ("error", "errors"):
        error = message.get(name)
        if not error:
            continue
        if isinstance(error, list) and len(error) == 1:
            error = error[0]
        if not isinstance(error, dict) or any(error.values()):
            return error
    groq = message.get("x_groq")
    if isinstance(groq, dict) and groq.get("error"):
        return groq["error"]
    if "choices" in message:
        return None
    if "error" in (message.get("object"), message.get("type")):
        return message
    has_code = any(count_or_none(message.get(name)) in _ERROR_CODES for name in ("code", "status"))
    return message if has_code else None


def describe_error_event(data: bytes) -> str:
    """Return what the data of an event says that the server names as an error."""
    with contextlib.suppress(EventError):
        message = decode_event(data)
        error = find_error(message)
        return describe_error(message if error is None else error)
    return data.decode(errors="replace").strip() or "the server gives no reason"


def describe_error(error: Any) -> str:
    """Return the message of an error object, in the forms of OpenAI, vLLM and FastAPI."""
    for _ in range(MAX_ERROR_DEPTH):
        if isinstance(error, dict):
            keys = ("message", "error", "detail", "msg")
            error = next((error[key] for key in keys if error.get(key)), format_json(error))
    return error if isinstance(error, str) else format_json(error)


def count_or_none(value: Any) -> int | None:
    """Return `value` if it is a count, else None; some servers write a count as 12.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < COUNT_LIMIT else None


def encode_raw(value: Any) -> msgspec.Raw:
    """Return a value as raw JSON for a record."""
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except RecursionError:  # deeper nesting than any valid answer
        return JSON_NULL


def format_json(value: Any) -> str:
    """Return a value as JSON for a person, cut to DETAIL_CHARACTERS bytes."""
    return bytes(encode_raw(value))[:DETAIL_CHARACTERS].decode(errors="replace")


def format_bytes(data: bytes) -> str:
    """Return bytes as text for a person, cut to DETAIL_CHARACTERS bytes."""
    return repr(data[:DETAIL_CHARACTERS].decode(errors="replace"))
