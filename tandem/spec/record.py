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

from tandem.spec.document import LONGEST_SPELLING, Document
from tandem.spec.faults import Fault, SpecError


class Record(BaseModel):
    """A frozen value read from a file; every field has a type and a description."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


R = TypeVar("R", bound=Record)

FILL_IN = "FILL_IN"
"""A value that `tandem new` leaves to whoever owns the file."""


def _whole(value: object) -> object:
    if isinstance(value, bool | float):
        raise PydanticCustomError("literal_error", "not a whole number")
    return value


WHOLE = BeforeValidator(_whole)  # beside Literal[1, ...], which takes true and 1.0 for 1, as Python does


def parse(record: type[R], document: Document, **given: str) -> R:
    """Build `record` from `document`.

    Args:
        record: the schema.
        document: the file's data and lines.
        given: values that the file's place fixes, such as its name; the file itself may not state them.

    Raises:
        SpecError: with one fault per wrong, missing or unknown key.
    """
    stated = [key for key in given if key in document.data]
    faults = [_stated(document, key) for key in stated]
    data = {**document.data, **given}
    try:
        value = record.model_validate_json(json.dumps(data))
    except ValidationError as error:
        entries = [dict(entry) for entry in error.errors(include_url=False)]
        found = [_fault(record, document, entry, given) for entry in entries if not _echo(entry, entries)]
        faults += [replace(fault, change="rename the file") if fault.path in given else fault for fault in found]
        raise SpecError([*faults, *_unfilled_faults(record, document, faults)]) from None
    faults += _unfilled_faults(record, document, faults)
    if faults:
        raise SpecError(faults)
    return value


def _unfilled_faults(record: type[Record], document: Document, faults: Iterable[Fault]) -> list[Fault]:
    """Return a fault for each placeholder that the schema itself takes for a text."""
    told = {fault.path for fault in faults}
    found = []
    for location in _find_placeholders(document.data):
        _, path = _walk(record, location)
        if path not in told:
            found.append(_placeholder_fault(field_at(record, location, document.data), document, path))
    return found


def _find_placeholders(value: object, location: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each placeholder."""
    if value == FILL_IN:
        yield location
    elif isinstance(value, dict | list):
        for step, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _find_placeholders(child, (*location, step))


def _placeholder_fault(field: FieldInfo | None, document: Document, path: str) -> Fault:
    """Return the fault of a placeholder, with what its field takes."""
    return Fault(
        file=document.file, path=path, got=FILL_IN,
        allowed=_of_item(allowed_values(field), path) if field else "your own value",
        change=_advice(field, "fill it in"), line=document.lines.get(path),
    )  # fmt: skip


def _echo(entry: dict[str, Any], entries: list[dict[str, Any]]) -> bool:
    """Return whether a list is only called too short because entries of it are wrong."""
    inside = len(entry["loc"])
    return entry["type"] == "too_short" and any(
        len(other["loc"]) > inside and other["loc"][:inside] == entry["loc"] for other in entries
    )


def _stated(document: Document, key: str) -> Fault:
    return Fault(
        file=document.file, path=key, got=repr(document.data[key]), allowed="no such key",
        change=f"delete it: the file's name is the {key}", line=document.lines.get(key),
    )  # fmt: skip


def _fault(record: type[Record], document: Document, entry: dict[str, Any], given: Iterable[str]) -> Fault:
    location, kind = tuple(entry["loc"]), entry["type"]
    schema, path = _walk(record, location)
    line = document.lines.get(path)
    if kind == "extra_forbidden":
        return _unknown(document, path, schema, given if schema is record else ())
    field = schema if isinstance(schema, FieldInfo) else None
    allowed = allowed_values(field) if field else "see docs"
    if kind in {"missing", "union_tag_not_found"}:
        if kind != "missing":
            path, allowed = _joined(path, "kind"), ", ".join(_tagged(schema) or ())
        parent_line = document.lines.get(path.rpartition(".")[0])
        return Fault(
            file=document.file, path=path, got="nothing", allowed=allowed, change=_advice(field, "add this key"),
            line=parent_line if "." in path or "[" in path else None,
        )  # fmt: skip
    if kind == "union_tag_invalid":
        path = _joined(path, "kind")
        return Fault(
            file=document.file, path=path, got=_spelt(entry["input"].get("kind")),
            allowed=", ".join(_tagged(schema) or ()), change="write one of them", line=document.lines.get(path),
        )  # fmt: skip
    if entry["input"] == FILL_IN:
        return _placeholder_fault(field, document, path)
    return Fault(
        file=document.file, path=path, got=_spelt(entry["input"]), allowed=_constraint(entry, _of_item(allowed, path)),
        change=_advice(field, _verb(entry)), line=line,
    )  # fmt: skip


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _spelt(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_SPELLING else text[:LONGEST_SPELLING] + "..."


def _constraint(entry: dict[str, Any], allowed: str) -> str:
    context = entry.get("ctx", {})
    words = {
        "greater_than": "more than {gt}", "greater_than_equal": "at least {ge}", "less_than": "less than {lt}",
        "less_than_equal": "at most {le}", "too_short": "at least {min_length} entries",
        "too_long": "at most {max_length} entries", "string_too_long": "at most {max_length} characters",
        "string_too_short": "at least {min_length} characters",
    }  # fmt: skip
    template = words.get(entry["type"])
    if template and context.get("min_length") == 1:
        template = template.removesuffix("ies") + "y" if template.endswith("ies") else template.removesuffix("s")
    return f"{allowed}, {template.format(**context)}" if template else allowed


def _of_item(allowed: str, path: str) -> str:
    return allowed.removeprefix("a list, each ") if path.endswith("]") else allowed


def _verb(entry: dict[str, Any]) -> str:
    """Say what to do about a value that only its quotes, or their lack, make wrong."""
    value, kind = entry["input"], entry["type"]
    if kind == "string_type" and isinstance(value, int | float):
        return "put it in quotes"
    if kind in {"int_type", "float_type"} and isinstance(value, str) and value.replace(".", "", 1).isdigit():
        return "remove the quotes"
    return "write an allowed value"


def _advice(field: FieldInfo | None, verb: str) -> str:
    return f"{verb} ({field.description})" if field and field.description else verb


def _unknown(document: Document, path: str, schema: Any, given: Iterable[str]) -> Fault:
    key = path.rpartition(".")[2]
    keys = sorted(schema.model_fields) if isinstance(schema, type) and issubclass(schema, Record) else []
    keys = [name for name in keys if name not in given]
    close = difflib.get_close_matches(key, keys, n=1)
    change = f"did you mean {close[0]!r}?" if close else "delete it"
    return Fault(
        file=document.file, path=path, got=f"the unknown key {key!r}", allowed=", ".join(keys),
        change=change, line=document.lines.get(path),
    )  # fmt: skip


def _walk(record: type[Record], location: tuple[Any, ...]) -> tuple[Any, str]:
    """Follow a pydantic location; return the field (or the record, for an unknown key) and the key path."""
    schema: Any = record
    path = ""
    for step in location:
        if isinstance(step, int):
            path = f"{path}[{step}]"
            continue
        current = _record_of(schema)
        tagged = _tagged(schema)
        if tagged is not None and step in tagged:
            schema = tagged[step]
            continue
        if step == "[key]":
            continue
        path = _joined(path, step)
        if current is None or step not in current.model_fields:
            schema = current if current is not None else schema
            continue
        schema = current.model_fields[step]
    return schema, path


def field_at(record: type[Record], steps: Iterable[str | int], data: object) -> FieldInfo | None:
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
        data = _child_of(data, step)
        schema, _ = _walk(record, tuple(location))
        kind = data.get("kind") if isinstance(data, dict) and _tagged(schema) else None
        if isinstance(kind, str):
            location.append(kind)
    return schema if isinstance(schema, FieldInfo) else None


def _child_of(data: object, step: str | int) -> object:
    """Return what a key or an index leads to; None where there is nothing."""
    if isinstance(data, list) and isinstance(step, int) and step < len(data):
        return data[step]
    return data.get(step) if isinstance(data, dict) else None


def _record_of(schema: Any) -> type[Record] | None:
    """Return the record type inside a field, an optional, a list or a mapping; None for a leaf."""
    if isinstance(schema, FieldInfo):
        schema = schema.annotation
    if isinstance(schema, type) and issubclass(schema, Record):
        return schema
    return next((found for arg in get_args(schema) if (found := _record_of(arg)) is not None), None)


def _tagged(schema: Any) -> dict[str, type[Record]] | None:
    """Return kind -> record of a union told apart by `kind`."""
    if not isinstance(schema, FieldInfo) or schema.discriminator is None:
        return None
    members = get_args(schema.annotation)
    return {get_args(member.model_fields["kind"].annotation)[0]: member for member in members}


def allowed_values(field: FieldInfo) -> str:
    """Say in words what a field takes; the generated docs print the same words."""
    return _said(field) or _words(field.annotation)


def _said(note: object) -> str | None:
    """Return the words that a field or an annotation states for itself."""
    extra = note.json_schema_extra if isinstance(note, FieldInfo) else None
    return str(extra["allowed"]) if isinstance(extra, dict) and "allowed" in extra else None


_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    date: "a date YYYY-MM-DD",
}


def _words(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is None:
        return _WORDS.get(annotation, "a mapping")
    if origin is Literal:
        return ", ".join(str(arg) for arg in args)
    if origin is Annotated:
        return next((said for note in args[1:] if (said := _said(note))), None) or _words(args[0])
    inner = list(dict.fromkeys(_words(arg) for arg in args if arg is not Ellipsis))
    shapes = {tuple: "a list, each {0}", dict: "a mapping, {0} to {0}"}
    return shapes.get(origin, " or ".join(inner)).format(*inner)
