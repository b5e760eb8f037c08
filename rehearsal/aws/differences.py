"""Differences between a described resource and its template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_ABSENT = "(absent)"


@dataclass(frozen=True, kw_only=True, slots=True)
class PropertyDifference:
    """One place where the description differs from the template."""

    property_path: str
    template_value: Any
    actual_value: Any


def find_differences(template: Any, actual: Any, path: str) -> Iterator[PropertyDifference]:
    """Yield every place below `path` in which `actual` lacks or contradicts a value of `template`.

    A described value beyond the template is AWS's default and no difference. Lists are compared
    without order, because AWS returns subnets, rules and tags in any order. A list of another
    length differs.
    """
    if isinstance(template, dict):
        yield from _object_differences(template, actual, path)
    elif isinstance(template, list):
        yield from _list_differences(template, actual, path)
    elif _plain_text(template) != _plain_text(actual):
        yield PropertyDifference(property_path=path, template_value=template, actual_value=actual)


def _object_differences(
    template: dict[str, Any], actual: Any, path: str
) -> Iterator[PropertyDifference]:
    actual = _parse_json(actual)
    if not isinstance(actual, dict):
        yield PropertyDifference(property_path=path, template_value=template, actual_value=actual)
        return
    for name, value in template.items():
        yield from find_differences(
            value, actual.get(name, _ABSENT), f"{path}.{name}" if path else name
        )


def _list_differences(template: list[Any], actual: Any, path: str) -> Iterator[PropertyDifference]:
    actual = _parse_json(actual)
    if _tag_map(template) is not None and _tag_map(actual) is not None:
        yield from _object_differences(_tag_map(template) or {}, _tag_map(actual), path)
        return
    if not isinstance(actual, list) or len(actual) != len(template):
        yield PropertyDifference(property_path=path, template_value=template, actual_value=actual)
        return
    unmatched_items = list(actual)
    for item in template:
        equal_item = next(
            (
                candidate
                for candidate in unmatched_items
                if not any(find_differences(item, candidate, path))
            ),
            _ABSENT,
        )
        if equal_item is _ABSENT:
            yield from _nearest_differences(item, unmatched_items, path)
            return
        unmatched_items.remove(equal_item)


def _nearest_differences(
    item: Any, candidates: list[Any], path: str
) -> Iterator[PropertyDifference]:
    """Yield differences from the most similar described item: an operator wants to read these."""
    yield from min(
        (list(find_differences(item, candidate, f"{path}[]")) for candidate in candidates), key=len
    )


def _tag_map(value: Any) -> dict[str, Any] | None:
    """Return a list of Key and Value as a map; None if the value is no such list."""
    if not isinstance(value, list) or not all(
        isinstance(item, dict) and {"Key"} <= item.keys() for item in value
    ):
        return None
    if not all(item.keys() <= {"Key", "Value", "PropagateAtLaunch"} for item in value):
        return None
    return {item["Key"]: item.get("Value", "") for item in value}


def _parse_json(value: Any) -> Any:
    """Parse JSON text, the form in which policy documents and configuration values come back."""
    if isinstance(value, str) and value[:1] in "{[":
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _plain_text(value: Any) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool) or str(value) in ("True", "False")
        else str(value)
    )
