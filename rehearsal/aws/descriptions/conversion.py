"""The form of a description."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

Properties = dict[str, Any]
ClientFactory = Callable[[str], Any]  # service name to boto3 client
DescribeFunction = Callable[[ClientFactory, str, Properties], Properties]


class AbsentResourceError(LookupError):
    """CloudFormation lists the resource, but its own service does not know it."""


def require_single(items: list[Any], subject: str) -> Any:
    """Return the only item.

    Raises:
        AbsentResourceError: there is none, or more than one.
    """
    if len(items) != 1:
        raise AbsentResourceError(f"{subject}: {len(items)} described")
    return items[0]


def require_equal(documents: list[Any]) -> Any:
    """Return the document that all are equal to; all of them, which no template has, if none is."""
    is_same = bool(documents) and all(document == documents[0] for document in documents)
    return documents[0] if is_same else documents


def to_pascal_case(value: Any, user_keys: frozenset[str] = frozenset()) -> Any:
    """Return a camelCase answer in template spelling; keys below `user_keys` stay as they are."""
    if isinstance(value, list):
        return [to_pascal_case(item, user_keys) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key[:1].upper() + key[1:]: item if key in user_keys else to_pascal_case(item, user_keys)
        for key, item in value.items()
    }


def to_whole_numbers(value: Any) -> Any:
    """Return a number that the API gives as a fraction in template spelling: 20, not 20.0."""
    if isinstance(value, dict):
        return {key: to_whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [to_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def tag_list(tags: dict[str, str]) -> list[dict[str, str]]:
    """Return tags as templates write them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def call_or_none(call: Callable[[], Any], *codes: str) -> Any:
    """Return the answer; None if the service says that nothing is set."""
    try:
        return call()
    except ClientError as refusal:
        if refusal.response["Error"]["Code"] in codes:
            return None
        raise
