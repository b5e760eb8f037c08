"""Server-sent events out of bytes that were cut anywhere.

Invariant: the events of a stream do not depend on how its bytes were divided into reads; only the read that completed
an event, by its blank line, does. Source: the WHATWG HTML standard, "Parsing an event stream".

An event longer than EVENT_BYTES ends the reading: `excess` is set, and nothing after it is given.

Two things are done otherwise, because what is parsed is a record and no browser: an event whose data is empty is
passed over, and a last event without its blank line is given by `end` (the standard drops it), because servers exist
that close right after `data: [DONE]`.
"""

from __future__ import annotations

from tandem.bench.response_limits import EVENT_BYTES

BOM = b"\xef\xbb\xbf"
FIELDS = (b"event", b"id", b"retry", b"data")


class EventSplitter:
    """Takes bytes in pieces, gives the data of each event that a piece completes.

    Attributes:
        foreign_line: the first line that belongs to no event stream, as of an HTML page; None where there is none.
        has_excess: whether an event is longer than EVENT_BYTES.
    """

    def __init__(self) -> None:
        self.foreign_line: bytes | None = None
        self.has_excess = False
        self._line: list[bytes] = []  # what came since the last end of a line
        self._data: list[bytes] = []
        self._open_bytes = 0  # since the last blank line, line ends counted as one byte
        self._has_started = False
        self._after_cr = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that `piece` completes, mostly one."""
        if self.has_excess:
            return []
        if not self._has_started:
            piece = self._strip_bom(piece)
        if self._after_cr and piece:
            self._after_cr = False
            piece = piece.removeprefix(b"\n")  # the CR before it has ended the line
        if b"\r" in piece:
            self._after_cr = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._open_bytes += len(piece)
        if b"\n" not in piece:
            self._line.append(piece)
            if self._open_bytes > EVENT_BYTES:
                self._mark_excess()
            return []
        lines = b"".join((*self._line, piece)).split(b"\n")
        self._line = [lines.pop()]
        if self._open_bytes > EVENT_BYTES:
            return self._take_until_excess(lines)
        events = [event for line in lines if (event := self._take_line(line))]
        self._open_bytes = 0 if piece.endswith(b"\n\n") else self._count_open_bytes(lines)
        return events

    def end(self) -> bytes | None:
        """Return the data of an event that the stream's end left without its blank line; it may be cut."""
        last_line = b"".join(self._line)
        if last_line:
            self._take_line(last_line)
        data = b"\n".join(self._data)
        self._line, self._data = [], []
        return data or None

    def _take_until_excess(self, lines: list[bytes]) -> list[bytes]:
        """Return the events of `lines` up to the first that is too long, all of which `_open_bytes` counts."""
        events: list[bytes] = []
        size = self._open_bytes - sum(len(line) + 1 for line in lines) - len(self._line[0])
        for line in lines:
            size = size + len(line) + 1 if line else 0
            if size > EVENT_BYTES:
                self._mark_excess()
                return events
            if event := self._take_line(line):
                events.append(event)
        self._open_bytes = size + len(self._line[0])
        if self._open_bytes > EVENT_BYTES:
            self._mark_excess()
        return events

    def _count_open_bytes(self, lines: list[bytes]) -> int:
        """Return the bytes since the last blank line of `lines`, all of which `_open_bytes` counts."""
        size = len(self._line[0])
        for line in reversed(lines):
            if not line:
                return size
            size += len(line) + 1
        return self._open_bytes

    def _mark_excess(self) -> None:
        self.has_excess = True
        self._line, self._data = [], []

    def _strip_bom(self, piece: bytes) -> bytes:
        piece, self._line = b"".join((*self._line, piece)), []
        if len(piece) < len(BOM) and BOM.startswith(piece):
            self._line = [piece]  # no line yet: the next piece tells
            return b""
        self._has_started = True
        return piece.removeprefix(BOM)

    def _take_line(self, line: bytes) -> bytes | None:
        """Take one whole line; return the event's data where it is the blank line that ends one."""
        if not line:
            event = b"\n".join(self._data)
            self._data = []
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
