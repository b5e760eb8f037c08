"""The parser of server-sent events from bytes that may be cut anywhere.

Invariant: the events of a stream do not depend on the division of its bytes into reads; only the
read that completes an event, by its blank line, does. Source: the WHATWG HTML standard, "Parsing an
event stream".

The parser differs from the standard in three points, because it makes records, not web pages:

- It skips an event with empty data, unless the event is named as an error, and a sign of life that
  is no JSON: an event named ping (node-chatgpt-api PR 100 met a time in one), or a comment that a
  gateway passed on as data (llm-gateway issue 2053).
- `end` returns the last events without their blank line (the standard drops them), because some
  servers close right after `data: [DONE]`.
- Lines that belong to no event stream are an event of their own, with `is_framed` false. The
  standard drops them, but a server or proxy that dies in the middle of a stream writes its error
  there.
"""

from __future__ import annotations

import re
from typing import NamedTuple

BOM = b"\xef\xbb\xbf"
FIELDS = (b"event", b"id", b"retry", b"data")
ERROR_NAME = b"error"
_PING_NAME = re.compile(rb"ping|heart.?beat|keep.?alive", re.IGNORECASE)


class ServerEvent(NamedTuple):
    """One event of a stream.

    Args:
        data: its data lines; of an error without data its comments; of unframed lines the lines.
        is_error: whether the server names it as an error: by `event: error`, or by an `error:` line
            in place of a `data:` line.
        is_framed: whether it came in the fields of an event stream.
    """

    data: bytes
    is_error: bool = False
    is_framed: bool = True


class EventSplitter:
    """Parser that takes bytes in pieces and returns the events that a piece completes.

    Attributes:
        foreign_line: the first line that belongs to no event stream, e.g. of an HTML page; None if
            there is none.
    """

    def __init__(self) -> None:
        self.foreign_line: bytes | None = None
        self._line: list[bytes] = []  # pieces since the last end of a line
        self._data: list[bytes] = []
        self._comments: list[bytes] = []  # of the event that is under way
        self._foreign_lines: list[bytes] = []
        self._is_error = False
        self._is_ping = False
        self._has_started = False
        self._after_cr = False

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """Return the events that `piece` completes, usually one."""
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
        events: list[ServerEvent] = []
        for line in lines:
            events += self._take_line(line)
        return events

    def end(self) -> list[ServerEvent]:
        """Return the last events, which lack their blank line; their data may be cut."""
        last_line = b"".join(self._line)
        self._line = []
        events = self._take_line(last_line) if last_line else []
        return events + self._end_event()

    def _take_line(self, line: bytes) -> list[ServerEvent]:
        """Take one complete line; return the events that it ends, if it is a blank line."""
        if not self._has_started:
            self._has_started = True
            line = line.removeprefix(BOM)
        if not line:
            return self._end_event()
        name, colon, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif colon and not name:
            self._comments.append(value)
        elif name == b"event":
            self._is_error |= value.strip().lower().endswith(ERROR_NAME)
            self._is_ping |= _PING_NAME.fullmatch(value.strip()) is not None
        elif colon and name.strip().lower() == ERROR_NAME:
            self._is_error = True
            self._data.append(value)
        elif name not in FIELDS:
            self._foreign_lines.append(line)
            if self.foreign_line is None:
                self.foreign_line = line
        return []

    def _end_event(self) -> list[ServerEvent]:
        """Return the events of the lines since the last blank line, the unframed one first."""
        events: list[ServerEvent] = []
        if self._foreign_lines:
            events.append(ServerEvent(b"\n".join(self._foreign_lines), is_framed=False))
        data = b"\n".join(self._data)
        if self._is_error:
            events.append(ServerEvent(data or b" ".join(self._comments), is_error=True))
        elif data and not self._is_sign_of_life(data):
            events.append(ServerEvent(data))
        self._data = []
        self._comments = []
        self._foreign_lines = []
        self._is_error = False
        self._is_ping = False
        return events

    def _is_sign_of_life(self, data: bytes) -> bool:
        """Return whether the event carries no output but shows that the server lives."""
        text = data.lstrip()
        return text.startswith(b":") or (self._is_ping and not text.startswith((b"{", b"[")))


def has_only_comments(piece: bytes) -> bool:
    """Return whether a read has only comment lines: a proxy's sign of life, not the model's."""
    return piece[:1] == b":" and all(line[:1] in {b":", b""} for line in piece.splitlines())
