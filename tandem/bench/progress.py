"""What the operator sees while a run goes on, on standard error.

Invariant: nothing of it is needed to read the results; a terminal has one line that is written anew, anything else a
plain line every few seconds, fit for a log.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from tandem.bench.estimate import Estimate, spoken
from tandem.bench.plan import Turn
from tandem.bench.record import Record
from tandem.bench.shown import PrintableStream
from tandem.bench.statement import turn_words

TERMINAL_S, LOG_S = 0.5, 5.0
CLEAR = "\r\x1b[K"


@dataclass
class WarmUpCount:
    """What the warm-up of an arm has asked so far; `began_s` is on the monotonic clock."""

    arm: str
    began_s: float
    requests: int = 0
    failed: int = 0

    def __str__(self) -> str:
        """Describe it as progress shows it."""
        elapsed = spoken(time.monotonic() - self.began_s)
        failed = f" ({self.failed} failed)" if self.failed else ""
        return f"warm-up of {self.arm}: {elapsed} gone, requests done: {self.requests}{failed}"


class Progress:
    """Counts records and says how long it will still take.

    Args:
        out: where it is written.
        requests: of the whole run; None where the clock decides.
        expected_s: of the whole run, or how long it may take where the clock decides.
    """

    def __init__(self, out: TextIO, *, requests: int | None, expected_s: float) -> None:
        self._out = out if isinstance(out, PrintableStream) else PrintableStream(out)
        self._requests, self._expected_s = requests, expected_s
        self._terminal = out.isatty()
        self._began: float | None = None
        self._asked = self._failed = 0
        self._planned_done_s = 0.0  # of the expected time, what the finished requests stand for
        self._share_s = 0.0  # of the expected time, what a request of the present turn stands for
        self._now = ""
        self._warming: dict[str, WarmUpCount] = {}

    def tell(self, sentence: str) -> None:
        """Write a sentence of its own."""
        self._clear_line()
        self._out.write(f"{sentence}\n")
        self._out.flush()

    def expect(self, expected_s: float) -> None:
        """Take a better figure for the whole run."""
        self._expected_s = expected_s

    def turn(self, turn: Turn, estimate: Estimate, *, had: int) -> None:
        """Say which turn begins, and how many of its requests an earlier run has recorded."""
        self._began = self._began or time.monotonic()
        self._share_s = estimate.turn_s(turn) / turn.requests
        self._now = turn_words(turn)
        if self._requests is not None:
            self._requests -= had
            self._expected_s -= had * self._share_s

    def done(self, record: Record) -> None:
        """Count a record."""
        self._asked += 1
        self._failed += record.error is not None
        self._planned_done_s += self._share_s

    @contextlib.contextmanager
    def warming(self, arm: str) -> Iterator[None]:
        """Show the warm-up of an arm while it lasts."""
        self.tell(f"warming {arm} up")
        self._warming[arm] = WarmUpCount(arm, time.monotonic())
        try:
            yield
        finally:
            del self._warming[arm]

    def count_warm_up(self, record: Record) -> None:
        """Count a record of a warm-up."""
        count = self._warming[record.arm]
        count.requests += 1
        count.failed += record.error is not None

    def line(self) -> str:
        """Return where the run stands."""
        if self._warming:
            return "; ".join(map(str, self._warming.values()))
        of = f"/{self._requests}" if self._requests is not None else ""
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self._asked}{of} requests{failed}; {self._now}; {self._left()}"

    def _left(self) -> str:
        gone = time.monotonic() - (self._began or time.monotonic())
        if self._requests is None:
            return f"{spoken(max(self._expected_s - gone, 0.0))} left"
        if not self._planned_done_s:
            return f"about {spoken(self._expected_s)} left"
        slower = gone / self._planned_done_s
        return f"about {spoken(max(self._expected_s - self._planned_done_s, 0.0) * slower)} left"

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Write the line again and again; leave the terminal's line empty for what comes after."""
        writing = asyncio.create_task(self._show())
        try:
            yield
        finally:
            writing.cancel()
            self._clear_line()
            self._out.flush()

    async def _show(self) -> None:
        while True:
            await asyncio.sleep(TERMINAL_S if self._terminal else LOG_S)
            if self._now or self._warming:
                self._clear_line()
                self._out.write(self.line() if self._terminal else f"{self.line()}\n")
                self._out.flush()

    def _clear_line(self) -> None:
        if self._terminal:
            self._out.write_control(CLEAR)
