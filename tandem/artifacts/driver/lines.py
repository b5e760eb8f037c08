"""What the program prints: passed on as it comes, searched for signs, its end kept."""

from __future__ import annotations

import re
import sys
from collections import deque

from tandem.artifacts.driver.failure import find_signs

TAIL_LINES, LINE_BYTES = 40, 4096


class OutputLines:
    """The lines so far."""

    def __init__(self) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.sign_lines: dict[int, str] = {}  # index in SIGNS -> the first line that has it
        self._rest = b""

    def add_bytes(self, piece: bytes) -> None:
        """Pass a piece on and read the lines that it completes."""
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        *complete_lines, self._rest = re.split(rb"[\r\n]+", self._rest + piece)
        if len(self._rest) > LINE_BYTES:
            complete_lines, self._rest = [*complete_lines, self._rest], b""
        for line in complete_lines:
            self._add_line(line)

    def flush(self) -> None:
        """Read what has no end of line."""
        self._add_line(self._rest)
        self._rest = b""

    def _add_line(self, raw: bytes) -> None:
        line = raw[:LINE_BYTES].decode(errors="replace").rstrip()
        if not line:
            return
        self.tail.append(line)
        for index in find_signs(line):
            self.sign_lines.setdefault(index, line)
