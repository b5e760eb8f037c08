"""The engine in real time: each burst of the process model is written when planned, and logged.

Invariant: a step begins at the planned end of the step before, not at the observed end, so that
errors of timing do not add up; each burst is ready before its time. Each burst is logged after its
handover to the socket, with its number of tokens; a fault of the wire delays or cuts the written
bytes and never changes the engine's steps.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass

from aiohttp import web

from tandem.simulator.engine import BatchingEngine, EngineRequest, EngineSteps
from tandem.simulator.frames import ResponseFrames
from tandem.simulator.metrics_page import MetricsPage
from tandem.simulator.server_log import RequestLogEntry
from tandem.simulator.settings import FaultSettings

# the event loop's timers have a resolution of a millisecond: the rest is waited for in turns of the
# loop
_TIMER_RESOLUTION_S = 0.0006


async def sleep_until(deadline_s: float) -> None:
    """Return at a time of the monotonic clock, under a millisecond late on an idle machine."""
    while (remaining_s := deadline_s - time.monotonic()) > 0:  # noqa: ASYNC110 - a time is waited for, no event
        await asyncio.sleep(max(remaining_s - _TIMER_RESOLUTION_S, 0))


@dataclass(frozen=True)
class TokenBurst:
    """Bytes that are written at once.

    Args:
        due_s: planned time of the write.
        tokens: number of tokens that its frame reports.
        content: the bytes.
        last: whether this is the last burst.
    """

    due_s: float
    tokens: int
    content: bytes
    last: bool


class ResponseStream:
    """The bursts of one request, from the engine to the request's writer.

    Args:
        frames: makes the frames from the request's plan.
        max_tokens: most output tokens of the request.
        fault: of this request; None for none.
        entry: the request's line in the truth log.
    """

    def __init__(
        self,
        frames: ResponseFrames,
        max_tokens: int,
        fault: FaultSettings | None,
        entry: RequestLogEntry,
    ) -> None:
        self.frames = frames
        self.max_tokens = max_tokens
        self._entry = entry
        self._tokens = frames.plan.begin()
        self._token_index = 0
        self._pending_tokens = 0
        self._burst_count = 0
        self.bursts: asyncio.Queue[TokenBurst] = asyncio.Queue()
        kind = fault.kind if fault else None
        self._shift_s = 0.0
        self._stall_s = fault.seconds if fault else 0.0
        after_bursts = fault.after_bursts if fault else 0
        self._drop_burst = after_bursts if kind == "drop" else None
        # from this burst on all are late
        self._stall_burst = {"slow_first_token": 0, "stall": after_bursts}.get(kind or "")

    def prepare(self, count: int, due_s: float, *, last: bool) -> TokenBurst:
        """Return the burst of the next `count` tokens, with its frame."""
        tokens = list(itertools.islice(self._tokens, count))
        opening = self.frames.opening() if self._token_index == 0 else b""
        frame = b""
        if self.frames.request.stream:
            frame = self.frames.burst(tokens, last=last)
        self._token_index = self._token_index + count
        self._pending_tokens = self._pending_tokens + count
        # tokens without a frame are reported with the next frame
        frame_tokens = 0
        if frame or not self.frames.request.stream:
            frame_tokens = self._pending_tokens
        self._pending_tokens -= frame_tokens
        content = opening + frame
        if last:
            content += self.frames.closing()
        return TokenBurst(due_s, frame_tokens, content, last)

    async def write(self, request: web.Request, response: web.StreamResponse | None) -> None:
        """Write each burst at its time; return after the last or a fault that drops the connection.

        Args:
            response: None for an answer that is not streamed.

        Raises:
            ConnectionError: the client went away.
        """
        last = False
        while not last:
            burst = await self.bursts.get()
            last = burst.last
            if self._burst_count == self._stall_burst:
                self._shift_s = self._stall_s
            if self._shift_s:
                await sleep_until(burst.due_s + self._shift_s)
            if response and self._drop_burst is not None and self._burst_count >= self._drop_burst:
                if request.transport is not None:
                    request.transport.close()
                return
            if response and burst.content:
                await response.write(burst.content)
            if burst.tokens:
                self._entry.bursts.append((time.monotonic(), burst.tokens))
                self._entry.due_s.append(burst.due_s + self._shift_s)
                self._entry.completion_tokens += burst.tokens
                self._burst_count += 1


class EngineLoop:
    """The loop that runs one engine for as long as its task lives."""

    def __init__(self, engine: BatchingEngine, metrics_page: MetricsPage) -> None:
        self.engine = engine
        self.metrics_page = metrics_page
        self._streams: dict[EngineRequest, ResponseStream] = {}
        self._arrival = asyncio.Event()

    def submit(self, request: EngineRequest, stream: ResponseStream) -> None:
        """Add a request to the engine's queue."""
        self._streams[request] = stream
        self.engine.submit(request)
        self._arrival.set()

    def drop(self, request: EngineRequest) -> None:
        """Remove a request whose client went away; an ended one is already removed."""
        self.engine.drop(request)
        stream = self._streams.pop(request, None)
        if stream is not None:
            self.metrics_page.record_end(request, "abort", stream.max_tokens)

    async def run(self) -> None:
        """Run steps for ever."""
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
        bursts = []
        for request in steps.requests:
            is_first = steps.kind == "prefill"
            tokens = 1 if is_first else int(request.bursts[request.step_count])
            last = request.step_count + (not is_first) == len(request.bursts)
            bursts.append((request, self._streams[request].prepare(tokens, steps.end_s, last=last)))
        await sleep_until(steps.end_s)
        for request, burst in bursts:
            if request in self._streams:
                self._streams[request].bursts.put_nowait(burst)
        ends = [(request, self._streams.pop(request)) for request in self.engine.end(steps)]
        # the writers' turn; a client that reads metrics after its last byte finds it counted
        await asyncio.sleep(0)
        self.metrics_page.record_steps(steps)
        for request, stream in ends:
            self.metrics_page.record_end(
                request, stream.frames.plan.finish_reason, stream.max_tokens
            )
        for request in steps.requests:
            if request not in self._streams:  # ended, or gone in the middle of the step
                self.metrics_page.forget(request)
