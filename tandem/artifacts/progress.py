"""How far a long work is, said at most every few seconds, however many files there are.

Invariant: a line is written when enough time has passed since the last one, and one at the end; never more.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tandem.artifacts.driver.log import log_event

LOG_INTERVAL_S = 5.0


@dataclass(slots=True, kw_only=True)
class TransferProgress:
    """The progress of one set of files.

    Args:
        event: what is being done.
        files: how many there are.
        size: bytes of all.
        interval_s: least seconds between two lines.
    """

    event: str
    files: int
    size: int
    interval_s: float = LOG_INTERVAL_S
    _index: int = 0
    _file: str = ""
    _received_bytes: int = 0
    _start_s: float = field(init=False)
    _last_log_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Begin to count the seconds."""
        self._start_s = self._last_log_s = time.monotonic()

    def begin(self, index: int, file: str) -> None:
        """Name the file that is worked on, the first has index 1."""
        self._index, self._file = index, file
        self._log_if_due()

    def add_bytes(self, byte_count: int) -> None:
        """Count bytes that were received; negative for bytes that were thrown away."""
        self._received_bytes += byte_count
        self._log_if_due()

    def _log_if_due(self) -> None:
        now = time.monotonic()
        if now - self._last_log_s < self.interval_s:
            return
        self._last_log_s = now
        log_event(
            self.event, file=self._file, index=self._index, files=self.files, received_bytes=self._received_bytes,
            of_bytes=self.size, seconds=round(now - self._start_s, 1),
        )  # fmt: skip

    @property
    def seconds(self) -> float:
        """Return the seconds since the beginning."""
        return round(time.monotonic() - self._start_s, 1)
