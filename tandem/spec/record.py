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


INTEGER_ONLY = BeforeValidator(
    _refuse_non_integer
)  # beside Literal[1, ...], which takes true and 1.0 for 1, as Python does


def parse_record(record: type[R], document: YamlDocument, **fixed_values: str) -> R:
    """Build `record` from `document`.

    Args:
        record: the schema.
        document: the file's data and lines.
        fixed_values: values that the file's place fixes, such as its name; the file itself may not state them.

    Raises:
        SpecError: with one fault per wrong, missing or unknown key.
    """
    forbidden_keys = [key for key in fixed_values if key in document.data]
    faults = [_forbidden_key_fault(document, key) for key in forbidden_keys]
    data = {**document.data, **fixed_values}
    try:
        value = record.model_validate_json(json.dumps(data))
    except ValidationError as error:
        entries = [dict(entry) for entry in error.errors(include_url=False)]
        form_faults = [
            _build_fault(record, document, entry, fixed_values)
            for entry in entries
            if not _is_consequence(entry, entries)
        ]
        faults += [
            replace(fault, change="rename the file") if fault.path in fixed_values else fault for fault in form_faults
        ]
        raise SpecError([*faults, *_find_placeholder_faults(record, document, faults)]) from None
    faults += _find_placeholder_faults(record, document, faults)
    if faults:
        raise SpecError(faults)
    return value


def _find_placeholder_faults(
    record: type[SpecRecord], document: YamlDocument, faults: Iterable[SpecFault]
) -> list[SpecFault]:
    """Return a fault for each placeholder that the schema itself takes for a text."""
    fault_paths = {fault.path for fault in faults}
    placeholder_faults = []
    for location in _find_placeholders(document.data):
        _, path = _resolve_location(record, location)
        if path not in fault_paths:
            placeholder_faults.append(_placeholder_fault(find_field(record, location, document.data), document, path))
    return placeholder_faults


def _find_placeholders(value: object, location: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each placeholder."""
    if value == FILL_IN:
        yield location
    elif isinstance(value, dict | list):
        for step, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _find_placeholders(child, (*location, step))


def _placeholder_fault(field: FieldInfo | None, document: YamlDocument, path: str) -> SpecFault:
    """Return the fault of a placeholder, with what its field takes."""
    return SpecFault(
        file=document.file, path=path, got=FILL_IN,
        allowed=_item_text(describe_allowed_values(field), path) if field else "your own value",
        change=_append_description(field, "fill it in"), line=document.lines.get(path),
    )  # fmt: skip


def _is_consequence(entry: dict[str, Any], entries: list[dict[str, Any]]) -> bool:
    """Return whether a list is only called too short because entries of it are wrong."""
    depth = len(entry["loc"])
    return entry["type"] == "too_short" and any(
        len(nested_entry["loc"]) > depth and nested_entry["loc"][:depth] == entry["loc"] for nested_entry in entries
    )


def _forbidden_key_fault(document: YamlDocument, key: str) -> SpecFault:
    return SpecFault(
        file=document.file, path=key, got=repr(document.data[key]), allowed="no such key",
        change=f"delete it: the file's name is the {key}", line=document.lines.get(key),
    )  # fmt: skip


def _build_fault(
    record: type[SpecRecord], document: YamlDocument, entry: dict[str, Any], fixed_keys: Iterable[str]
) -> SpecFault:
    kind = entry["type"]
    schema, path = _resolve_location(record, tuple(entry["loc"]))
    if kind == "extra_forbidden":
        return _unknown_key_fault(document, path, schema, fixed_keys if schema is record else ())
    field = schema if isinstance(schema, FieldInfo) else None
    if entry["input"] == FILL_IN:
        return _placeholder_fault(field, document, path)
    allowed_text = describe_allowed_values(field) if field else "see docs"
    if kind in {"union_tag_not_found", "union_tag_invalid"}:
        path, allowed_text = _join_path(path, "kind"), ", ".join(_records_by_kind(schema) or ())
    line = document.lines.get(path)
    if kind in {"missing", "union_tag_not_found"}:
        got, change = "nothing", _append_description(field, "add this key")
        line = document.lines.get(path.rpartition(".")[0]) if "." in path or "[" in path else None
    elif kind == "union_tag_invalid":
        got, change = _spell_value(entry["input"].get("kind")), "write one of them"
    else:
        got, change = _spell_value(entry["input"]), _append_description(field, _suggest_change(entry))
        allowed_text = _append_limit(entry, _item_text(allowed_text, path))
    return SpecFault(file=document.file, path=path, got=got, allowed=allowed_text, change=change, line=line)


def _join_path(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _spell_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_SPELLING else text[:LONGEST_SPELLING] + "..."


def _append_limit(entry: dict[str, Any], allowed_text: str) -> str:
    context = entry.get("ctx", {})
    templates = {
        "greater_than": "more than {gt}", "greater_than_equal": "at least {ge}", "less_than": "less than {lt}",
        "less_than_equal": "at most {le}", "too_short": "at least {min_length} entries",
        "too_long": "at most {max_length} entries", "string_too_long": "at most {max_length} characters",
        "string_too_short": "at least {min_length} characters",
    }  # fmt: skip
    template = templates.get(entry["type"])
    if template and context.get("min_length") == 1:
        template = template.removesuffix("ies") + "y" if template.endswith("ies") else template.removesuffix("s")
    return f"{allowed_text}, {template.format(**context)}" if template else allowed_text


def _item_text(allowed_text: str, path: str) -> str:
    return allowed_text.removeprefix("a list, each ") if path.endswith("]") else allowed_text


def _suggest_change(entry: dict[str, Any]) -> str:
    """Say what to do about a value that only its quotes, or their lack, make wrong."""
    value, kind = entry["input"], entry["type"]
    if kind == "string_type" and isinstance(value, int | float):
        return "put it in quotes"
    if kind in {"int_type", "float_type"} and isinstance(value, str) and value.replace(".", "", 1).isdigit():
        return "remove the quotes"
    return "write an allowed value"


def _append_description(field: FieldInfo | None, advice: str) -> str:
    return f"{advice} ({field.description})" if field and field.description else advice


def _unknown_key_fault(document: YamlDocument, path: str, schema: Any, fixed_keys: Iterable[str]) -> SpecFault:
    key = path.rpartition(".")[2]
    keys = sorted(schema.model_fields) if isinstance(schema, type) and issubclass(schema, SpecRecord) else []
    keys = [name for name in keys if name not in fixed_keys]
    close_keys = difflib.get_close_matches(key, keys, n=1)
    change = f"did you mean {close_keys[0]!r}?" if close_keys else "delete it"
    return SpecFault(
        file=document.file, path=path, got=f"the unknown key {key!r}", allowed=", ".join(keys),
        change=change, line=document.lines.get(path),
    )  # fmt: skip


def _resolve_location(record: type[SpecRecord], location: tuple[Any, ...]) -> tuple[Any, str]:
    """Follow a pydantic location; return the field (or the record, for an unknown key) and the key path."""
    schema: Any = record
    path = ""
    for step in location:
        if isinstance(step, int):
            path = f"{path}[{step}]"
            continue
        record_type = _find_record_type(schema)
        records_by_kind = _records_by_kind(schema)
        if records_by_kind is not None and step in records_by_kind:
            schema = records_by_kind[step]
            continue
        if step == "[key]":
            continue
        path = _join_path(path, step)
        if record_type is None or step not in record_type.model_fields:
            schema = record_type if record_type is not None else schema
            continue
        schema = record_type.model_fields[step]
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
        data = _child_value(data, step)
        schema, _ = _resolve_location(record, tuple(location))
        kind = data.get("kind") if isinstance(data, dict) and _records_by_kind(schema) else None
        if isinstance(kind, str):
            location.append(kind)
    return schema if isinstance(schema, FieldInfo) else None


def _child_value(data: object, step: str | int) -> object:
    """Return what a key or an index leads to; None where there is nothing."""
    if isinstance(data, list) and isinstance(step, int) and step < len(data):
        return data[step]
    return data.get(step) if isinstance(data, dict) else None


def _find_record_type(schema: Any) -> type[SpecRecord] | None:
    """Return the record type inside a field, an optional, a list or a mapping; None for a leaf."""
    if isinstance(schema, FieldInfo):
        schema = schema.annotation
    if isinstance(schema, type) and issubclass(schema, SpecRecord):
        return schema
    return next((record_type for arg in get_args(schema) if (record_type := _find_record_type(arg)) is not None), None)


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
        return next(
            (description for note in args[1:] if (description := _own_description(note))), None
        ) or _describe_type(args[0])
    inner = list(dict.fromkeys(_describe_type(arg) for arg in args if arg is not Ellipsis))
    shapes = {tuple: "a list, each {0}", dict: "a mapping, {0} to {0}"}
    return shapes.get(origin, " or ".join(inner)).format(*inner)
