"""Values of the guard's objects: parsed from JSON with care, written, shown in one line.

Invariant: standard library and botocore only, because a Lambda packs this file; foreign text comes
out printable and short.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from tandem.aws import faults
from tandem.aws.faults import error_code
from tandem.errors import ExternalError
from tandem.shell_command import clean_text

VALID_YEARS = range(2000, 3000)
MAX_TEXT_CHARACTERS = 300
# characters; SNS accepts no message above 256 KiB, and people must learn of a stop
MAX_SENTENCE_CHARACTERS = 1000
# errors of parsing a corrupt object, or an answer that is not the service's, e.g. a proxy's
PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
CALL_ERRORS = (*faults.BOTO_ERRORS, OSError, *PARSE_ERRORS)  # all external errors of a call


def parse_timestamp(text: Any) -> datetime:
    """Read a moment in ISO 8601 with its zone, in a year that leaves room for arithmetic.

    Raises:
        ValueError, TypeError: the text is no such moment.
    """
    timestamp = datetime.fromisoformat(text)
    if timestamp.tzinfo is None or timestamp.year not in VALID_YEARS:
        raise ValueError(f"{text} has no time zone, or no year of ours")
    return timestamp.astimezone(UTC)


def format_value(value: Any) -> str:
    """Return a value as a text; a moment in ISO 8601, UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value)


def parse_optional_timestamp(value: Any) -> datetime | None:
    """Read a moment, None if absent or empty.

    Raises:
        ValueError, TypeError: the value is something else.
    """
    return parse_timestamp(value) if value else None


def parse_optional_text(value: Any) -> str | None:
    """Read a text, None if absent or empty.

    Raises:
        TypeError: the value is something else.
    """
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return shorten_sentence(value) if value else None


def parse_texts(value: Any) -> tuple[str, ...]:
    """Read a list of texts.

    Raises:
        TypeError: the value is something else.
    """
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return tuple(shorten_text(text) for text in value)


def parse_labels(labels: Any) -> dict[str, str]:
    """Read labels of nodes, name to value."""
    return {shorten_sentence(name): shorten_sentence(value) for name, value in labels.items()}


def parse_count(value: Any, maximum: int) -> int:
    """Read a whole number from 0 to `maximum`.

    Raises:
        ValueError: the value is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise ValueError(f"no whole number from 0 to {maximum}")
    return value


def select_json_fields(record: Any, *names: str) -> dict[str, Any]:
    """Return fields of a record for a JSON object: as lists, mappings and texts."""
    fields = {name: getattr(record, name) for name in names}
    return dict(json.loads(json.dumps(fields, default=format_value)))


def describe_error(error: BaseException) -> str:
    """Return an error of boto3 in one line."""
    if isinstance(error, ClientError):
        return shorten_text(f"{error_code(error)}: {error.response['Error'].get('Message', '')}")
    is_parse_error = isinstance(error, PARSE_ERRORS) and not isinstance(error, BotoCoreError)
    if is_parse_error:
        return f"an answer that is none of the service's: {shorten_text(error)}"
    return shorten_text(error)


@contextmanager
def convert_call_errors(step: str, where: str, change: str) -> Iterator[None]:
    """Turn the errors of a call into an error that names the step.

    Raises:
        ExternalError: AWS does not answer, or refuses.
    """
    try:
        yield
    except CALL_ERRORS as error:
        raise ExternalError(
            f"{step} failed ({describe_error(error)})", where=where, change=change
        ) from error


def shorten_text(error: object, max_characters: int = MAX_TEXT_CHARACTERS) -> str:
    """Return an error or a text in one short line, of characters that can be sent and shown."""
    text = str(error)
    if isinstance(error, BaseException):
        text = f"{type(error).__name__}: {text}"
    line = " ".join(text.split())
    if len(line) > max_characters:
        line = f"{line[:max_characters]}..."
    return clean_text(line)


def shorten_sentence(text: object) -> str:
    """Return a person's words about identity or reason as one sentence for every channel."""
    return shorten_text(text, MAX_SENTENCE_CHARACTERS)
