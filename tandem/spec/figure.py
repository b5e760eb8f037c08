"""A figure from the field: its value, and which dated source of its file says so.

Invariant: no figure is read from a data file whose source the file does not list.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from pydantic import Field

from tandem.spec.record import SpecRecord

T = TypeVar("T")


class FigureSource(SpecRecord):
    """Where a figure was read, and when."""

    where: str = Field(min_length=1, description="document and section, or repository, commit and path")
    date: dt.date = Field(description="day on which it was read or published")


class DataFigure(SpecRecord, Generic[T]):
    """One value and the key of its source in the same file."""

    value: T = Field(description="the figure; null where no source gives it")
    source: str = Field(description="key in the file's `sources`")


def find_uncited_figures(record: SpecRecord, sources: dict[str, FigureSource]) -> Iterator[tuple[str, str]]:
    """Yield (key path, source key) of every figure in `record` whose source is not listed."""
    yield from ((path, figure.source) for path, figure in walk_figures(record, "") if figure.source not in sources)


def walk_figures(value: Any, path: str) -> Iterator[tuple[str, DataFigure[Any]]]:
    """Yield every figure inside `value` with its key path."""
    if isinstance(value, DataFigure):
        yield path, value
    elif isinstance(value, SpecRecord):
        for name in type(value).model_fields:
            yield from walk_figures(getattr(value, name), f"{path}.{name}" if path else name)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from walk_figures(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from walk_figures(item, f"{path}[{index}]")
