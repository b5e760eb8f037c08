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

from tandem.spec.document import Document
from tandem.spec.faults import Fault, SpecError
from tandem.spec.record import Record, field_at, parse

R = TypeVar("R", bound=Record)

ROUNDS = 4  # a repaired mapping may show a fault that its own fault had hidden
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
_SHORTEST_NAMED = 9  # letters; a shorter sample may be a word of any sentence


def names_stand_in(text: str) -> bool:
    """Return whether a text names a value that no file holds."""
    return any(sample in text for pair in (*_SAMPLES, _DATES) for sample in pair if len(sample) >= _SHORTEST_NAMED)


def repaired(record: type[R], document: Document, faults: Iterable[Fault], name: str) -> tuple[R, R] | None:
    """Return the file twice, with legal values in the place of every faulty one; None where they are not known.

    Args:
        record: the schema.
        document: the file's data.
        faults: of its form.
        name: the file's name.
    """
    first = _repair_record(record, document, tuple(faults), name, 0)
    second = _repair_record(record, document, tuple(faults), name, 1)
    return (first, second) if first is not None and second is not None else None


def _repair_record(record: type[R], document: Document, faults: tuple[Fault, ...], name: str, which: int) -> R | None:
    """Mend every fault until the record is legal; `which` says with the first or the second legal value."""
    data = copy.deepcopy(document.data)
    for _ in range(ROUNDS):
        if not all(_mend_leaf(record, data, fault, which) for fault in faults):
            return None
        try:
            return parse(record, replace(document, data=data), name=name)
        except SpecError as error:
            faults = error.faults
    return None


def _mend_leaf(record: type[Record], data: dict[str, Any], fault: Fault, which: int) -> bool:
    """Put a legal value where a fault is, or take an unknown key away; return whether there was a way.

    Args:
        record: the schema.
        data: the file's data, which is changed.
        fault: of its form.
        which: 0 for the nearest legal value, 1 for another.
    """
    steps: list[Any] = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", fault.path)]
    place: Any = data
    try:
        for step in steps[:-1]:
            place = place[step]
        last = steps[-1]
        given = place.get(last) if isinstance(place, dict) else place[last]
    except (KeyError, IndexError, TypeError):
        return False
    if fault.got.startswith("the unknown key") or fault.allowed == "no such key":
        return place.pop(last, None) is not None
    field = field_at(record, steps, data)
    choices = _list_choices(field, given, item=isinstance(last, int)) if field is not None else []
    if not choices:
        return False
    place[last] = choices[which % len(choices)]
    return True


def _list_choices(field: FieldInfo, given: object, *, item: bool) -> list[Any]:
    """Return legal values of a field, or of an item of its list; its default where its type names none."""
    choices = list(_yield_legal(field.annotation, field.metadata, given))
    if item:
        return [entry for choice in choices if isinstance(choice, list) for entry in choice]
    if choices or field.is_required():
        return choices
    default = field.get_default(call_default_factory=True)
    if isinstance(default, Record):
        return [default.model_dump(mode="json")]
    return [list(default) if isinstance(default, tuple) else default]


def _yield_legal(annotation: Any, metadata: Iterable[Any], given: Any) -> Iterator[Any]:
    """Yield two legal values of a type, that nearest to the given one first.

    Args:
        annotation: the type, as the field declares it.
        metadata: bounds and patterns that stand beside it.
        given: the spoilt value.
    """
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        notes = [part for note in args[1:] for part in (note.metadata if isinstance(note, FieldInfo) else [note])]
        yield from _yield_legal(args[0], [*metadata, *notes], given)
    elif origin in {Union, types.UnionType}:
        kinds = [part for part in args if part is not type(None)]
        if len(kinds) == 1:
            yield from _yield_legal(kinds[0], metadata, given)
    elif origin is Literal:
        yield from _nearest_words(args, given)
    elif origin is tuple:
        yield from ([item] for item in _yield_legal(args[0], [], given))
    elif annotation in {int, float}:
        yield from _nearest_numbers(metadata, given)
    elif annotation is bool:
        yield from (False, True)
    elif annotation is date:
        yield from _DATES
    elif annotation is str or origin is None:
        pattern = next((note.pattern for note in metadata if getattr(note, "pattern", None)), None)
        fitting = [pair for pair in _SAMPLES if pattern and all(re.search(pattern, text) for text in pair)]
        yield from fitting[0] if fitting else ()


def _nearest_words(args: tuple[Any, ...], given: Any) -> Iterator[Any]:
    """Yield two of the allowed words: the nearest numbers, or the first and the last."""
    numbers = [word for word in args if isinstance(word, int)]
    if numbers and isinstance(given, int | float):
        nearest = sorted(numbers, key=lambda number: (abs(number - given), number))
        yield from nearest[:2]
    else:
        yield from (args[0], args[-1])


def _nearest_numbers(metadata: Iterable[Any], given: Any) -> Iterator[Any]:
    """Yield the bounds of a number, the nearer one first; 1 and 10000 where it has none."""
    least: Any = 1
    most: Any = 10_000
    for note in metadata:
        least = getattr(note, "ge", getattr(note, "gt", None) and note.gt + 1) or least
        most = getattr(note, "le", None) or most
    if isinstance(given, int | float) and not isinstance(given, bool) and given > most:
        yield from (most, least)
    else:
        yield from (least, most)
