"""Safe text for a terminal or a page, from names of foreign origin.

Invariant: no text in a record or a manifest moves a terminal's cursor or changes the direction of a
line. `tandem.cli.program` prints only through `PrintableStream`, so every command is covered.
"""

from __future__ import annotations

import textwrap
import unicodedata
from typing import Any, TextIO

from rich.cells import cell_len, set_cell_size

_CONTROL_PICTURES = 0x2400
"""Start of Unicode's visible signs for the control characters 0 to 31."""

_DELETE = "\x7f"
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean_text(text: str) -> str:
    """Return a text on one line, with its control characters as visible signs."""
    return text if text.isprintable() else "".join(map(_visible_sign, text))


class PrintableStream:
    """A text stream that shows control characters as signs; line ends stay.

    Args:
        stream: the output; also `raw_stream`, for a writer that makes its own text printable.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = self.raw_stream = stream

    def write(self, text: str) -> int:
        """Write a text with its control characters as signs; return its length."""
        self._stream.write("\n".join(map(clean_text, text.split("\n"))))
        return len(text)

    def write_control(self, sequence: str) -> None:
        """Write one of Tandem's control sequences unchanged."""
        self._stream.write(sequence)

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the stream."""
        return getattr(self._stream, name)


def shorten_text(name: str, max_signs: int = 80) -> str:
    """Return a name of at most `max_signs` signs: a longer name keeps its beginning and its end."""
    text = clean_text(name)
    if len(text) <= max_signs:
        return text
    beginning = max_signs // 2
    end = max_signs - beginning - 1
    return f"{text[:beginning]}…{text[-end:]}"


def wrap_text(text: str, width: int, *, indent: str = "", first: str = "") -> list[str]:
    """Return a text as lines of at most `width` columns.

    Args:
        text: its lines are joined first.
        width: in columns.
        indent: before every line except the first.
        first: before the first line.
    """
    line = clean_text(" ".join(text.splitlines()))
    wide_signs = cell_len(line) - len(line)  # a wide sign takes two columns
    columns = max(width - wide_signs, width // 2, len(indent) + 1)
    return textwrap.wrap(
        line, columns, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False
    )


def fit_line(start: str, detail: str, end: str, *, width: int, separator: str) -> str:
    """Return three parts as one line of at most `width` columns; shorten only the detail.

    Args:
        start: stays whole.
        detail: ends with an ellipsis if it is too long, and goes if there is no room for it.
        end: stays whole, because it says how long the reader has to wait.
        width: in columns. A line whose start and end are wider is cut: a longer one would be
            wrapped.
        separator: between two parts.
    """
    first = clean_text(start)
    middle = clean_text(detail)
    last = clean_text(end)
    room = width - cell_len(separator.join(filter(None, (first, "…", last))))
    if cell_len(middle) > room + 1:
        middle = f"{set_cell_size(middle, room).rstrip()}…" if room > 0 else ""

    line = separator.join(filter(None, (first, middle, last)))
    return line if cell_len(line) <= width else set_cell_size(line, width)


def _visible_sign(sign: str) -> str:
    if sign < " " or sign == _DELETE:
        return chr(_CONTROL_PICTURES + (ord("!") if sign == _DELETE else ord(sign)))
    return f"<U+{ord(sign):04X}>" if unicodedata.category(sign) in _HIDDEN_CATEGORIES else sign
