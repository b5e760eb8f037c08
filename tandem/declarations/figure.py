"""A figure from the field: its value, and the dated source that says so.

Invariant: no figure is read from a data file whose source the file does not list.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import Field

from tandem.declarations.document import read_document
from tandem.declarations.record import SpecRecord, parse_record

T = TypeVar("T")
R = TypeVar("R", bound="DataFile")


class FigureSource(SpecRecord):
    """Where a figure was read, and when."""

    where: str = Field(
        min_length=1, description="document and section, or repository, commit and path"
    )
    date: dt.date = Field(description="day on which it was read or published")
    verified: bool = Field(
        False, description="of a price: AWS's own text was read, not somebody else's record of it"
    )


class DataFigure(SpecRecord, Generic[T]):
    """One value and its source, which the file names by a key of `sources`."""

    value: T = Field(description="the figure; null where no source gives it")
    source: FigureSource = Field(
        description="where it was read",
        json_schema_extra={"allowed": "a key of the file's sources"},
    )


class DataFile(SpecRecord):
    """A data file: figures, and the sources that they cite."""

    sources: dict[str, FigureSource] = Field(description="key to document and date")


def read_data_file(record: type[R], path: Path, **fixed_values: str) -> R:
    """Read a data file; in each figure the source itself stands for its key.

    Args:
        record: the schema.
        path: the file.
        fixed_values: values that the file's place fixes, such as its name.

    Raises:
        SpecError: the file is malformed, or cites a source that it does not list.
    """
    document = read_document(path, f"{path.parent.name}/{path.name}")
    data = _cite_sources(document.data, document.data.get("sources", {}))
    return parse_record(record, replace(document, data=data), **fixed_values)


def _cite_sources(value: Any, sources: dict[str, Any]) -> Any:
    """Return the data with the source itself where a figure names its key."""
    if isinstance(value, list):
        return [_cite_sources(item, sources) for item in value]
    if not isinstance(value, dict):
        return value
    key = value.get("source")
    cited = (
        {"source": sources[key]} if value.keys() == {"value", "source"} and key in sources else {}
    )
    return {name: _cite_sources(item, sources) for name, item in value.items()} | cited
