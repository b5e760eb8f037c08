"""The parser of server-sent events from bytes that may be cut anywhere.

Invariant: the events of a stream do not depend on the division of its bytes into reads; only the read that completes an
event, by its blank line, does. Source: the WHATWG HTML standard, "Parsing an event stream".

The parser differs from the standard in two points, because it makes records, not web pages: it skips an event with
empty data, and `end` returns a last event without its blank line (the standard drops it), because some servers close
right after `data: [DONE]`.
"""

from __future__ import annotations

BOM = b"\xef\xbb\xbf"
FIELDS = (b"event", b"id", b"retry", b"data")


class EventSplitter:
    """Parser that takes bytes in pieces and returns the data of each event that a piece completes.

    Attributes:
        foreign_line: the first line that belongs to no event stream, e.g. of an HTML page; None if there is none.
    """

    def __init__(self) -> None:
        self.foreign_line: bytes | None = None
        self._line: list[bytes] = []  # pieces since the last end of a line
        self._data: list[bytes] = []
        self._has_started = False
        self._after_cr = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that `piece` completes, usually one."""
        if self._after_cr and piece:
            self._after_cr = False
            piece = piece.removeprefix(b"\n")  # the CR before has ended the line
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
        """Return the data of a last event without its blank line; the data may be cut."""
        if last_line := b"".join(self._line):
            self._take_line(last_line)
        data = b"\n".join(self._data)
        self._line, self._data = [], []
        return data or None

    def _take_line(self, line: bytes) -> bytes | None:
        """Take one complete line; return the event's data if the line is the blank line at its end."""
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
    """Return whether a read has only comment lines: a proxy's sign of life, not the model's."""
    return piece[:1] == b":" and all(line[:1] in {b":", b""} for line in piece.splitlines())
