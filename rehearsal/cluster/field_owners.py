"""Server-side apply: which manager applied which field, and which fields conflict.

Left out: lists merged by key. A list is one field here, and a manager that applies another list
takes the whole list.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

_IDENTITY = ("apiVersion", "kind", "metadata.name", "metadata.namespace")


def apply_fields(
    old: dict[str, Any], applied: dict[str, Any], owners: dict[str, str], manager: str
) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """Return the object with applied fields, the later owners, and the conflicts: path -> owner.

    Args:
        old: the object before; empty for a new one.
        owners: path of a field -> who applied it last.
    """
    new = copy.deepcopy(old)
    applied_fields = dict(_list_fields(applied))
    conflicts = {
        ".".join(path): owners[".".join(path)]
        for path, value in applied_fields.items()
        if owners.get(".".join(path), manager) != manager
        and not _holds(_get_field(old, path), value)
    }
    dropped_paths = {path for path, owner in owners.items() if owner == manager} - {
        ".".join(path) for path in applied_fields
    }
    for path, _ in list(_list_fields(old)):
        if ".".join(path) in dropped_paths:
            _drop_field(new, path)
    for path, value in applied_fields.items():
        if not _holds(_get_field(new, path), value):
            _set_field(new, path, value)
    kept_owners = {path: owner for path, owner in owners.items() if path not in dropped_paths}
    own = {".".join(path): manager for path in applied_fields if ".".join(path) not in _IDENTITY}
    return new, kept_owners | own, conflicts


def _list_fields(
    value: dict[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, part in value.items():
        if isinstance(part, dict) and part:
            yield from _list_fields(part, (*path, key))
        else:
            yield (*path, key), part


def _holds(old: Any, value: Any) -> bool:
    """Tell whether nothing has to be set; an empty mapping only needs any mapping there."""
    return bool(old == value and old is not None) or (value == {} and isinstance(old, dict))


def _get_field(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _set_field(value: dict[str, Any], path: tuple[str, ...], part: Any) -> None:
    for key in path[:-1]:
        if not isinstance(value.get(key), dict):
            value[key] = {}
        value = value[key]
    value[path[-1]] = copy.deepcopy(part)


def _drop_field(value: dict[str, Any], path: tuple[str, ...]) -> None:
    parent = _get_field(value, path[:-1])
    if isinstance(parent, dict):
        parent.pop(path[-1], None)
