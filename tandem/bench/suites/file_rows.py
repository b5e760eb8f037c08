"""The rows of a file of prompts: JSON Lines, a JSON list, a table or plain text.

Invariant: the content tells which of them a file is. Its name only decides what the content leaves
open: a file `.jsonl` or `.json` is never plain text, and a file `.csv` or `.tsv` is a table. What
cannot be read as a row is a fault with its place, and the other rows are read all the same.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import PurePath

import msgspec

from tandem.bench.suites.file_options import NO_OPTIONS, FileOptions
from tandem.bench.suites.file_row import FileRow
from tandem.bench.suites.table_rows import find_head, open_lines, read_table
from tandem.errors import InputError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # editors on Windows write it
# how a file begins that is no text, what it is, and what to do about it
FOREIGN_STARTS = {
    b"\x1f\x8b": ("compressed by gzip", "unpack it with gunzip"),
    b"PK\x03\x04": ("a zip archive or a workbook", "unpack it, or save the sheet as CSV"),
    b"PAR1": ("a Parquet file", "write it as JSON Lines, as pandas' to_json(lines=True) does"),
    b"\xff\xfe": ("in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"),
}
JSON_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson"})
TABLE_SUFFIXES = frozenset({".csv", ".tsv"})
_JSON_LIST = re.compile(rb"\s*\[\s*[\[{\"\]]")
_JSON_OBJECT = re.compile(rb"\s*\{[\s\"}]")
_JSON_LINE = re.compile(rb"^[ \t]*\{[ \t]*\"", re.MULTILINE)


def read_rows(content: bytes, where: str, options: FileOptions = NO_OPTIONS) -> tuple[FileRow, ...]:
    """Return the rows of a file in order, without blank lines.

    Args:
        content: of the file.
        where: its path.
        options: what the user says of it.

    Raises:
        InputError: the file is no text, a JSON list cannot be read, or it is a table without the
            column; the error names the columns that it has.
    """
    _refuse_foreign(content, where)
    content = content.removeprefix(BYTE_ORDER_MARK)
    suffix = PurePath(where).suffix.lower()
    is_json = suffix in JSON_SUFFIXES
    # a CR alone may end lines; no text of JSON has one
    json_content = content if b"\n" in content else content.replace(b"\r", b"\n")
    has_list = _JSON_LIST.match(content) or (is_json and content.lstrip().startswith(b"["))
    if has_list:
        return _read_list(json_content, where)
    if _JSON_OBJECT.match(content) or _has_json_lines(json_content):
        return _read_lines(json_content, where)

    _require_text(content, where)
    head = find_head(content, options.prompt_column, is_table=suffix in TABLE_SUFFIXES)
    if head is not None:
        return tuple(read_table(content, head, where, options))
    return _read_lines(json_content, where) if is_json else _read_prose(content)


def _read_prose(content: bytes) -> tuple[FileRow, ...]:
    """Return a row for each line that is not blank; LF, CR LF and CR end a line."""
    rows = []
    for number, line in enumerate(open_lines(content, newline=None), start=1):
        if line.strip():
            prompt = line.removesuffix("\n")
            rows.append(FileRow(place=f"line {number}", value=prompt))
    return tuple(rows)


def _refuse_foreign(content: bytes, where: str) -> None:
    """Refuse what is no text.

    Raises:
        InputError: with what the file is.
    """
    for start, (kind, change) in FOREIGN_STARTS.items():
        if content.startswith(start):
            raise InputError(f"the file is {kind}", where=where, change=change)


def _has_json_lines(content: bytes) -> bool:
    """Return whether most lines begin as a JSON object does: a title above them is a fault."""
    line_count = content.rstrip().count(b"\n") + 1
    return 2 * len(_JSON_LINE.findall(content)) >= line_count


def _require_text(content: bytes, where: str) -> None:
    """Refuse a file that is not UTF-8, or no text."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        change = "save it as UTF-8, such as by iconv -f WINDOWS-1252 -t UTF-8"
        raise _build_line_error(number, "not UTF-8", where, change) from error
    if b"\0" in content:
        number = content.count(b"\n", 0, content.index(b"\0")) + 1
        change = "name a text file: docs/suites.md shows the forms"
        raise _build_line_error(number, "a NUL byte", where, change)


def _build_line_error(number: int, problem: str, where: str, change: str) -> InputError:
    place = f"line {number}"
    return InputError(f"{place}: {problem}", where=where, change=change, places=[place])


def _read_lines(content: bytes, where: str) -> tuple[FileRow, ...]:
    """Return the rows of JSON Lines.

    Raises:
        InputError: the file is one object over several lines.
    """
    rows = []
    for number, line in enumerate(io.BytesIO(content), start=1):
        if line.strip():
            rows.append(_decode_row(f"line {number}", line))
    if rows and rows[0].fault:
        _refuse_one_object(content, where)
    return tuple(rows)


def _refuse_one_object(content: bytes, where: str) -> None:
    try:
        value = msgspec.json.decode(content)
    except (ValueError, RecursionError):
        return  # the faults of its lines say more
    if not isinstance(value, dict):
        return
    lists = [key for key, entry in value.items() if isinstance(entry, list)]
    change = "write a JSON list, or one object a line"
    if len(lists) == 1:
        change = f"write its list alone: jq .{lists[0]} FILE > LIST.json"
    problem = f"the file is one JSON object, with the keys {', '.join(value)}"
    raise InputError(problem, where=where, change=change)


def _read_list(content: bytes, where: str) -> tuple[FileRow, ...]:
    """Return the entries of a JSON list, or the rows of JSON Lines with a list in each.

    Raises:
        InputError: the list cannot be read.
    """
    try:
        entries = msgspec.json.decode(content, type=list[msgspec.Raw])
    except (ValueError, RecursionError) as error:
        first_line = content.lstrip().partition(b"\n")[0]
        if _decode_row("line 1", first_line).fault is None:
            return _read_lines(content, where)
        number = _find_line(content, error)
        change = "correct it: the file begins as a JSON list does"
        raise _build_line_error(number, str(error), where, change) from error

    rows = []
    for number, entry in enumerate(entries, start=1):
        rows.append(_decode_row(f"entry {number}", bytes(entry)))
    return tuple(rows)


def _find_line(content: bytes, error: Exception) -> int:
    """Return the line of the byte that a fault of JSON names, else the last one."""
    place = re.search(r"byte (\d+)", str(error))
    end = len(content) if place is None else int(place[1])
    return content.count(b"\n", 0, end) + 1


def _decode_row(place: str, line: bytes) -> FileRow:
    try:
        row = FileRow(place=place, value=msgspec.json.decode(line))
        return replace(row, repeats_key=row.has_own_marks and _repeats_key(line))
    except (ValueError, RecursionError) as error:  # json nests less deeply than msgspec
        return FileRow(place=place, fault=str(error))


def _repeats_key(line: bytes) -> bool:
    """Return whether an object has a key twice; msgspec keeps the last of them."""
    objects: list[list[tuple[str, object]]] = []
    json.loads(line, object_pairs_hook=objects.append)
    return any(len(dict(pairs)) < len(pairs) for pairs in objects)
