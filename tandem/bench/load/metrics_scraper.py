"""A server's pages outside its API: its health and its counters.

Invariant: nothing here is timed or counted as a request, and no failure of these pages fails a run.
The client of the requests reads a page over a new connection; a page has a limit, and no redirect
is followed.
"""

from __future__ import annotations

from collections.abc import Collection

from tandem.bench.load.client import CompletionClient
from tandem.bench.load.event import EventError
from tandem.bench.load.reply import read_page
from tandem.bench.records.counters import parse_page
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


async def read_counters(
    client: CompletionClient, models: Collection[str]
) -> tuple[dict[str, float] | None, str | None]:
    """Return the counters of /metrics, or the reason why they cannot be read.

    Args:
        client: of the arm.
        models: names of its model.
    """
    reply = await client.get("/metrics", PAGE_TIMEOUTS, limit_bytes=METRICS_BYTES, apart=True)
    try:
        return parse_page(read_page(reply).decode(), models), None
    except EventError as fault:
        word = fault.word.replace("_", " ")
        return None, f"/metrics: {word}{fault.detail and f': {fault.detail}'}"
    except (TandemError, UnicodeDecodeError) as fault:
        return None, str(fault)
