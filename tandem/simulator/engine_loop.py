"""The engine against the real clock: what the process model plans is delivered when its time has come.

Invariant: a step begins where the one before it was planned to end, never where it was noticed to have ended, so that
errors of timing do not add up; what is delivered was made ready before it was due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from tandem.simulator.engine import BatchingEngine, EngineRequest, EngineSteps
from tandem.simulator.metrics_page import MetricsPage

_TIMER_RESOLUTION_S = (
    0.0006  # the event loop's timers are of a millisecond: the rest is waited for in turns of the loop
)


class BurstListener(Protocol):
    """Who takes the bursts of one job."""

    @property
    def finish_reason(self) -> str:
        """How its answer ends."""

    @property
    def max_tokens(self) -> int:
        """Most tokens that it asked for."""

    def prepare(self, count: int, due_s: float, *, last: bool) -> Callable[[], None]:
        """Make a burst ready; what is returned hands it over."""


async def sleep_until(deadline_s: float) -> None:
    """Return at a time of the monotonic clock, less than a millisecond late where the machine is idle."""
    while (remaining_s := deadline_s - time.monotonic()) > 0:  # noqa: ASYNC110 - a time is waited for, no event
        await asyncio.sleep(remaining_s - _TIMER_RESOLUTION_S if remaining_s > _TIMER_RESOLUTION_S else 0)


class EngineLoop:
    """Runs one engine as long as its task lives."""

    def __init__(self, engine: BatchingEngine, metrics_page: MetricsPage) -> None:
        self.engine, self.metrics_page = engine, metrics_page
        self._listeners: dict[EngineRequest, BurstListener] = {}
        self._arrival = asyncio.Event()

    def submit(self, engine_request: EngineRequest, listener: BurstListener) -> None:
        """Let a request wait for its turn."""
        self._listeners[engine_request] = listener
        self.engine.submit(engine_request)
        self._arrival.set()

    def drop(self, engine_request: EngineRequest) -> None:
        """Forget a request whose client went away; one that has ended is forgotten already."""
        self.engine.drop(engine_request)
        listener = self._listeners.pop(engine_request, None)
        if listener is not None:
            self.metrics_page.record_end(engine_request, "abort", listener.max_tokens)

    async def run(self) -> None:
        """Do steps for ever."""
        step_start_s = 0.0
        while True:
            while not (self.engine.waiting or self.engine.running):
                self._arrival.clear()
                await self._arrival.wait()
            if not self.engine.running:
                step_start_s = max(step_start_s, self.engine.waiting[0].arrived_s)
            steps = self.engine.begin(step_start_s)
            if steps is not None:
                await self._execute_steps(steps)
                step_start_s = steps.end_s

    async def _execute_steps(self, steps: EngineSteps) -> None:
        deliveries = [(engine_request, self._prepare(steps, engine_request)) for engine_request in steps.requests]
        await sleep_until(steps.end_s)
        for engine_request, deliver in deliveries:
            if engine_request in self._listeners:
                deliver()
        finished_requests = [
            (engine_request, self._listeners.pop(engine_request)) for engine_request in self.engine.end(steps)
        ]
        await asyncio.sleep(0)  # the writers' turn; whoever reads their last byte and then the metrics finds it counted
        self.metrics_page.record_steps(steps)
        for engine_request, listener in finished_requests:
            self.metrics_page.record_end(engine_request, listener.finish_reason, listener.max_tokens)
        for engine_request in steps.requests:
            if engine_request not in self._listeners:  # ended, or gone in the middle of the step
                self.metrics_page.forget(engine_request)

    def _prepare(self, steps: EngineSteps, engine_request: EngineRequest) -> Callable[[], None]:
        first = steps.kind == "prefill"
        tokens = 1 if first else int(engine_request.bursts[engine_request.step_count])
        last = not len(engine_request.bursts) if first else engine_request.step_count + 1 == len(engine_request.bursts)
        return self._listeners[engine_request].prepare(tokens, steps.end_s, last=last)
