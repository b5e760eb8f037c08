"""The pages of a server beside its API: whether it is alive, and what it counted.

Invariant: nothing here is timed or counted as a request, and no failure of these pages fails a run. A page is read by
the client of the requests, so it has a limit and no redirect is followed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tandem.bench import json_file
from tandem.bench.body import read_page
from tandem.bench.client import Client
from tandem.bench.counters import FILE, Scrape, parse
from tandem.bench.event import EventError
from tandem.bench.fault import BenchError
from tandem.bench.plan import MIXED, Turn
from tandem.bench.response_limits import METRICS_BYTES
from tandem.bench.wire import Server, TimeOuts

PAGE_S = 5.0  # vLLM gives either page in milliseconds; one that cannot in seconds is not well
PAGE_TIMEOUTS = TimeOuts(connect_s=PAGE_S, first_token_s=PAGE_S, gap_s=PAGE_S, whole_s=PAGE_S)
SERVER_FAULTS = 500


class Pages:
    """Asks servers for /health and /metrics over connections of its own; an async context manager."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._clients = {server.name: Client(server, limit=0) for server in servers}

    async def __aenter__(self) -> Self:
        """Open the sessions."""
        async with contextlib.AsyncExitStack() as stack:
            for client in self._clients.values():
                await stack.enter_async_context(client)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        await self._stack.aclose()

    async def alive(self, arm: str) -> bool:
        """Return whether the arm answers /health; a server that has no such page answers too."""
        reply = await self._clients[arm].get("/health", PAGE_TIMEOUTS)
        return reply.status is not None and reply.status < SERVER_FAULTS

    async def scrape(self, arm: str, turn: Turn, when: Literal["before", "after"]) -> Scrape:
        """Read the arm's /metrics; what cannot be read is a scrape with its reason."""
        counters, error = None, None
        reply = await self._clients[arm].get("/metrics", PAGE_TIMEOUTS, limit_bytes=METRICS_BYTES)
        try:
            counters = parse(read_page(reply).decode())
        except EventError as bad:
            error = f"/metrics: {bad.word.replace('_', ' ')}{f': {bad.detail}' if bad.detail else ''}"
        except (BenchError, UnicodeDecodeError) as failure:
            error = str(failure)
        return Scrape(
            at_s=time.monotonic(), arm=arm, class_=None if turn.block.class_ == MIXED else turn.block.class_,
            concurrency=turn.block.load.concurrency, rate_per_s=turn.block.load.rate_per_s,
            round=turn.round, slot=turn.slot, when=when, counters=counters, error=error,
        )  # fmt: skip


def append(folder: Path, scrape: Scrape) -> None:
    """Append one scrape to the run's counters.

    Raises:
        WorldError: the disk took no more.
    """
    json_file.append(folder / FILE, scrape, what="the counters")
