"""One request from its first burst to its last byte: frames made ready, written when due, and noted.

Invariant: each burst is noted after it was handed to the socket, with the tokens it held; a fault of the wire shifts
or cuts what is written and never what the engine does.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from aiohttp import web

from tandem.simulator.engine_loop import sleep_until
from tandem.simulator.frames import ResponseFrames
from tandem.simulator.server_log import RequestLogEntry
from tandem.simulator.settings import FaultSettings


@dataclass(frozen=True, slots=True)
class TokenBurst:
    """What is written at once.

    Args:
        due_s: when. tokens: how many its frame tells. data: its bytes. last: nothing follows.
    """

    due_s: float
    tokens: int
    content: bytes
    last: bool


class ResponseStream:
    """Takes the bursts of one job and gives them to its writer.

    Args:
        wire: makes its frames of its script. max_tokens: what was asked for.
        fault: what goes wrong with it; None for nothing. truth: what is noted of it.
    """

    def __init__(
        self, frames: ResponseFrames, max_tokens: int, fault: FaultSettings | None, entry: RequestLogEntry
    ) -> None:
        self.max_tokens = max_tokens
        self._frames, self._fault, self._entry = frames, fault, entry
        self._tokens = frames.plan.begin()
        self._token_index = self._pending_tokens = self._burst_count = 0
        self._bursts: asyncio.Queue[TokenBurst] = asyncio.Queue()
        self._shift_s = 0.0

    @property
    def finish_reason(self) -> str:
        """How its answer ends."""
        return self._frames.plan.finish_reason

    def prepare(self, count: int, due_s: float, *, last: bool) -> Callable[[], None]:
        """Make the frame of the next `count` tokens; what is returned gives it to the writer."""
        tokens = list(itertools.islice(self._tokens, count))
        opening = self._frames.opening() if self._token_index == 0 else b""
        frame_bytes = self._frames.burst(tokens, last=last) if self._frames.request.stream else b""
        self._token_index, self._pending_tokens = self._token_index + count, self._pending_tokens + count
        # what no frame tells is told with the next
        burst_tokens = self._pending_tokens if frame_bytes or not self._frames.request.stream else 0
        self._pending_tokens -= burst_tokens
        burst = TokenBurst(due_s, burst_tokens, opening + frame_bytes + (self._frames.closing() if last else b""), last)
        return lambda: self._bursts.put_nowait(burst)

    async def write(self, request: web.Request, response: web.StreamResponse) -> None:
        """Write every burst when it is due; return after the last one, or where a fault drops the connection.

        Raises:
            ConnectionError: the client went away.
        """
        async for burst in self._wait_bursts():
            if self._has_fault("drop") and self._burst_count >= self._fault_burst:
                self._close_connection(request)
                return
            if burst.content:
                await response.write(burst.content)
            self._note_burst(burst)

    async def wait(self) -> None:
        """Return when the last burst is due, for an answer that is sent whole."""
        async for burst in self._wait_bursts():
            self._note_burst(burst)

    def note_disconnect(self) -> None:
        """Note that the client left, unless a fault made it."""
        self._entry.fault = self._entry.fault or "gone"

    async def _wait_bursts(self) -> AsyncIterator[TokenBurst]:
        while True:
            burst = await self._bursts.get()
            if self._burst_count == self._stall_burst:
                self._shift_s = self._fault.seconds if self._fault else 0.0
            due_s = burst.due_s + self._shift_s
            if self._shift_s:
                await sleep_until(due_s)
            yield burst
            if burst.last:
                return

    def _note_burst(self, burst: TokenBurst) -> None:
        if not burst.tokens:
            return
        self._entry.bursts.append((time.monotonic(), burst.tokens))
        self._entry.due_s.append(burst.due_s + self._shift_s)
        self._entry.completion_tokens += burst.tokens
        self._burst_count += 1

    def _has_fault(self, kind: str) -> bool:
        return self._fault is not None and self._fault.kind == kind

    @property
    def _fault_burst(self) -> int:
        return self._fault.after_bursts if self._fault else 0

    @property
    def _stall_burst(self) -> int:
        """Return the burst from which all come later; -1 for none."""
        if self._has_fault("slow_first_token"):
            return 0
        return self._fault_burst if self._has_fault("stall") else -1

    @staticmethod
    def _close_connection(request: web.Request) -> None:
        if request.transport is not None:
            request.transport.close()
