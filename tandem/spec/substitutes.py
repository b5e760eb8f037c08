"""Legal values in the place of those that a file spoils, so that the rest of it can be judged too.

Invariant: two files come of one, which differ in every spoilt leaf as far as its type allows: what is true of both does
not depend on the leaf. Neither is ever built; a file for which no two can be made is judged in form alone.
"""

from __future__ import annotations

import copy
import re
import types
from collections.abc import Iterable, Iterator
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
_MIN_SAMPLE_CHARACTERS = 9  # letters; a shorter sample may be a word of any sentence


def has_substitute(text: str) -> bool:
    """Return whether a text names a value that no file holds."""
    return any(
        sample in text for pair in (*_SAMPLES, _DATES) for sample in pair if len(sample) >= _MIN_SAMPLE_CHARACTERS
    )


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
    first_record = _repair_record(record, document, tuple(faults), name, 0)
    second_record = _repair_record(record, document, tuple(faults), name, 1)
    return (first_record, second_record) if first_record is not None and second_record is not None else None


def _repair_record(
    record: type[R], document: YamlDocument, faults: tuple[SpecFault, ...], name: str, choice_index: int
) -> R | None:
    """Mend every fault until the record is legal; `choice_index` says with the first or the second legal value."""
    data = copy.deepcopy(document.data)
    for _ in range(MAX_REPAIRS):
        if not all(_repair_value(record, data, fault, choice_index) for fault in faults):
            return None
        try:
            return parse_record(record, replace(document, data=data), name=name)
        except SpecError as error:
            faults = error.faults
    return None


def _repair_value(record: type[SpecRecord], data: dict[str, Any], fault: SpecFault, choice_index: int) -> bool:
    """Put a legal value where a fault is, or take an unknown key away; return whether there was a way.

    Args:
        record: the schema.
        data: the file's data, which is changed.
        fault: of its form.
        choice_index: 0 for the nearest legal value, 1 for another.
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
    if not choices:
        return False
    parent[last_step] = choices[choice_index % len(choices)]
    return True


def _list_choices(field: FieldInfo, value: object, *, item: bool) -> list[Any]:
    """Return legal values of a field, or of an item of its list; its default where its type names none."""
    choices = list(_yield_legal_values(field.annotation, field.metadata, value))
    if item:
        return [entry for choice in choices if isinstance(choice, list) for entry in choice]
    if choices or field.is_required():
        return choices
    default = field.get_default(call_default_factory=True)
    if isinstance(default, SpecRecord):
        return [default.model_dump(mode="json")]
    return [list(default) if isinstance(default, tuple) else default]


def _yield_legal_values(annotation: Any, metadata: Iterable[Any], value: Any) -> Iterator[Any]:
    """Yield two legal values of a type, that nearest to the given one first.

    Args:
        annotation: the type, as the field declares it.
        metadata: bounds and patterns that stand beside it.
        value: the spoilt value.
    """
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        notes = [part for note in args[1:] for part in (note.metadata if isinstance(note, FieldInfo) else [note])]
        yield from _yield_legal_values(args[0], [*metadata, *notes], value)
    elif origin in {Union, types.UnionType}:
        kinds = [part for part in args if part is not type(None)]
        if len(kinds) == 1:
            yield from _yield_legal_values(kinds[0], metadata, value)
    elif origin is Literal:
        yield from _nearest_words(args, value)
    elif origin is tuple:
        yield from ([item] for item in _yield_legal_values(args[0], [], value))
    elif annotation in {int, float}:
        yield from _nearest_numbers(metadata, value)
    elif annotation is bool:
        yield from (False, True)
    elif annotation is date:
        yield from _DATES
    elif annotation is str or origin is None:
        pattern = next((note.pattern for note in metadata if getattr(note, "pattern", None)), None)
        fitting = [pair for pair in _SAMPLES if pattern and all(re.search(pattern, text) for text in pair)]
        yield from fitting[0] if fitting else ()


def _nearest_words(args: tuple[Any, ...], value: Any) -> Iterator[Any]:
    """Yield two of the allowed words: the nearest numbers, or the first and the last."""
    numbers = [word for word in args if isinstance(word, int)]
    if numbers and isinstance(value, int | float):
        nearest = sorted(numbers, key=lambda number: (abs(number - value), number))
        yield from nearest[:2]
    else:
        yield from (args[0], args[-1])


def _nearest_numbers(metadata: Iterable[Any], value: Any) -> Iterator[Any]:
    """Yield the bounds of a number, the nearer one first; 1 and 10000 where it has none."""
    lowest: Any = 1
    highest: Any = 10_000
    for note in metadata:
        lowest = getattr(note, "ge", getattr(note, "gt", None) and note.gt + 1) or lowest
        highest = getattr(note, "le", None) or highest
    if isinstance(value, int | float) and not isinstance(value, bool) and value > highest:
        yield from (highest, lowest)
    else:
        yield from (lowest, highest)
