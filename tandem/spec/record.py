"""The border: plain data becomes frozen, typed values, or faults in the operator's words.

Invariant: unknown keys, wrong types and missing keys are refused with the key path, the value got and the
values allowed; inside a record nothing is checked again.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from tandem.spec.document import LONGEST_SPELLING, YamlDocument
from tandem.spec.faults import SpecError, SpecFault


class SpecRecord(BaseModel):
    """A frozen value read from a file; every field has a type and a description."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


R = TypeVar("R", bound=SpecRecord)

FILL_IN = "FILL_IN"
"""A value that `tandem new` leaves to whoever owns the file."""


def _refuse_non_integer(value: object) -> object:
    if isinstance(value, bool | float):
        raise PydanticCustomError("literal_error", "not a whole number")
    return value


# beside Literal[1, ...], which takes true and 1.0 for 1, as Python does
INTEGER_ONLY = BeforeValidator(_refuse_non_integer)


def parse_record(record: type[R], document: YamlDocument, **fixed_values: str) -> R:
    """Build `record` from `document`.

    Args:
        record: the schema.
        document: the file's data and lines.
        fixed_values: values that the file's place fixes, such as its name; the file itself may not state them.

    Raises:
        SpecError: with one fault per wrong, missing or unknown key.
    """
    faults, value = [], None
    for key in fixed_values:
        if key in document.data:
            got, change = repr(document.data[key]), f"delete it: the file's name is the {key}"
            faults.append(document.build_fault(key, got, "no such key", change))
    try:
        value = record.model_validate_json(json.dumps({**document.data, **fixed_values}))
    except ValidationError as error:
        entries: list[dict[str, Any]] = [dict(entry) for entry in error.errors(include_url=False)]
        for entry in entries:
            place = tuple(entry["loc"])
            has_inner = any(inner["loc"][: len(place)] == place and inner is not entry for inner in entries)
            # a list may only be called too short because entries of it are wrong
            if not (entry["type"] == "too_short" and has_inner):
                fault = _build_fault(record, document, entry, fixed_values)
                faults.append(replace(fault, change="rename the file") if fault.path in fixed_values else fault)
    paths = {fault.path for fault in faults}
    for location in _find_placeholders(document.data):
        _, path = _resolve_location(record, location)
        if path not in paths:  # of a text the schema itself takes the placeholder
            faults.append(_placeholder_fault(find_field(record, location, document.data), document, path))
    if value is None or faults:
        raise SpecError(faults)
    return value


def _find_placeholders(value: object, location: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each placeholder."""
    if value == FILL_IN:
        yield location
    elif isinstance(value, dict | list):
        for step, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _find_placeholders(child, (*location, step))


def _placeholder_fault(field: FieldInfo | None, document: YamlDocument, path: str) -> SpecFault:
    """Return the fault of a placeholder, with what its field takes."""
    allowed = _describe_at(path, field) if field else "your own value"
    return document.build_fault(path, FILL_IN, allowed, _append_description(field, "fill it in"))


def _build_fault(
    record: type[SpecRecord], document: YamlDocument, entry: dict[str, Any], fixed_keys: Iterable[str]
) -> SpecFault:
    kind, value = entry["type"], entry["input"]
    schema, path = _resolve_location(record, tuple(entry["loc"]))
    field = schema if isinstance(schema, FieldInfo) else None
    if kind == "extra_forbidden":
        key, hidden_keys = path.rpartition(".")[2], set(fixed_keys) if schema is record else set()
        fields = schema.model_fields if isinstance(schema, type) and issubclass(schema, SpecRecord) else {}
        keys = sorted(set(fields) - hidden_keys)
        close_keys = difflib.get_close_matches(key, keys, n=1)
        change = f"did you mean {close_keys[0]!r}?" if close_keys else "delete it"
        return document.build_fault(path, f"the unknown key {key!r}", ", ".join(keys), change)
    if value == FILL_IN:
        return _placeholder_fault(field, document, path)
    allowed = describe_allowed_values(field) if field else "see docs"
    if kind.startswith("union_tag"):
        path, allowed = _join_path(path, "kind"), ", ".join(_records_by_kind(schema) or ())
    if kind == "union_tag_invalid":
        return document.build_fault(path, _spell_value(value.get("kind")), allowed, "write one of them")
    if kind in {"missing", "union_tag_not_found"}:
        fault = document.build_fault(path, "nothing", allowed, _append_description(field, "add this key"))
        return replace(fault, line=document.lines.get(path.rpartition(".")[0]) if "." in path else None)
    allowed = _describe_at(path, field) if field else allowed
    change = _append_description(field, _suggest_change(value, kind))
    return document.build_fault(path, _spell_value(value), _append_limit(entry, allowed), change)


def _join_path(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _spell_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_SPELLING else text[:LONGEST_SPELLING] + "..."


_LIMITS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
}


def _append_limit(entry: dict[str, Any], allowed: str) -> str:
    template, context = _LIMITS.get(entry["type"]), entry.get("ctx", {})
    if template is None:
        return allowed
    limit = template.format(**context)
    if context.get("min_length") == 1:
        limit = limit.replace("entries", "entry").replace("characters", "character")
    return f"{allowed}, {limit}"


def _describe_at(path: str, field: FieldInfo) -> str:
    """Say what a field takes, or of an entry of a list what each takes."""
    allowed = describe_allowed_values(field)
    return allowed.removeprefix("a list, each ") if path.endswith("]") else allowed


def _suggest_change(value: object, kind: str) -> str:
    """Say what to do about a value that only its quotes, or their lack, make wrong."""
    if kind == "string_type" and isinstance(value, int | float):
        return "put it in quotes"
    if kind in {"int_type", "float_type"} and isinstance(value, str) and value.replace(".", "", 1).isdigit():
        return "remove the quotes"
    return "write an allowed value"


def _append_description(field: FieldInfo | None, advice: str) -> str:
    return f"{advice} ({field.description})" if field and field.description else advice


def _resolve_location(record: type[SpecRecord], location: tuple[Any, ...]) -> tuple[Any, str]:
    """Follow a pydantic location; return the field (or the record, for an unknown key) and the key path."""
    schema: Any = record
    path = ""
    for step in location:
        if isinstance(step, int):
            path = f"{path}[{step}]"
            continue
        records_by_kind = _records_by_kind(schema) or {}
        if step in records_by_kind:
            schema = records_by_kind[step]
        elif step != "[key]":
            record_type = _find_record_type(schema)
            path = _join_path(path, step)
            schema = record_type.model_fields.get(step, record_type) if record_type else schema
    return schema, path


def find_field(record: type[SpecRecord], steps: Iterable[str | int], data: object) -> FieldInfo | None:
    """Return the field at a key path of a file; None where the schema has none.

    Args:
        record: the schema.
        steps: the key path, keys and indices.
        data: the file's data, which tells by `kind` which record of several stands where.
    """
    location: list[str | int] = []
    schema: Any = record
    for step in steps:
        location.append(step)
        if isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            data = data.get(step) if isinstance(data, dict) else None
        schema, _ = _resolve_location(record, tuple(location))
        kind = data.get("kind") if isinstance(data, dict) and _records_by_kind(schema) else None
        if isinstance(kind, str):
            location.append(kind)
    return schema if isinstance(schema, FieldInfo) else None


def list_record_types(schema: Any) -> list[type[SpecRecord]]:
    """Return the record types inside a field, an optional, a list or a mapping; none for a leaf."""
    if isinstance(schema, FieldInfo):
        schema = schema.annotation
    if isinstance(schema, type) and issubclass(schema, SpecRecord):
        return [schema]
    return [record_type for argument in get_args(schema) for record_type in list_record_types(argument)]


def _find_record_type(schema: Any) -> type[SpecRecord] | None:
    return next(iter(list_record_types(schema)), None)


def _records_by_kind(schema: Any) -> dict[str, type[SpecRecord]] | None:
    """Return kind -> record of a union told apart by `kind`."""
    if not isinstance(schema, FieldInfo) or schema.discriminator is None:
        return None
    members = get_args(schema.annotation)
    return {get_args(member.model_fields["kind"].annotation)[0]: member for member in members}


def describe_allowed_values(field: FieldInfo) -> str:
    """Say in words what a field takes; the generated docs print the same words."""
    return _own_description(field) or _describe_type(field.annotation)


def _own_description(note: object) -> str | None:
    """Return the words that a field or an annotation states for itself."""
    extra = note.json_schema_extra if isinstance(note, FieldInfo) else None
    return str(extra["allowed"]) if isinstance(extra, dict) and "allowed" in extra else None


_TYPE_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    date: "a date YYYY-MM-DD",
}


def _describe_type(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is None:
        return _TYPE_WORDS.get(annotation, "a mapping")
    if origin is Literal:
        return ", ".join(str(arg) for arg in args)
    if origin is Annotated:
        words = (description for note in args[1:] if (description := _own_description(note)))
        return next(words, None) or _describe_type(args[0])
    inner = list(dict.fromkeys(_describe_type(arg) for arg in args if arg is not Ellipsis))
    shapes = {tuple: "a list, each {0}", dict: "a mapping, {0} to {0}"}
    return shapes.get(origin, " or ".join(inner)).format(*inner)
