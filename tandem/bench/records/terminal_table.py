"""The table of every command, for a terminal.

Invariant: no line is wider than the given width, for any name in the records; no text of others
moves a cursor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tandem.bench.records.terminal_text import clean_text

WIDTH = 100  # default, in columns


def format_table(  # noqa: PLR0913 - what a table is made of
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Collection[int] = (),
    flexible: Collection[int] = (0,),
    folds: bool = False,
    width: int = WIDTH,
) -> list[str]:
    """Return the lines of a table at most `width` columns wide.

    Args:
        heads: of the columns, each of one or more lines; empty prints only the rows.
        rows: cells of each row.
        numbers: columns with figures, aligned to the right.
        flexible: the columns to shrink if the table is too wide: they are folded, or cut with an
            ellipsis.
        folds: whether to fold these columns.
        width: of the table, in columns of the terminal.
    """
    lines = [*_split_heads(heads), *(list(map(clean_text, row)) for row in rows)]
    columns = [
        Column(no_wrap=place not in flexible, justify="right" if place in numbers else "left")
        for place in range(max(map(len, lines), default=0))
    ]
    padding = (0, 1, 0, 1 if folds else _choose_gap(lines, width))
    table = Table(*columns, box=None, show_header=False, pad_edge=False, padding=padding)
    for line in lines:
        cells = [
            Text(cell, no_wrap=not folds, overflow="fold" if folds else "ellipsis") for cell in line
        ]
        table.add_row(*cells)
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


def _split_heads(heads: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lines of the heads; shorter ones stand at the bottom."""
    parts = [head.split("\n") for head in heads]
    depth = max(map(len, parts), default=0)
    for number in range(depth):
        places = [number - depth + len(part) for part in parts]
        yield [part[place] if place >= 0 else "" for part, place in zip(parts, places, strict=True)]


def _choose_gap(lines: Sequence[Sequence[str]], width: int) -> int:
    """Return the blanks before a column besides the one behind it: none where room is scarce."""
    count = max(map(len, lines), default=0)
    widest = [0] * count
    for line in lines:
        for place, cell in enumerate(line):
            widest[place] = max(widest[place], cell_len(cell))
    return 1 if sum(widest) + 2 * (count - 1) <= width else 0
