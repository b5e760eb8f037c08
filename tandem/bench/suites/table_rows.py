"""The rows of a table: CSV, with any of the usual signs between its cells.

Invariant: a table has a head, and a record has as many cells as the head; any other record is a
fault with its first line. A cell stays as it stands; an empty one is no value.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tandem.bench.suites.file_options import FileOptions
from tandem.bench.suites.file_row import FileRow
from tandem.errors import InputError

DELIMITERS = ",;\t|"
CHECKED_RECORDS = 50  # first records of a table that must be as wide as its head
QUOTE_CHANGE = "a quote inside a cell is written twice"
# prose has a space after its comma, and more words; pandas leaves the name of its first column
# empty, or calls it "Unnamed: 0"
_COLUMN_NAME = re.compile(r"([^\W\d][\w.():/-]*( [\w.()/-]+){0,2})?")
# Excel's first line may name the sign between cells: one character of UTF-8; more is prose
_SIGN_LINE = re.compile(rb"sep=[^\r\n\x80-\xbf][\x80-\xbf]*(?=\r?\n)")
# a line that is one of these words alone is the head of a table with one column
_LONE_COLUMNS = frozenset({"prompt", "prompts", "question", "instruction", "text", "query"})


@dataclass(frozen=True, slots=True)
class TableHead:
    """The first record of a table, and the sign between its cells."""

    delimiter: str
    columns: tuple[str, ...]


def find_head(content: bytes, column: str | None, *, is_table: bool) -> TableHead | None:
    """Return the head of a table; None if the file is plain text.

    Args:
        content: of the file, in UTF-8.
        column: the user's name for the prompts' column; only a table has one.
        is_table: whether the file's name says so.
    """
    heads = []
    for delimiter in DELIMITERS:
        with suppress(csv.Error):  # prose may begin with a quote
            cells = _read_head(_open_table(content, delimiter))
            columns = tuple(cell.strip() for cell in cells)
            heads.append(TableHead(delimiter, columns))
    if not heads:
        return None
    with_column = [head for head in heads if column in head.columns]
    head = max(with_column or heads, key=lambda head: len(head.columns))
    has_head = column is not None or is_table or _has_columns(content, head)
    return head if has_head else None


def _has_columns(content: bytes, head: TableHead) -> bool:
    """Return whether the first line names columns, and the lines after it have as many cells."""
    width = len(head.columns)
    if width == 1:
        return head.columns[0].lower() in _LONE_COLUMNS
    lines = open_lines(content, newline="")
    first_line = next(filter(str.strip, lines), "")
    is_prose = f"{head.delimiter} " in first_line
    if is_prose or not all(map(_COLUMN_NAME.fullmatch, head.columns)):
        return False
    try:
        records = list(itertools.islice(_read_cells(lines, head.delimiter), CHECKED_RECORDS))
    except csv.Error:
        return False
    return {len(cells) for cells in records if not _is_blank(cells)} == {width}


def _is_blank(cells: Sequence[str]) -> bool:
    """Return whether a record has no text, as Excel writes an empty row."""
    return not any(map(str.strip, cells))


def _read_head(table: Iterator[list[str]]) -> list[str]:
    """Return the first record that is not blank."""
    return next(itertools.filterfalse(_is_blank, table), [])


def open_lines(content: bytes, newline: str | None) -> io.TextIOWrapper:
    """Return the lines of a text without a copy of it; `newline` as for `open`."""
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline=newline)


def _open_table(content: bytes, delimiter: str) -> Any:
    lines = open_lines(content, newline="")
    sign_line = _SIGN_LINE.match(content)
    if sign_line:
        lines.seek(sign_line.end())
    return _read_cells(lines, delimiter)


def _read_cells(lines: Iterable[str], delimiter: str) -> Any:
    """Return the csv module's reader, which counts lines."""
    csv.field_size_limit(sys.maxsize)  # a prompt may have more than 128 KiB
    return csv.reader(lines, delimiter=delimiter, strict=True)


def read_table(
    content: bytes, head: TableHead, where: str, options: FileOptions
) -> Iterator[FileRow]:
    """Yield the records below the head.

    Args:
        content: of the file, in UTF-8.
        head: of the table.
        where: the file's path.
        options: what the user says of it.

    Raises:
        InputError: no such column, or a column stands twice.
    """
    _check_columns(head.columns, where, options)
    table = _open_table(content, head.delimiter)
    _read_head(table)
    while True:
        place = f"line {table.line_num + 1}"
        try:
            cells = next(table)
        except StopIteration:
            return
        except csv.Error as error:
            yield FileRow(place=place, fault=f"{error}: {QUOTE_CHANGE}")
            continue
        if not _is_blank(cells):
            yield _build_row(place, cells, head)


def _build_row(place: str, cells: Sequence[str], head: TableHead) -> FileRow:
    if len(cells) != len(head.columns):
        counts = f"{len(cells)} cells under {len(head.columns)} columns"
        change = f"quote a cell that has {head.delimiter!r} or a line end"
        return FileRow(place=place, fault=f"{counts}: {change}")
    pairs = zip(head.columns, cells, strict=True)
    return FileRow(place=place, value={name: cell for name, cell in pairs if name and cell})


def _check_columns(columns: Sequence[str], where: str, options: FileOptions) -> None:
    column = options.prompt_column
    flag = options.name_option("prompt_column", "NAME")
    names = ", ".join(filter(None, columns))
    if column is None:
        problem = f"the file is a table with the columns {names}"
        change = f"name the column of the prompts: {flag}"
        raise InputError(problem, where=where, change=change)
    if column not in columns:
        problem = f"the table has no column {column!r}; its columns: {names}"
        raise InputError(problem, where=where, change=f"name one of them: {flag}")
    for name in filter(None, columns):
        if columns.count(name) > 1:
            problem = f"two columns are named {name!r}: {names}"
            raise InputError(problem, where=where, change="rename one of them")
