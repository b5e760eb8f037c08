"""From figures to batches: what one PutMetricData sends.

Invariant: the same data give the same batches, whatever their order; a batch keeps to CloudWatch's limits, and every
minute of a series lies in one batch of its round, but for one that no batch can hold. A batch holds one prompt class,
so that a class that CloudWatch refuses costs no other.

Values are rounded to three significant digits, 0.5 % at most, so that equal ones are sent once with their count.
Sources of the limits: the API reference of PutMetricData, MetricDatum and Dimension, as botocore 1.43 has it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem.metrics import BENCH_DIMENSIONS, cloudwatch_unit, find_metric

MOST_DATA = 1000  # a request
MOST_BYTES = 900_000  # a request before it is packed; the limit is 1 MB, and whether packed it does not say
MOST_VALUES = 150  # unique ones a datum
LARGEST = 2.0**360
DIGITS = 3
RESOLUTION_S = 60
_PAIR_BYTES = 24  # a value of three digits and its count, in JSON or CBOR: botocore speaks either with CloudWatch
_DATUM_BYTES = 250  # names of the fields, of the unit, the time
_DIMENSION_BYTES = 32
_MOST_NAME, _MOST_DIMENSION, _MOST_DIMENSIONS = 255, 1024, 30
_CLASS = BENCH_DIMENSIONS[2]

Dimensions = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Datum:
    """Values of one series in one minute.

    Args:
        metric: its name in the catalogue.
        dimensions: name and value of each.
        at_s: the minute, in seconds since 1970.
        values: in the metric's unit; what is no finite number is left out.
    """

    metric: str
    dimensions: Dimensions
    at_s: int
    values: Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A range of bytes of a file, from whole lines to whole lines."""

    path: Path
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of a run.

    Args:
        number: from 0.
        complete: whether all of it is recorded; only then its figures are sent.
        data: its figures.
        records: its raw records, as they stand in the folder.
    """

    number: int
    complete: bool
    data: tuple[Datum, ...]
    records: tuple[Slice, ...]


class Cell(NamedTuple):
    """One minute of one series."""

    dimensions: Dimensions
    metric: str
    at_s: int

    @staticmethod
    def of(datum: Datum) -> Cell:
        """Return the cell of a datum."""
        return Cell(datum.dimensions, datum.metric, datum.at_s // RESOLUTION_S * RESOLUTION_S)

    def __str__(self) -> str:
        """Name it for a person."""
        shown = ", ".join(f"{name}={value}" for name, value in self.dimensions)
        return f"{self.metric} ({shown}) at {datetime.fromtimestamp(self.at_s, tz=UTC):%Y-%m-%d %H:%M} UTC"


class Held(NamedTuple):
    """How much of a cell something holds: how many values, and their sum."""

    samples: int
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One MetricDatum: unique values, ascending, and how often each."""

    cell: Cell
    values: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes it takes in a request, a little more than it does."""
        texts = sum(len(name) + len(value) + _DIMENSION_BYTES for name, value in self.cell.dimensions)
        return _DATUM_BYTES + len(self.cell.metric) + texts + _PAIR_BYTES * len(self.values)

    def as_datum(self) -> dict[str, Any]:
        """Return it as PutMetricData takes it."""
        return {
            "MetricName": self.cell.metric,
            "Dimensions": [{"Name": name, "Value": value} for name, value in self.cell.dimensions],
            "Timestamp": datetime.fromtimestamp(self.cell.at_s, tz=UTC),
            "Values": list(self.values),
            "Counts": [float(count) for count in self.counts],
            "Unit": cloudwatch_unit(find_metric(self.cell.metric)),
            "StorageResolution": RESOLUTION_S,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one PutMetricData sends of a round.

    Args:
        number, of: its place among the round's.
        class_: its prompt class.
        parts: at most MOST_DATA.
    """

    number: int
    of: int
    class_: str
    parts: tuple[Part, ...]
    held: Mapping[Cell, Held] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Add up what it holds of each cell."""
        held: dict[Cell, Held] = {}
        for part in self.parts:
            had = held.get(part.cell, Held(0, 0.0))
            total = sum(value * count for value, count in zip(part.values, part.counts, strict=True))
            held[part.cell] = Held(had.samples + sum(part.counts), had.total + total)
        object.__setattr__(self, "held", held)

    @property
    def digest(self) -> str:
        """SHA-256 of all that it sends."""
        plain = [[*part.cell, part.values, part.counts] for part in self.parts]
        return hashlib.sha256(json.dumps(plain, separators=(",", ":")).encode()).hexdigest()

    @property
    def first_s(self) -> int:
        """Its earliest minute."""
        return min(part.cell.at_s for part in self.parts)

    @property
    def last_s(self) -> int:
        """Its latest minute."""
        return max(part.cell.at_s for part in self.parts)

    @property
    def probe(self) -> Cell:
        """The cell by which it is told from others when it is read back: the richest, whose sum is like no other's."""
        unique: dict[Cell, int] = {}
        for part in self.parts:
            unique[part.cell] = unique.get(part.cell, 0) + len(part.values)
        return max(unique, key=lambda cell: (unique[cell], self.held[cell].samples, cell))

    def refusal(self) -> str | None:
        """Return why CloudWatch would refuse it, None where it would not."""
        names = {text for part in self.parts for text in _faults(part.cell)}
        return min(names) if names else None


def batches(data: Iterable[Datum]) -> tuple[Batch, ...]:
    """Return what a round sends.

    Args:
        data: its figures, in any order; several of one cell are joined.
    """
    together: dict[Cell, list[NDArray[np.float64]]] = {}
    for datum in data:
        together.setdefault(Cell.of(datum), []).append(rounded(np.asarray(datum.values, dtype=np.float64)))
    cells = sorted(together, key=lambda cell: (_class(cell), cell))
    made = [
        (class_, parts)
        for class_, group in groupby(cells, key=_class)
        for parts in _filled(_parts(cell, np.concatenate(together[cell])) for cell in group)
    ]
    return tuple(
        Batch(number=number, of=len(made), class_=class_, parts=parts) for number, (class_, parts) in enumerate(made)
    )


def rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the finite values at three significant digits; one nearer to 0 than CloudWatch takes is 0."""
    kept = values[np.isfinite(values)]
    size = np.abs(kept)
    kept = np.where(size < 1 / LARGEST, 0.0, kept)[size < LARGEST]
    power = np.floor(np.log10(np.where(kept == 0, 1.0, np.abs(kept)))) - (DIGITS - 1)
    up, down = 10.0 ** np.maximum(-power, 0), 10.0 ** np.maximum(power, 0)
    found: NDArray[np.float64] = np.rint(kept * up / down) / up * down + 0.0  # -0.0 is 0.0
    return found


def _class(cell: Cell) -> str:
    return dict(cell.dimensions).get(_CLASS, "")


def _parts(cell: Cell, values: NDArray[np.float64]) -> tuple[Part, ...]:
    unique, counts = np.unique(values, return_counts=True)
    return tuple(
        Part(
            cell=cell, values=tuple(map(float, unique[first : first + MOST_VALUES])),
            counts=tuple(map(int, counts[first : first + MOST_VALUES])),
        )
        for first in range(0, len(unique), MOST_VALUES)
    )  # fmt: skip


def _filled(cells: Iterable[tuple[Part, ...]]) -> Iterator[tuple[Part, ...]]:
    """Fill batches in order; a cell begins a new one rather than lie in two."""
    parts: list[Part] = []
    size = 0
    for cell in cells:
        whole = sum(part.size for part in cell)
        for place, part in enumerate(cell):
            more, bytes_ = (len(cell), whole) if place == 0 else (1, part.size)
            if parts and (len(parts) + more > MOST_DATA or size + bytes_ > MOST_BYTES):
                yield tuple(parts)
                parts, size = [], 0
            parts.append(part)
            size += part.size
    if parts:
        yield tuple(parts)


def _faults(cell: Cell) -> Iterator[str]:
    """Yield what CloudWatch refuses of a series' names."""
    if not 1 <= len(cell.metric) <= _MOST_NAME or len(cell.dimensions) > _MOST_DIMENSIONS:
        yield f"{cell.metric} with {len(cell.dimensions)} dimensions"
    for name, value in cell.dimensions:
        plain = value.isascii() and value.isprintable() and value.strip()
        if not plain or len(value) > _MOST_DIMENSION:
            yield f"{name} {value!r}: CloudWatch takes 1 to {_MOST_DIMENSION} printable ASCII characters, one not blank"
