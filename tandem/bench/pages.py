"""The pages of a server beside its API: whether it is alive, and what it counted.

Invariant: nothing here is timed or counted as a request, and no failure of these pages fails a run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import aiohttp

from tandem.bench import json_file
from tandem.bench.counters import FILE, Scrape, parse
from tandem.bench.fault import BenchError
from tandem.bench.plan import MIXED, Turn
from tandem.bench.wire import Server

PAGE_S = 5.0  # vLLM gives either page in milliseconds; one that cannot in seconds is not well
HTTP_OK, SERVER_FAULTS = 200, 500


class Pages:
    """Asks servers for /health and /metrics over connections of its own; an async context manager."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = {server.name: server for server in servers}

    async def __aenter__(self) -> Self:
        """Open the session."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PAGE_S))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        await self._session.close()

    async def alive(self, arm: str) -> bool:
        """Return whether the arm answers /health; a server that has no such page answers too."""
        try:
            async with self._session.get(self._url(arm, "/health"), headers=self._headers(arm)) as answer:
                return answer.status < SERVER_FAULTS
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def scrape(self, arm: str, turn: Turn, when: Literal["before", "after"]) -> Scrape:
        """Read the arm's /metrics; what cannot be read is a scrape with its reason."""
        counters, error = None, None
        try:
            counters = parse(await self._metrics(arm))
        except (aiohttp.ClientError, OSError, TimeoutError, BenchError, UnicodeDecodeError) as failure:
            error = str(failure) or type(failure).__name__
        return Scrape(
            at_s=time.monotonic(), arm=arm, class_=None if turn.block.class_ == MIXED else turn.block.class_,
            concurrency=turn.block.load.concurrency, rate_per_s=turn.block.load.rate_per_s,
            round=turn.round, slot=turn.slot, when=when, counters=counters, error=error,
        )  # fmt: skip

    async def _metrics(self, arm: str) -> str:
        async with self._session.get(self._url(arm, "/metrics"), headers=self._headers(arm)) as answer:
            if answer.status != HTTP_OK:
                raise BenchError(f"status {answer.status}", where="/metrics", change="serve it to have acceptance")
            return await answer.text("utf-8")

    def _url(self, arm: str, page: str) -> str:
        return self._servers[arm].root + page

    def _headers(self, arm: str) -> dict[str, str]:
        key = self._servers[arm].api_key
        return {"Authorization": f"Bearer {key}"} if key else {}


def append(folder: Path, scrape: Scrape) -> None:
    """Append one scrape to the run's counters.

    Raises:
        WorldError: the disk took no more.
    """
    json_file.append(folder / FILE, scrape, what="the counters")
