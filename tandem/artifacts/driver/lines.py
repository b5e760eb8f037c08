"""What the program prints: passed on as it comes, searched for signs, its end kept."""

from __future__ import annotations

import re
import sys
from collections import deque

from tandem.artifacts.driver.failure import signs_in

TAIL_LINES, LINE_BYTES = 40, 4096


class Lines:
    """The lines so far."""

    def __init__(self) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.found: dict[int, str] = {}  # index in SIGNS -> the first line that has it
        self._rest = b""

    def take(self, piece: bytes) -> None:
        """Pass a piece on and read the lines that it completes."""
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        *whole, self._rest = re.split(rb"[\r\n]+", self._rest + piece)
        if len(self._rest) > LINE_BYTES:
            whole, self._rest = [*whole, self._rest], b""
        for line in whole:
            self._read(line)

    def end(self) -> None:
        """Read what has no end of line."""
        self._read(self._rest)
        self._rest = b""

    def _read(self, raw: bytes) -> None:
        line = raw[:LINE_BYTES].decode(errors="replace").rstrip()
        if not line:
            return
        self.tail.append(line)
        for index in signs_in(line):
            self.found.setdefault(index, line)
