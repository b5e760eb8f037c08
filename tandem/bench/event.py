"""One event of a stream: its JSON and its fields.

Invariant: a server's bytes raise only EventError, whose word is one of `tandem.bench.record.ERROR_WORDS`.

The forms are OpenAI's, with vLLM's additions: `token_ids`, `reasoning` (the former `reasoning_content`), an error
object in the middle of a stream (protocol.py of chat_completion and completion in vllm/entrypoints/openai).
"""

from __future__ import annotations

from typing import Any

import msgspec

from tandem.bench.record import JSON_NULL

DONE = b"[DONE]"
DETAIL_CHARACTERS = 300  # characters of a server's message that a record keeps
MAX_ERROR_DEPTH = 4  # deepest nesting of a message in error objects
COUNT_LIMIT = 2**53  # a larger number is no count


class EventError(Exception):
    """Fault in a server's bytes.

    Args:
        word: the error's word.
        detail: the fault, for a person; cut to DETAIL_CHARACTERS characters.
    """

    def __init__(self, word: str, detail: str) -> None:
        super().__init__(word)
        self.word, self.detail = word, detail[:DETAIL_CHARACTERS]


def decode_event(data: bytes) -> Any:
    """Return an event's JSON.

    Raises:
        EventError: `decode` for bytes that are no UTF-8, `not_json` for text that is no JSON.
    """
    try:
        return msgspec.json.decode(data)
    except UnicodeDecodeError as error:
        raise EventError("decode", f"an event is no UTF-8: {error.reason} in {format_bytes(data)}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise EventError("not_json", f"an event is no JSON: {format_bytes(data)}") from error


def read_event(data: bytes) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return an event's object and its first choice; None if it has usage and no choice.

    Raises:
        EventError: those of `decode_event`; `api_error` if the event reports an error; `no_choices` if the event has
            neither choices nor usage.
    """
    message = decode_event(data)
    if not isinstance(message, dict):
        raise EventError("no_choices", f"an event is JSON, but no object: {format_json(message)}")
    error = message.get("error") or (message if message.get("object") == "error" else None)
    if error:
        raise EventError("api_error", describe_error(error))
    choices = message.get("choices")
    if isinstance(choices, list):
        return message, choices[0] if choices and isinstance(choices[0], dict) else None
    if not isinstance(message.get("usage"), dict):
        raise EventError("no_choices", f"an event has no choices: {format_json(message)}")
    return message, None


def describe_error(error: Any) -> str:
    """Return the message of an error object, in the forms of OpenAI, vLLM and FastAPI."""
    for _ in range(MAX_ERROR_DEPTH):
        if isinstance(error, dict):
            error = next((error[key] for key in ("message", "error", "detail") if error.get(key)), format_json(error))
    return error if isinstance(error, str) else format_json(error)


def read_texts(choice: dict[str, Any]) -> tuple[str, str, str]:
    """Return text, reasoning (`reasoning` is vLLM's newer name) and finish reason of a choice; empty if absent."""
    delta = choice.get("delta") or choice.get("message")
    texts = [choice.get("text"), "", choice.get("finish_reason")]
    if isinstance(delta, dict):
        texts[:2] = delta.get("content"), delta.get("reasoning_content") or delta.get("reasoning")
    text, reasoning, finish = (value if isinstance(value, str) else "" for value in texts)
    return text, reasoning, finish


def count_or_none(value: Any) -> int | None:
    """Return `value` if it is a count, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < COUNT_LIMIT else None


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
