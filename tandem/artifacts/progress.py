"""How far a long work is, said at most every few seconds, however many files there are.

Invariant: a line is written when enough time has passed since the last one, and one at the end; never more.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tandem.artifacts.log import say

EVERY_S = 5.0


@dataclass(slots=True, kw_only=True)
class Progress:
    """The progress of one set of files.

    Args:
        event: what is being done.
        files: how many there are.
        size: bytes of all.
        every_s: least seconds between two lines.
    """

    event: str
    files: int
    size: int
    every_s: float = EVERY_S
    _index: int = 0
    _file: str = ""
    _done: int = 0
    _began_s: float = field(init=False)
    _said_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Begin to count the seconds."""
        self._began_s = self._said_s = time.monotonic()

    def begin(self, index: int, file: str) -> None:
        """Name the file that is worked on, the first has index 1."""
        self._index, self._file = index, file
        self._say_if_due()

    def moved(self, size: int) -> None:
        """Count bytes that were received; negative for bytes that were thrown away."""
        self._done += size
        self._say_if_due()

    def _say_if_due(self) -> None:
        now = time.monotonic()
        if now - self._said_s < self.every_s:
            return
        self._said_s = now
        say(
            self.event, file=self._file, index=self._index, files=self.files, received_bytes=self._done,
            of_bytes=self.size, seconds=round(now - self._began_s, 1),
        )  # fmt: skip

    @property
    def seconds(self) -> float:
        """Return the seconds since the beginning."""
        return round(time.monotonic() - self._began_s, 1)
