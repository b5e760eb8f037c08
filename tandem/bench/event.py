"""One event of a stream: its JSON, and what stands where in it.

Invariant: nothing a server sends raises anything but EventError, whose word is one of
`tandem.bench.record.ERROR_WORDS`.

The forms are OpenAI's, with what vLLM adds and renames: `token_ids`, `reasoning` for what was `reasoning_content`, an
error object in the middle of a stream (protocol.py of chat_completion and completion in vllm/entrypoints/openai).
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tandem.bench.record import JSON_NULL, ChunkKind

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


def has_output(event: bytes) -> bool:
    """Return whether an event holds output: text, reasoning, token ids, or a running count above 0."""
    try:
        message = decode_event(event)
        choice = first_choice(message) if isinstance(message, dict) else None
    except EventError:
        return False
    if choice is None:
        return False
    text, reasoning = read_texts(choice)
    usage = message.get("usage")
    token_count = isinstance(usage, dict) and count_or_none(usage.get("completion_tokens"))
    return bool(text or reasoning or choice.get("token_ids") or token_count)


def decode_event(event: bytes) -> Any:
    """Return an event's JSON.

    Raises:
        EventError: `decode` for what is no UTF-8, `not_json` for what is no JSON.
    """
    try:
        return msgspec.json.decode(event)
    except UnicodeDecodeError as error:
        raise EventError("decode", f"an event is no UTF-8: {error.reason} in {format_bytes(event)}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        if _has_lone_surrogate(event):
            raise EventError("decode", f"an event holds half of a surrogate pair: {format_bytes(event)}") from error
        raise EventError("not_json", f"an event is no JSON: {format_bytes(event)}") from error


def _has_lone_surrogate(event: bytes) -> bool:
    r"""Return whether an escape like \ud800 stands alone: JSON's grammar allows it, UTF-8 cannot hold it."""
    try:
        json.dumps(json.loads(event), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def format_json(value: Any) -> str:
    """Return a value as JSON for a person, cut."""
    return bytes(encode_raw(value))[:DETAIL_CHARACTERS].decode(errors="replace")


def format_bytes(data: bytes) -> str:
    """Return bytes for a person, cut."""
    return repr(data[:DETAIL_CHARACTERS].decode(errors="replace"))


def first_choice(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the first choice; None where there is none.

    Raises:
        EventError: there is no list of choices and no usage in its place.
    """
    choices = message.get("choices")
    if isinstance(choices, list):
        return choices[0] if choices and isinstance(choices[0], dict) else None
    if isinstance(message.get("usage"), dict):
        return None
    raise EventError("no_choices", f"an event has no choices: {format_json(message)}")


def read_texts(choice: dict[str, Any]) -> tuple[str, str]:
    """Return text and reasoning of a choice: of chat's delta (`reasoning` is vLLM's newer name), or of completions."""
    delta = choice.get("delta") or choice.get("message")
    if not isinstance(delta, dict):
        return string_or_empty(choice.get("text")), ""
    return string_or_empty(delta.get("content")), string_or_empty(delta.get("reasoning_content")) or string_or_empty(
        delta.get("reasoning")
    )


def string_or_empty(value: Any) -> str:
    """Return a string as it is, anything else as an empty one."""
    return value if isinstance(value, str) else ""


def count_or_none(value: Any) -> int | None:
    """Return a count as it is, None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < COUNT_LIMIT else None


def check_message(message: Any) -> None:
    """Refuse a JSON event that is no object or says of itself that something failed.

    Raises:
        EventError: `no_choices` or `api_error`.
    """
    if not isinstance(message, dict):
        raise EventError("no_choices", f"an event is JSON, but no object: {format_json(message)}")
    error = message.get("error") or (message if message.get("object") == "error" else None)
    if error:
        raise EventError("api_error", error_message(error))


def error_message(error: Any) -> str:
    """Return what an error object says, in the forms of OpenAI, vLLM and FastAPI."""
    for _ in range(MAX_ERROR_DEPTH):
        if not isinstance(error, dict):
            break
        error = next((error[key] for key in ("message", "error", "detail") if error.get(key)), None) or json.dumps(
            error
        )
    return error if isinstance(error, str) else format_json(error)


def choice_kind(choice: dict[str, Any], text: str, reasoning: str, finish: str) -> ChunkKind | None:
    """Return what a choice is; None for one without text, finish and role, whose tokens decide."""
    if text:
        return "text"
    if reasoning:
        return "reasoning"
    if finish:
        return "end"
    delta = choice.get("delta")
    return "role" if isinstance(delta, dict) and delta.get("role") else None


def encode_raw(value: Any) -> msgspec.Raw:
    """Return a value as JSON to keep."""
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except RecursionError:  # nested as deeply as no server means
        return JSON_NULL


def list_or_empty(value: Any) -> list[Any]:
    """Return a list as it is, anything else as an empty one."""
    return value if isinstance(value, list) else []
