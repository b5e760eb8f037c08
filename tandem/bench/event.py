"""One event of a stream: its JSON, and what stands where in it.

Invariant: nothing a server sends raises anything but EventError, whose word is one of
`tandem.bench.record.ERROR_WORDS`.

The forms are OpenAI's, with what vLLM adds and renames: `token_ids`, `reasoning` for what was `reasoning_content`, an
error object in the middle of a stream (protocol.py of chat_completion and completion in vllm/entrypoints/openai).
"""

from __future__ import annotations

from typing import Any

import msgspec

from tandem.bench.record import JSON_NULL

DONE = b"[DONE]"
DETAIL_CHARACTERS = 300  # characters of what a server said that a record keeps
MAX_ERROR_DEPTH = 4  # how deep in error objects a message may stand
COUNT_LIMIT = 2**53  # a count beyond is no count


class EventError(Exception):
    """What is wrong with what a server sent.

    Args:
        word: the error's word.
        detail: what was seen, for a person; cut to DETAIL_CHARACTERS characters.
    """

    def __init__(self, word: str, detail: str) -> None:
        super().__init__(word)
        self.word, self.detail = word, detail[:DETAIL_CHARACTERS]


def decode_event(data: bytes) -> Any:
    """Return an event's JSON.

    Raises:
        EventError: `decode` for what is no UTF-8, `not_json` for what is no JSON.
    """
    try:
        return msgspec.json.decode(data)
    except UnicodeDecodeError as error:
        raise EventError("decode", f"an event is no UTF-8: {error.reason} in {format_bytes(data)}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise EventError("not_json", f"an event is no JSON: {format_bytes(data)}") from error


def read_event(data: bytes) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return an event's object and its first choice; None where it has usage and no choice.

    Raises:
        EventError: as of `decode_event`; `api_error` where the event says that something failed; `no_choices` for
            what has neither choices nor usage.
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
    """Return what an error object says, in the forms of OpenAI, vLLM and FastAPI."""
    for _ in range(MAX_ERROR_DEPTH):
        if isinstance(error, dict):
            error = next((error[key] for key in ("message", "error", "detail") if error.get(key)), format_json(error))
    return error if isinstance(error, str) else format_json(error)


def read_texts(choice: dict[str, Any]) -> tuple[str, str, str]:
    """Return text, reasoning (`reasoning` is vLLM's newer name) and finish reason of a choice; empty where absent."""
    delta = choice.get("delta") or choice.get("message")
    texts = [choice.get("text"), "", choice.get("finish_reason")]
    if isinstance(delta, dict):
        texts[:2] = delta.get("content"), delta.get("reasoning_content") or delta.get("reasoning")
    text, reasoning, finish = (value if isinstance(value, str) else "" for value in texts)
    return text, reasoning, finish


def count_or_none(value: Any) -> int | None:
    """Return a count as it is, None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < COUNT_LIMIT else None


def encode_raw(value: Any) -> msgspec.Raw:
    """Return a value as JSON to keep."""
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except RecursionError:  # nested as deeply as no server means
        return JSON_NULL


def format_json(value: Any) -> str:
    """Return a value as JSON for a person, cut."""
    return bytes(encode_raw(value))[:DETAIL_CHARACTERS].decode(errors="replace")


def format_bytes(data: bytes) -> str:
    """Return bytes for a person, cut."""
    return repr(data[:DETAIL_CHARACTERS].decode(errors="replace"))
