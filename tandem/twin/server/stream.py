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

from tandem.twin.server.clock import sleep_until
from tandem.twin.server.frames import Wire
from tandem.twin.server.knobs import FaultKnobs
from tandem.twin.server.truth import Truth


@dataclass(frozen=True, slots=True)
class Burst:
    """What is written at once.

    Args:
        due_s: when. tokens: how many its frame tells. data: its bytes. last: nothing follows.
    """

    due_s: float
    tokens: int
    data: bytes
    last: bool


class Stream:
    """Takes the bursts of one job and gives them to its writer.

    Args:
        wire: makes its frames of its script. max_tokens: what was asked for.
        fault: what goes wrong with it; None for nothing. truth: what is noted of it.
    """

    def __init__(self, wire: Wire, max_tokens: int, fault: FaultKnobs | None, truth: Truth) -> None:
        self.max_tokens = max_tokens
        self._wire, self._fault, self._truth = wire, fault, truth
        self._tokens = wire.script.begin()
        self._at = self._held = self._written = 0
        self._bursts: asyncio.Queue[Burst] = asyncio.Queue()
        self._shift_s = 0.0

    @property
    def finish_reason(self) -> str:
        """How its answer ends."""
        return self._wire.script.finish_reason

    def prepare(self, count: int, due_s: float, *, last: bool) -> Callable[[], None]:
        """Make the frame of the next `count` tokens; what is returned gives it to the writer."""
        tokens = list(itertools.islice(self._tokens, count))
        opening = self._wire.opening() if self._at == 0 else b""
        data = self._wire.burst(tokens, last=last) if self._wire.ask.stream else b""
        self._at, self._held = self._at + count, self._held + count
        told = self._held if data or not self._wire.ask.stream else 0  # what no frame tells is told with the next
        self._held -= told
        burst = Burst(due_s, told, opening + data + (self._wire.closing() if last else b""), last)
        return lambda: self._bursts.put_nowait(burst)

    async def write(self, request: web.Request, response: web.StreamResponse) -> None:
        """Write every burst when it is due; return after the last one, or where a fault drops the connection.

        Raises:
            ConnectionError: the client went away.
        """
        async for burst in self._due():
            if self._meets("drop") and self._written >= self._after:
                self._cut(request)
                return
            if burst.data:
                await response.write(burst.data)
            self._note(burst)

    async def wait(self) -> None:
        """Return when the last burst is due, for an answer that is sent whole."""
        async for burst in self._due():
            self._note(burst)

    def gone(self) -> None:
        """Note that the client left, unless a fault made it."""
        self._truth.fault = self._truth.fault or "gone"

    async def _due(self) -> AsyncIterator[Burst]:
        while True:
            burst = await self._bursts.get()
            if self._written == self._stalls_before:
                self._shift_s = self._fault.seconds if self._fault else 0.0
            due_s = burst.due_s + self._shift_s
            if self._shift_s:
                await sleep_until(due_s)
            yield burst
            if burst.last:
                return

    def _note(self, burst: Burst) -> None:
        if not burst.tokens:
            return
        self._truth.bursts.append((time.monotonic(), burst.tokens))
        self._truth.due_s.append(burst.due_s + self._shift_s)
        self._truth.completion_tokens += burst.tokens
        self._written += 1

    def _meets(self, kind: str) -> bool:
        return self._fault is not None and self._fault.kind == kind

    @property
    def _after(self) -> int:
        return self._fault.after_bursts if self._fault else 0

    @property
    def _stalls_before(self) -> int:
        """Return the burst from which all come later; -1 for none."""
        if self._meets("slow_first_token"):
            return 0
        return self._after if self._meets("stall") else -1

    @staticmethod
    def _cut(request: web.Request) -> None:
        if request.transport is not None:
            request.transport.close()
