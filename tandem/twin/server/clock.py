"""The engine against the real clock: what the process model plans is delivered when its time has come.

Invariant: a step begins where the one before it was planned to end, never where it was noticed to have ended, so that
errors of timing do not add up; what is delivered was made ready before it was due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from tandem.twin.server.metrics import Page
from tandem.twin.server.process import Engine, Job, Steps

_NEAR_S = 0.0006  # the event loop's timers are of a millisecond: the rest is waited for in turns of the loop


class Listener(Protocol):
    """Who takes the bursts of one job."""

    @property
    def finish_reason(self) -> str:
        """How its answer ends."""

    @property
    def max_tokens(self) -> int:
        """Most tokens that it asked for."""

    def prepare(self, count: int, due_s: float, *, last: bool) -> Callable[[], None]:
        """Make a burst ready; what is returned hands it over."""


async def sleep_until(at_s: float) -> None:
    """Return at a time of the monotonic clock, less than a millisecond late where the machine is idle."""
    while (left := at_s - time.monotonic()) > 0:  # noqa: ASYNC110 - a time is waited for, no event
        await asyncio.sleep(left - _NEAR_S if left > _NEAR_S else 0)


class Pace:
    """Runs one engine as long as its task lives."""

    def __init__(self, engine: Engine, page: Page) -> None:
        self.engine, self.page = engine, page
        self._listeners: dict[Job, Listener] = {}
        self._arrived = asyncio.Event()

    def submit(self, job: Job, listener: Listener) -> None:
        """Let a request wait for its turn."""
        self._listeners[job] = listener
        self.engine.submit(job)
        self._arrived.set()

    def drop(self, job: Job) -> None:
        """Forget a request whose client went away; one that has ended is forgotten already."""
        self.engine.drop(job)
        listener = self._listeners.pop(job, None)
        if listener is not None:
            self.page.finished(job, "abort", listener.max_tokens)

    async def run(self) -> None:
        """Do steps for ever."""
        at_s = 0.0
        while True:
            while not (self.engine.waiting or self.engine.running):
                self._arrived.clear()
                await self._arrived.wait()
            if not self.engine.running:
                at_s = max(at_s, self.engine.waiting[0].arrived_s)
            steps = self.engine.begin(at_s)
            if steps is not None:
                await self._do(steps)
                at_s = steps.end_s

    async def _do(self, steps: Steps) -> None:
        ready = [(job, self._prepare(steps, job)) for job in steps.jobs]
        await sleep_until(steps.end_s)
        for job, hand_over in ready:
            if job in self._listeners:
                hand_over()
        ended = [(job, self._listeners.pop(job)) for job in self.engine.end(steps)]
        await asyncio.sleep(0)  # the writers' turn; whoever reads their last byte and then the metrics finds it counted
        self.page.step(steps)
        for job, listener in ended:
            self.page.finished(job, listener.finish_reason, listener.max_tokens)
        for job in steps.jobs:
            if job not in self._listeners:  # ended, or gone in the middle of the step
                self.page.forget(job)

    def _prepare(self, steps: Steps, job: Job) -> Callable[[], None]:
        first = steps.kind == "prefill"
        tokens = 1 if first else int(job.bursts[job.done])
        last = not len(job.bursts) if first else job.done + 1 == len(job.bursts)
        return self._listeners[job].prepare(tokens, steps.end_s, last=last)
