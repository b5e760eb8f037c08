"""The pause of an arm after repeated failures: the run ends if the arm does not recover.

Invariant: a failure is recorded before it is counted here; no request is sent to a paused arm, and
no request is sent again because of a pause.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tandem.bench.load.client import CompletionClient
from tandem.bench.load.interrupt import StopSignal
from tandem.bench.load.metrics_scraper import is_alive
from tandem.bench.plan.estimate import format_duration
from tandem.errors import SilentServerError

MAX_FAILURES = 5  # in a row, over all workers of the arm
MAX_WAIT_S = 300.0  # a restarted pod loads its model in minutes
POLL_S = 1.0  # between two checks of a paused arm
MESSAGE_INTERVAL_S = 30.0  # between two messages about the same wait


@dataclass(slots=True)
class CircuitBreaker:
    """Pause of one arm's requests.

    Args:
        client: of the arm's server.
        stop: gets a SilentServerError if the arm does not recover.
        notify: shows a sentence to the operator.
        wait_s: longest wait for a paused arm, in seconds.
    """

    client: CompletionClient
    stop: StopSignal
    notify: Callable[[str], None]
    wait_s: float = MAX_WAIT_S
    _failures: int = field(default=0, init=False)
    _first_failed: str | None = field(default=None, init=False)  # of those in a row
    _check_task: asyncio.Task[None] | None = field(default=None, init=False)

    def count_outcome(self, error: str | None, request_id: str) -> None:
        """Count the outcome of a request: its error word, or None, and its id."""
        self._failures = self._failures + 1 if error else 0
        if self._failures <= 1:
            self._first_failed = request_id if error else None
        if self._failures >= MAX_FAILURES:
            reason = f"{MAX_FAILURES} requests in a row failed ({error})"
            self.trip(f"{reason}, the first of them {self._first_failed}")

    def trip(self, reason: str) -> None:
        """Pause the arm until /health answers.

        Args:
            reason: of the pause, for the operator.
        """
        if self._check_task is None:
            self._check_task = asyncio.create_task(self._wait_for_recovery(reason))

    async def wait_until_closed(self) -> None:
        """Wait until the arm may get requests, or the run must end."""
        while self._check_task is not None and not self.stop.is_requested:
            await asyncio.shield(self._check_task)

    async def _wait_for_recovery(self, reason: str) -> None:
        arm = self.client.arm.name
        url = self.client.arm.root
        start_s = time.monotonic()
        next_message_s = 0.0
        while not self.stop.is_requested and not await is_alive(self.client):
            elapsed_s = time.monotonic() - start_s
            if elapsed_s > self.wait_s:
                problem = f"{arm} went down and did not come back in {format_duration(elapsed_s)}"
                if self._first_failed is not None:
                    problem += f"; the first request that failed was {self._first_failed}"
                change = (
                    "bring the server back, then run again with --resume; what was recorded is kept"
                )
                self.stop.request(
                    "failed", SilentServerError(problem, where=url, change=change), grace_s=0
                )
            elif elapsed_s >= next_message_s:
                next_message_s += MESSAGE_INTERVAL_S
                wait = f"waiting for it up to {format_duration(self.wait_s - elapsed_s)}"
                self.notify(f"{arm} is paused: {reason} and {url}/health does not answer; {wait}")
            await self.stop.sleep(POLL_S)
        if next_message_s and not self.stop.is_requested:
            self.notify(f"{arm} is back after {format_duration(time.monotonic() - start_s)}")
        self._failures = 0
        self._check_task = None
