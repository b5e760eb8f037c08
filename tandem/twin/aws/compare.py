"""Whether a described resource is what its template says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_MISSING = "(absent)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One place where the description is not what the template says."""

    property: str
    template: Any
    described: Any


def differences(template: Any, described: Any, where: str) -> Iterator[Difference]:
    """Every place below `where` in which `described` lacks or contradicts what `template` says.

    What is described beyond the template is AWS's default and no difference. Lists are compared without order, as
    AWS returns subnets, rules and tags in any order; a list of another length differs.
    """
    if isinstance(template, dict):
        yield from _in_object(template, described, where)
    elif isinstance(template, list):
        yield from _in_list(template, described, where)
    elif _plain(template) != _plain(described):
        yield Difference(property=where, template=template, described=described)


def _in_object(template: dict[str, Any], described: Any, where: str) -> Iterator[Difference]:
    described = _parsed(described)
    if not isinstance(described, dict):
        yield Difference(property=where, template=template, described=described)
        return
    for name, value in template.items():
        yield from differences(value, described.get(name, _MISSING), f"{where}.{name}" if where else name)


def _in_list(template: list[Any], described: Any, where: str) -> Iterator[Difference]:
    described = _parsed(described)
    if _tags(template) is not None and _tags(described) is not None:
        yield from _in_object(_tags(template) or {}, _tags(described), where)
        return
    if not isinstance(described, list) or len(described) != len(template):
        yield Difference(property=where, template=template, described=described)
        return
    left = list(described)
    for item in template:
        same = next((other for other in left if not any(differences(item, other, where))), _MISSING)
        if same is _MISSING:
            yield from _nearest(item, left, where)
            return
        left.remove(same)


def _nearest(item: Any, left: list[Any], where: str) -> Iterator[Difference]:
    """What differs from the described item that comes nearest: the difference an operator wants to read."""
    yield from min((list(differences(item, other, f"{where}[]")) for other in left), key=len)


def _tags(value: Any) -> dict[str, Any] | None:
    """A list of Key and Value as a map, or None where it is none."""
    if not isinstance(value, list) or not all(isinstance(item, dict) and {"Key"} <= item.keys() for item in value):
        return None
    if not all(item.keys() <= {"Key", "Value", "PropagateAtLaunch"} for item in value):
        return None
    return {item["Key"]: item.get("Value", "") for item in value}


def _parsed(value: Any) -> Any:
    """Policy documents and configuration values come back as JSON text."""
    if isinstance(value, str) and value[:1] in "{[":
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or str(value) in ("True", "False") else str(value)
