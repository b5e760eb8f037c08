"""The border: plain data becomes frozen, typed values, or faults in the operator's words.

Invariant: unknown keys, wrong types and missing keys are refused with the key path, the value got
and the values allowed; inside a record nothing is checked again.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    create_model,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from tandem.declarations.document import LONGEST_SPELLING, YamlDocument
from tandem.declarations.faults import SpecError, SpecFault

FILL_IN = "FILL_IN"
"""A value that `tandem new` leaves to the owner of the file."""

# in a fault's location, as pydantic's own for a key of a mapping: each stands for no key of a file
NAME_TAG = "[name]"
FILE_TAG = "[file]"
_KEY_TAGS = ("[key]", NAME_TAG, FILE_TAG)

ADVICE = "advice"
"""Type of a refusal whose message says what to write instead."""


class UnknownValueError(Exception):
    """A value is not known: another fault has refused it."""


class SpecRecord(BaseModel):
    """A frozen value read from a file; every field has a type and a description."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _refuse_placeholder(cls, value: object) -> object:
        if value == FILL_IN:
            raise PydanticCustomError("placeholder", "a placeholder")
        return value

    if not TYPE_CHECKING:  # a checker knows the fields

        def __getattr__(self, name: str) -> Any:
            """Refuse to guess a field that `build_partial_record` left out."""
            if name in type(self).model_fields:
                raise UnknownValueError(name)
            return super().__getattr__(name)


R = TypeVar("R", bound=SpecRecord)


def _refuse_non_integer(value: object) -> object:
    if isinstance(value, bool | float):
        raise PydanticCustomError("literal_error", "not a whole number")
    return value


# next to Literal[1, ...], which takes true and 1.0 for 1, as Python does
INTEGER_ONLY = BeforeValidator(_refuse_non_integer)


def parse_record(record: type[R], document: YamlDocument, **fixed_values: str) -> R:
    """Build `record` from `document`.

    Args:
        record: the schema.
        document: the file's data and lines.
        fixed_values: values that the file's place fixes, such as its name; the file itself may not
            state them.

    Raises:
        SpecError: with one fault per wrong, missing or unknown key.
    """
    faults = []
    for key in fixed_values.keys() & document.data.keys():
        got = repr(document.data[key])
        change = f"delete it: the file's name is the {key}"
        faults.append(document.build_fault(key, got, "no such key", change))
    try:
        value = record.model_validate_json(json.dumps({**document.data, **fixed_values}))
    except ValidationError as error:
        entries: list[dict[str, Any]] = [dict(entry) for entry in error.errors(include_url=False)]
        for entry in entries:
            place = tuple(entry["loc"])
            has_inner = any(
                inner["loc"][: len(place)] == place and inner is not entry for inner in entries
            )
            # a list may only be called too short because entries of it are wrong
            if not (entry["type"] == "too_short" and has_inner):
                faults.append(_build_fault(record, document, entry, fixed_values))
        raise SpecError(faults) from None
    if faults:
        raise SpecError(faults)
    return value


def build_partial_record(record: type[R], data: dict[str, Any]) -> R:
    """Build a record of what is legal in `data`; another field raises an UnknownValueError."""
    values: dict[str, Any] = {}
    for key, field in record.model_fields.items():
        fields: dict[str, Any] = {key: (field.annotation, field)}
        single_field_record = create_model("SingleFieldRecord", __base__=SpecRecord, **fields)
        own_data = {key: data[key]} if key in data else {}
        try:
            value = single_field_record.model_validate_json(json.dumps(own_data))
            values[key] = getattr(value, key)
        except ValidationError:
            parts = list(_build_parts(field, data.get(key)))
            if parts:
                is_list = get_origin(field.annotation) is tuple
                values[key] = tuple(parts) if is_list else parts[0]
    partial = cast(R, record.model_construct(None, **values))
    for key in record.model_fields.keys() - values.keys():
        partial.__dict__.pop(key, None)  # not even its default is true
    return partial


def _build_parts(field: FieldInfo, content: Any) -> Iterator[SpecRecord]:
    """Yield the partial records that a field's content has; none where it is of another form."""
    is_list = isinstance(content, list)
    if is_list != (get_origin(field.annotation) is tuple):
        return
    items = content if is_list else [content]
    if not all(isinstance(item, dict) for item in items):
        return
    for item in items:
        part_type = _find_record_type(field, item.get("kind"))
        if part_type:
            yield build_partial_record(part_type, item)


def _build_fault(
    record: type[SpecRecord],
    document: YamlDocument,
    entry: dict[str, Any],
    fixed_keys: Iterable[str],
) -> SpecFault:
    kind = entry["type"]
    value = entry["input"]
    schema, path = _resolve_location(record, tuple(entry["loc"]))
    if kind == "extra_forbidden":
        key = path.rpartition(".")[2]
        hidden_keys = set(fixed_keys) if schema is record else set()
        keys = sorted(set(list_record_types(schema)[0].model_fields) - hidden_keys)
        close_keys = difflib.get_close_matches(key, keys, n=1)
        change = f"did you mean {close_keys[0]!r}?" if close_keys else "delete it"
        return document.build_fault(path, f"the unknown key {key!r}", ", ".join(keys), change)
    allowed = describe_allowed_values(schema)
    note = f" ({schema.description})" if schema.description else ""
    if path.endswith("]"):
        allowed = _describe_type(schema.annotation).removeprefix("a list, each ")
    if kind.startswith("union_tag"):
        path = _join_path(path, "kind")
        allowed = ", ".join(_records_by_kind(schema))
        value = value.get("kind")
    if kind in {"missing", "union_tag_not_found"}:
        return document.build_fault(path, "", allowed, f"add this key{note}")
    if value == FILL_IN:
        return document.build_fault(path, FILL_IN, allowed, f"fill it in{note}")
    change = entry["msg"] if kind == ADVICE else f"{_suggest_change(value, kind)}{note}"
    return document.build_fault(path, _spell_value(value), allowed, change)


def _join_path(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _spell_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= LONGEST_SPELLING:
        return text
    return text[:LONGEST_SPELLING] + "..."


def _suggest_change(value: object, kind: str) -> str:
    """Say what to do about a value that only its quotes, or their lack, make wrong."""
    if kind == "string_type" and isinstance(value, int | float):
        return "put it in quotes"
    if kind in {"int_type", "float_type"} and isinstance(value, str):
        return "write a decimal number, without quotes"
    return "write an allowed value"


def _resolve_location(record: type[SpecRecord], location: tuple[Any, ...]) -> tuple[Any, str]:
    """Follow a pydantic location; return the field (the record, if unknown) and the key path."""
    schema: Any = record
    path = ""
    for step in location:
        if isinstance(step, int):
            path = f"{path}[{step}]"
        elif step in _records_by_kind(schema):
            schema = _records_by_kind(schema)[step]
        elif step not in _KEY_TAGS:
            path = _join_path(path, step)
            record_types = list_record_types(schema)
            if record_types:
                schema = record_types[0].model_fields.get(step, schema)
    return schema, path


def list_record_types(schema: Any) -> list[type[SpecRecord]]:
    """Return the record types inside a field, an optional, a list or a mapping; none for a leaf."""
    if isinstance(schema, FieldInfo):
        schema = schema.annotation
    if isinstance(schema, type) and issubclass(schema, SpecRecord):
        return [schema]
    record_types = []
    for argument in get_args(schema):
        record_types += list_record_types(argument)
    return record_types


def _records_by_kind(schema: Any) -> dict[str, type[SpecRecord]]:
    """Return kind -> record of a union that `kind` discriminates; nothing of another schema."""
    is_union = isinstance(schema, FieldInfo) and schema.discriminator is not None
    members = get_args(schema.annotation) if is_union else ()
    return {get_args(member.model_fields["kind"].annotation)[0]: member for member in members}


def _find_record_type(field: FieldInfo, kind: object) -> type[SpecRecord] | None:
    """Return the record type of a field's content; None of a leaf or a kind not the field's."""
    kinds = _records_by_kind(field)
    if kinds:
        return kinds.get(str(kind))
    return next(iter(list_record_types(field)), None)


_LIMITS = {
    "gt": "above",
    "ge": "from",
    "lt": "below",
    "le": "to",
    "min_length": "at least",
    "max_length": "at most",
}


def describe_allowed_values(field: FieldInfo, *, with_null: bool = True) -> str:
    """Say in words what a field takes, and its limits; the generated docs print the same.

    Args:
        field: of a record.
        with_null: whether null may be written, where the field takes it.
    """
    limits = []
    for note in field.metadata:
        for name, words in _LIMITS.items():
            limit = getattr(note, name, None)
            if limit is not None:
                limits.append(f"{words} {limit}")
    allowed = _own_description(field) or _describe_type(field.annotation, with_null=with_null)
    if not limits:
        return allowed
    return f"{allowed}, {' '.join(limits)}"


def _own_description(note: object) -> str | None:
    """Return the words that a field or an annotation states for itself."""
    extra = note.json_schema_extra if isinstance(note, FieldInfo) else None
    if isinstance(extra, dict) and "allowed" in extra:
        return str(extra["allowed"])
    return None


_TYPE_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    date: "a date YYYY-MM-DD",
}


def _describe_type(annotation: Any, *, with_null: bool = True) -> str:
    origin = get_origin(annotation)
    args = [arg for arg in get_args(annotation) if with_null or arg is not type(None)]
    if origin is None:
        return _TYPE_WORDS.get(annotation, "a mapping")
    if origin is Literal:
        return ", ".join(str(arg) for arg in args)
    if origin is Annotated:
        words = filter(None, map(_own_description, args[1:]))
        return next(words, None) or _describe_type(args[0])
    inner = list(dict.fromkeys(_describe_type(arg) for arg in args if arg is not Ellipsis))
    shapes = {tuple: "a list, each {0}", dict: "a mapping, {0} to {0}"}
    return shapes.get(origin, " or ".join(inner)).format(*inner)
