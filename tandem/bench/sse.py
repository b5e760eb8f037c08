"""Server-sent events out of bytes that were cut anywhere.

Invariant: the events of a stream do not depend on how its bytes were divided into reads; only the read that completed
an event, by its blank line, does. Source: the WHATWG HTML standard, "Parsing an event stream".

Two things are done otherwise, because what is parsed is a record and no browser: an event whose data is empty is
passed over, and a last event without its blank line is given by `end` (the standard drops it), because servers exist
that close right after `data: [DONE]`.
"""

from __future__ import annotations

BOM = b"\xef\xbb\xbf"
FIELDS = (b"event", b"id", b"retry", b"data")


class EventSplitter:
    """Takes bytes in pieces, gives the data of each event that a piece completes.

    Attributes:
        foreign_line: the first line that belongs to no event stream, as of an HTML page; None where there is none.
    """

    def __init__(self) -> None:
        self.foreign_line: bytes | None = None
        self._line: list[bytes] = []  # what came since the last end of a line
        self._data: list[bytes] = []
        self._has_started = False
        self._after_cr = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that `piece` completes, mostly one."""
        if self._after_cr and piece:
            self._after_cr = False
            piece = piece.removeprefix(b"\n")  # the CR before it has ended the line
        if b"\r" in piece:
            self._after_cr = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._line.append(piece)
        if b"\n" not in piece:
            return []
        *lines, rest = b"".join(self._line).split(b"\n")
        self._line = [rest]
        return [event for event in map(self._take_line, lines) if event]

    def end(self) -> bytes | None:
        """Return the data of an event that the stream's end left without its blank line; it may be cut."""
        if last_line := b"".join(self._line):
            self._take_line(last_line)
        data = b"\n".join(self._data)
        self._line, self._data = [], []
        return data or None

    def _take_line(self, line: bytes) -> bytes | None:
        """Take one whole line; return the event's data where it is the blank line that ends one."""
        if not self._has_started:
            self._has_started, line = True, line.removeprefix(BOM)
        if not line:
            event, self._data = b"\n".join(self._data), []
            return event or None
        name, colon, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif self.foreign_line is None and name not in FIELDS and not (colon and not name):
            self.foreign_line = line
        return None


def has_only_comments(piece: bytes) -> bool:
    """Return whether a read holds nothing but comment lines: a sign of life of a proxy, not of the model."""
    return piece[:1] == b":" and all(line[:1] in {b":", b""} for line in piece.splitlines())
