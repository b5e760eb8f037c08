"""A server's pages outside its API: its health and its counters.

Invariant: nothing here is timed or counted as a request, and no failure of these pages fails a run.
The client of the requests reads a page over a new connection; a page has a limit, and no redirect
is followed.
"""

from __future__ import annotations

import time
from typing import Literal

from tandem.bench.load.client import CompletionClient
from tandem.bench.load.event import EventError
from tandem.bench.load.reply import read_page
from tandem.bench.plan.request_plan import ALL_CLASSES, PlanTurn
from tandem.bench.records.counters import AskedWork, MetricsScrape, parse_page
from tandem.bench.records.manifest import Timeouts
from tandem.errors import TandemError

# vLLM gives either page in milliseconds; a server that needs seconds is unhealthy
PAGE_TIMEOUT_S = 5.0
PAGE_TIMEOUTS = Timeouts(**dict.fromkeys(Timeouts.__struct_fields__, PAGE_TIMEOUT_S))
SERVER_ERROR_STATUS = 500
METRICS_BYTES = 8 << 20  # limit of a page: a vLLM with all its histograms gives less than 1 MiB


async def is_alive(client: CompletionClient) -> bool:
    """Return whether the server answers /health; a status below 500 counts, e.g. 404."""
    reply = await client.get("/health", PAGE_TIMEOUTS, apart=True)
    return reply.status is not None and reply.status < SERVER_ERROR_STATUS


async def scrape_metrics(
    client: CompletionClient,
    arm: str,
    turn: PlanTurn,
    when: Literal["before", "after"],
    *,
    asked: AskedWork | None = None,
) -> MetricsScrape:
    """Read /metrics for `arm`; return a scrape, with the reason where the page cannot be read.

    Args:
        client: of the arm.
        arm: its name.
        turn, when: where in the run the scrape stands.
        asked: of the server since its last scrape; None if that is not known.
    """
    page = None
    error = None
    block = turn.block
    reply = await client.get("/metrics", PAGE_TIMEOUTS, limit_bytes=METRICS_BYTES, apart=True)
    try:
        page = parse_page(read_page(reply).decode())
    except EventError as fault:
        error = f"/metrics: {fault.word.replace('_', ' ')}{fault.detail and f': {fault.detail}'}"
    except (TandemError, UnicodeDecodeError) as fault:
        error = str(fault)
    return MetricsScrape(
        at_s=time.monotonic(),
        arm=arm,
        class_=None if block.class_ == ALL_CLASSES else block.class_,
        concurrency=block.load.concurrency,
        rate_per_s=block.load.rate_per_s,
        round=turn.round,
        slot=turn.slot,
        when=when,
        counters=page,
        error=error,
        utc_s=time.time(),
        asked_requests=asked.requests if asked else None,
        asked_tokens=asked.tokens if asked else None,
    )
