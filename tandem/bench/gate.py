"""What happens when an arm fails again and again: it is paused until it is well, and the run ends if it stays ill.

Invariant: a failure is recorded before it is counted here; no request is sent while the gate is shut, and nothing is
ever asked twice for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tandem.bench.estimate import spoken
from tandem.bench.fault import WorldError
from tandem.bench.interrupt import Stop

FAILURES = 5  # in a row, over all workers of the arm
WAIT_S = 300.0  # a pod that is started again loads its model in minutes
POLL_S = 1.0  # between two looks at a paused arm
TOLD_S = 30.0  # between two sentences about the same wait


@dataclass(slots=True, kw_only=True)
class Gate:
    """Lets an arm's requests through, or holds them back.

    Args:
        arm: its name.
        url: its address, for messages.
        alive: asks whether the arm's server answers.
        stop: ended with 3 when the arm stays ill.
        tell: says a sentence to the operator.
        wait_s: how long a paused arm is waited for.
    """

    arm: str
    url: str
    alive: Callable[[str], Awaitable[bool]]
    stop: Stop
    tell: Callable[[str], None]
    wait_s: float = WAIT_S
    _failures: int = field(default=0, init=False)
    _look: asyncio.Task[None] | None = field(default=None, init=False)

    def count(self, error: str | None) -> None:
        """Count the outcome of a request: its error word, or None."""
        self._failures = self._failures + 1 if error else 0
        if self._failures >= FAILURES:
            self.doubt(f"{FAILURES} requests in a row failed ({error})")

    def doubt(self, why: str) -> None:
        """Shut the gate and look at the arm: it opens again as soon as the arm answers.

        Args:
            why: what speaks against the arm, for the operator.
        """
        if self._look is None:
            self._look = asyncio.create_task(self._until_well(why))

    async def passed(self) -> None:
        """Wait until the arm may be asked, or the run is to end."""
        while self._look is not None and not self.stop.asked:
            await asyncio.shield(self._look)

    async def _until_well(self, why: str) -> None:
        try:
            if not await self.alive(self.arm):
                await self._wait(why)
        finally:
            self._failures, self._look = 0, None

    async def _wait(self, why: str) -> None:
        began = told = time.monotonic()
        self.tell(
            f"{self.arm} is paused: {why} and {self.url}/health does not answer; waiting for it up to "
            f"{spoken(self.wait_s)}"
        )
        while not self.stop.asked:
            await self.stop.sleep(POLL_S)
            if await self.alive(self.arm):
                self.tell(f"{self.arm} is back after {spoken(time.monotonic() - began)}")
                return
            gone = time.monotonic() - began
            if gone > self.wait_s:
                self.stop.ask("failed", self._gone(gone), grace_s=0)
            elif time.monotonic() - told > TOLD_S:
                told = time.monotonic()
                self.tell(f"{self.arm} is still away; ending in {spoken(self.wait_s - gone)}")

    def _gone(self, seconds: float) -> WorldError:
        return WorldError(
            f"{self.arm} went down and did not come back in {spoken(seconds)}; what was recorded is kept",
            where=self.url,
            change="bring the server back, then run again with --resume",
        )
