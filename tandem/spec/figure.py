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


class DataFile(SpecRecord):
    """A data file: figures, and the sources that they cite."""

    sources: dict[str, FigureSource] = Field(description="key to document and date")

    def cite(self, figure: DataFigure[Any]) -> FigureSource:
        """Return where a figure of this file was read."""
        return self.sources[figure.source]


def walk_figures(value: Any, path: str = "") -> Iterator[tuple[str, DataFigure[Any]]]:
    """Yield every figure inside `value` with its key path."""
    if isinstance(value, DataFigure):
        yield path, value
    elif isinstance(value, SpecRecord):
        yield from walk_figures({name: getattr(value, name) for name in type(value).model_fields}, path)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from walk_figures(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from walk_figures(item, f"{path}[{index}]")
