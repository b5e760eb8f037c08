"""Which start of its server's process an arm met: by the time its page states, else by counters that fell.

Invariant: two words differ only where the server was started between them, as far as its page can tell.

A vLLM with one API server states `process_start_time_seconds`. One whose processes share their counters in files does
not (PROMETHEUS_MULTIPROC_DIR: vLLM's V0 front end, several API servers, and vLLM's Neuron package, which sets it when
it is imported). Every start begins its counters at 0, so there a start is a number, raised where a counter fell.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tandem.bench import counters
from tandem.bench.counters import MetricsScrape
from tandem.bench.schedule import CONTROL_SUFFIX


class ServerRestarts:
    """Tells the start of every scrape, which come in the order they were made.

    Args:
        folder: of the run; what it has scraped before is gone on from.

    Raises:
        BenchError: a line of its scrapes is none.
    """

    def __init__(self, folder: Path) -> None:
        self._last_counters: dict[str, Mapping[str, float]] = {}
        self._start_numbers: dict[str, int] = {}
        for scrape in counters.read_scrapes(folder / counters.FILE):
            self.identify_start(scrape)

    def identify_start(self, scrape: MetricsScrape) -> str | None:
        """Return a word for the start that this scrape saw; None where the page could not be had."""
        server, counters_page = scrape.arm.removesuffix(CONTROL_SUFFIX), scrape.counters
        if counters_page is None or not (counters_page or self._last_counters.get(server)):
            return None  # V0 shows nothing before its first request
        previous, self._last_counters[server] = self._last_counters.get(server), counters_page
        if scrape.start is not None:
            return scrape.start
        if previous is not None and isinstance(counters.compute_difference(previous, counters_page), str):
            self._start_numbers[server] = self._start_numbers.get(server, 1) + 1
        return str(self._start_numbers.get(server, 1))
