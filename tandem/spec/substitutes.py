"""Legal values in the place of those that a file spoils, so that the rest of it can be judged too.

Invariant: two files come of one, which differ in every spoilt leaf as far as its type allows: what is true of both does
not depend on the leaf. Neither is ever built; a file for which no two can be made is judged in form alone.
"""

from __future__ import annotations

import copy
import re
import types
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from tandem.spec.document import YamlDocument
from tandem.spec.faults import SpecError, SpecFault
from tandem.spec.record import SpecRecord, find_field, parse_record

R = TypeVar("R", bound=SpecRecord)

MAX_REPAIRS = 4  # a repaired mapping may show a fault that its own fault had hidden
_SAMPLES: tuple[tuple[str, str], ...] = (
    ("000000000001", "000000000002"),
    ("arn:aws:iam::000000000001:role/a", "arn:aws:iam::000000000002:role/b"),
    ("vpc-00000001", "vpc-00000002"),
    ("subnet-00000001", "subnet-00000002"),
    ("198.18.0.0/16", "198.19.0.0/20"),
    ("zzstand1-az1", "zzstand2-az2"),
    ("zz-stand-1", "zz-stand-2"),
    ("cr-00000000000000001", "cr-00000000000000002"),
    ("zz1.standin spot", "zz2.standin on-demand"),
    ("1999-12-01T11:30:00Z", "1999-12-02T11:30:00Z"),
    ("stand-in-a", "stand-in-b"),
    ("stand/in-a", "stand/in-b"),
    ("https://a.invalid", "https://b.invalid"),
    ("1.36", "1.37"),
)
_DATES = ("2000-01-01", "2000-01-02")
_PLAIN_VALUES: dict[Any, list[Any]] = {bool: [False, True], date: list(_DATES)}
_MIN_SAMPLE_CHARACTERS = 9  # letters; a shorter sample may be a word of any sentence


def has_substitute(text: str) -> bool:
    """Return whether a text names a value that no file holds."""
    samples = (sample for pair in (*_SAMPLES, _DATES) for sample in pair)
    return any(sample in text for sample in samples if len(sample) >= _MIN_SAMPLE_CHARACTERS)


def build_substitutes(
    record: type[R], document: YamlDocument, faults: Iterable[SpecFault], name: str
) -> tuple[R, R] | None:
    """Return the file twice, with legal values in the place of every faulty one; None where they are not known.

    Args:
        record: the schema.
        document: the file's data.
        faults: of its form.
        name: the file's name.
    """
    first, second = (_repair_record(record, document, tuple(faults), name, choice) for choice in (0, 1))
    return (first, second) if first is not None and second is not None else None


def _repair_record(
    record: type[R], document: YamlDocument, faults: tuple[SpecFault, ...], name: str, choice: int
) -> R | None:
    """Mend every fault until the record is legal; `choice` says with the first or the second legal value."""
    data = copy.deepcopy(document.data)
    for _ in range(MAX_REPAIRS):
        if not all(_repair_value(record, data, fault, choice) for fault in faults):
            return None
        try:
            return parse_record(record, replace(document, data=data), name=name)
        except SpecError as error:
            faults = error.faults
    return None


def _repair_value(record: type[SpecRecord], data: dict[str, Any], fault: SpecFault, choice: int) -> bool:
    """Put a legal value where a fault is, or take an unknown key away; return whether there was a way.

    Args:
        record: the schema.
        data: the file's data, which is changed.
        fault: of its form.
        choice: 0 for the nearest legal value, 1 for another.
    """
    steps: list[Any] = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", fault.path)]
    parent: Any = data
    try:
        for step in steps[:-1]:
            parent = parent[step]
        last_step = steps[-1]
        value = parent.get(last_step) if isinstance(parent, dict) else parent[last_step]
    except (KeyError, IndexError, TypeError):
        return False
    if fault.got.startswith("the unknown key") or fault.allowed == "no such key":
        return parent.pop(last_step, None) is not None
    field = find_field(record, steps, data)
    choices = _list_choices(field, value, item=isinstance(last_step, int)) if field is not None else []
    if choices:
        parent[last_step] = choices[choice % len(choices)]
    return bool(choices)


def _list_choices(field: FieldInfo, value: object, *, item: bool) -> list[Any]:
    """Return legal values of a field, or of an item of its list; its default where its type names none."""
    choices = _list_legal_values(field.annotation, field.metadata, value)
    if item:
        return [entry for choice in choices if isinstance(choice, list) for entry in choice]
    if choices or field.is_required():
        return choices
    default = field.get_default(call_default_factory=True)
    if isinstance(default, SpecRecord):
        return [default.model_dump(mode="json")]
    return [list(default) if isinstance(default, tuple) else default]


def _list_legal_values(annotation: Any, metadata: Iterable[Any], value: Any) -> list[Any]:
    """Return two legal values of a type, that nearest to the given one first; none of a type without a known one.

    Args:
        annotation: the type, as the field declares it.
        metadata: bounds and patterns that stand beside it.
        value: the spoilt value.
    """
    origin, args = get_origin(annotation), get_args(annotation)
    kinds = [part for part in args if part is not type(None)]
    values: list[Any] = []
    if origin is Annotated:
        notes = [part for note in args[1:] for part in (note.metadata if isinstance(note, FieldInfo) else [note])]
        values = _list_legal_values(args[0], [*metadata, *notes], value)
    elif origin in {Union, types.UnionType}:
        values = _list_legal_values(kinds[0], metadata, value) if len(kinds) == 1 else []
    elif origin is Literal and isinstance(args[0], int) and isinstance(value, int | float):
        values = sorted(args, key=lambda number: (abs(number - value), number))[:2]
    elif origin is Literal:
        values = [args[0], args[-1]]
    elif origin is tuple:
        values = [[item] for item in _list_legal_values(args[0], [], value)]
    elif annotation in {int, float}:
        values = _list_bounds(metadata, value)
    elif annotation in _PLAIN_VALUES:
        values = _PLAIN_VALUES[annotation]
    else:
        pattern = next((note.pattern for note in metadata if getattr(note, "pattern", None)), None)
        fitting = [pair for pair in _SAMPLES if pattern and all(re.search(pattern, text) for text in pair)]
        values = list(fitting[0]) if fitting else []
    return values


def _list_bounds(metadata: Iterable[Any], value: Any) -> list[Any]:
    """Return the bounds of a number, the nearer one first; 1 and 10000 where it has none."""
    lowest: Any = 1
    highest: Any = 10_000
    for note in metadata:
        lowest = getattr(note, "ge", getattr(note, "gt", None) and note.gt + 1) or lowest
        highest = getattr(note, "le", None) or highest
    is_above = isinstance(value, int | float) and not isinstance(value, bool) and value > highest
    return [highest, lowest] if is_above else [lowest, highest]
