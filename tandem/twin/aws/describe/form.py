"""The form of a description."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

Properties = dict[str, Any]
Client = Callable[[str], Any]  # service name to boto3 client
Describe = Callable[[Client, str, Properties], Properties]


class GoneError(LookupError):
    """CloudFormation says that the resource is there, its own service does not know it."""


def one(items: list[Any], what: str) -> Any:
    """The only item.

    Raises:
        GoneError: there is none, or more than one.
    """
    if len(items) != 1:
        raise GoneError(f"{what}: {len(items)} described")
    return items[0]


def pascal(value: Any, kept: frozenset[str] = frozenset()) -> Any:
    """An answer in camelCase in the spelling of templates; below `kept` keys are the user's own and stay."""
    if isinstance(value, list):
        return [pascal(item, kept) for item in value]
    if not isinstance(value, dict):
        return value
    return {key[:1].upper() + key[1:]: item if key in kept else pascal(item, kept) for key, item in value.items()}


def whole(value: Any) -> Any:
    """A number that the API gives as a fraction, in the spelling of templates: 20 and not 20.0."""
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def tag_list(tags: dict[str, str]) -> list[dict[str, str]]:
    """Tags as templates write them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def unless_missing(call: Callable[[], Any], *codes: str) -> Any:
    """The answer, or None where the service says that nothing is set."""
    try:
        return call()
    except ClientError as refusal:
        if refusal.response["Error"]["Code"] in codes:
            return None
        raise
