"""A server's pages outside its API: its health, its counters, and the start of its process.

Invariant: nothing here is timed or counted as a request, and no failure of these pages fails a run. The client of the
requests reads a page over a new connection; a page has a limit, and no redirect is followed. Two start words differ
only if the server was restarted between them, as far as its page shows.

A vLLM with one API server gives `process_start_time_seconds`. A vLLM whose processes share their counters in files
does not (PROMETHEUS_MULTIPROC_DIR: vLLM's V0 front end, several API servers, and vLLM's Neuron package, which sets the
variable on import). Counters begin at 0 after every start, so for such a server the start is a number that rises when
a counter falls.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from tandem.bench import counters
from tandem.bench.client import CompletionClient
from tandem.bench.counters import MetricsScrape, parse_page
from tandem.bench.event import EventError
from tandem.bench.manifest import Timeouts
from tandem.bench.plan import ALL_CLASSES, PlanTurn
from tandem.bench.reply import read_page
from tandem.bench.schedule import CONTROL_SUFFIX
from tandem.errors import TandemError


class ServerRestarts:
    """Start of the server's process for every scrape; scrapes come in the order of their times.

    Args:
        folder: of the run; its earlier scrapes are read first.

    Raises:
        InputError: a line of the file of scrapes is no scrape.
    """

    def __init__(self, folder: Path) -> None:
        self._last_counters: dict[str, Mapping[str, float]] = {}
        self._start_numbers: dict[str, int] = {}
        for scrape in counters.read_scrapes(folder / counters.FILE):
            self.identify_start(scrape)

    def identify_start(self, scrape: MetricsScrape) -> str | None:
        """Return a word for the server's start at this scrape; None if the page gives none."""
        server, counters_page = scrape.arm.removesuffix(CONTROL_SUFFIX), scrape.counters
        if counters_page is None or not (counters_page or self._last_counters.get(server)):
            return None  # V0 shows nothing before its first request
        previous, self._last_counters[server] = self._last_counters.get(server), counters_page
        if scrape.start is not None:
            return scrape.start
        if previous is not None and isinstance(counters.compute_difference(previous, counters_page), str):
            self._start_numbers[server] = self._start_numbers.get(server, 1) + 1
        return str(self._start_numbers.get(server, 1))


PAGE_TIMEOUT_S = 5.0  # vLLM gives either page in milliseconds; a server that needs seconds is unhealthy
PAGE_TIMEOUTS = Timeouts(**dict.fromkeys(Timeouts.__struct_fields__, PAGE_TIMEOUT_S))
SERVER_ERROR_STATUS = 500
METRICS_BYTES = 8 << 20  # limit of a page: a vLLM with all its histograms gives less than 1 MiB


async def is_alive(client: CompletionClient) -> bool:
    """Return whether the server answers /health; a status below 500 counts, e.g. 404."""
    reply = await client.get("/health", PAGE_TIMEOUTS, apart=True)
    return reply.status is not None and reply.status < SERVER_ERROR_STATUS


async def scrape_metrics(
    client: CompletionClient, arm: str, turn: PlanTurn, when: Literal["before", "after"]
) -> MetricsScrape:
    """Read the server's /metrics for `arm`; return a scrape with the reason if the page cannot be read."""
    page, error, block = None, None, turn.block
    reply = await client.get("/metrics", PAGE_TIMEOUTS, limit_bytes=METRICS_BYTES, apart=True)
    try:
        page = parse_page(read_page(reply).decode())
    except EventError as fault:
        error = f"/metrics: {fault.word.replace('_', ' ')}{fault.detail and f': {fault.detail}'}"
    except (TandemError, UnicodeDecodeError) as fault:
        error = str(fault)
    return MetricsScrape(
        at_s=time.monotonic(), arm=arm, class_=None if block.class_ == ALL_CLASSES else block.class_,
        concurrency=block.load.concurrency, rate_per_s=block.load.rate_per_s, round=turn.round, slot=turn.slot,
        when=when, counters=page, error=error,
    )  # fmt: skip
