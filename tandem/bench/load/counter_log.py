"""The counters of a run's servers, read around each turn and kept in counters.jsonl.

Invariant: no fault of a server's page ends a run; it is noted once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from tandem.bench.load.arm_notes import is_same_server
from tandem.bench.load.loops import ArmSession
from tandem.bench.load.metrics_scraper import read_counters
from tandem.bench.plan.request_plan import ALL_CLASSES, PlanItem, PlanTurn
from tandem.bench.records import counters, json_file
from tandem.bench.records.counters import OWN_MODEL, AskedWork, MetricsScrape
from tandem.bench.records.server_starts import ServerStarts, name_server

_SHARED = "another arm was measured at its address at the same time, and /metrics has both as one"


class CounterLog:
    """Writer of a run's scrapes.

    Args:
        folder: of the run, whose earlier scrapes tell the starts of its servers.
        note: takes a sentence for the manifest.
        start_numbers: name of a server to the number of its current start, of the servers that a
            command restarts; it may change.
    """

    def __init__(
        self, folder: Path, note: Callable[[str], None], start_numbers: Mapping[str, int]
    ) -> None:
        self._path = folder / counters.FILE
        self._note = note
        self._start_numbers = start_numbers
        self._starts = ServerStarts(counters.read_scrapes(self._path))
        # by server, since its last scrape
        self._asked_work: dict[str, AskedWork] = {}

    async def scrape_arms(
        self, arms: Sequence[ArmSession], turn: PlanTurn, when: Literal["before", "after"]
    ) -> dict[str, str | None]:
        """Record the counters of each arm, and return the start word of each arm's server.

        Raises:
            ExternalError: the disk takes no more.
        """
        scrapes = await asyncio.gather(*(self._scrape_arm(arm, turn, when) for arm in arms))
        scrapes = [
            scrape.drop_counters(_SHARED) if _is_shared(arm, scrape, arms) else scrape
            for arm, scrape in zip(arms, scrapes, strict=True)
        ]
        for scrape in scrapes:
            server = name_server(scrape.arm)
            if scrape.counters is not None:
                self._asked_work[server] = AskedWork(0, 0)
            json_file.append_json(self._path, scrape, label="the counters")
            # a control has the baseline's page
            if scrape.error is not None and scrape.arm == server:
                self._note(
                    f"{server} gives no counters ({scrape.error}): its acceptance may be absent"
                )
        starts = {scrape.arm: self._name_start(scrape) for scrape in scrapes}
        for server, reason in self._starts.replicas.items():
            self._note(f"{server}: several servers answer at its address: {reason}")
        return starts

    def forget_work(self, server: str) -> None:
        """Forget what a server was sent: it was restarted, and its warm-up is counted nowhere."""
        self._asked_work.pop(server, None)

    def _name_start(self, scrape: MetricsScrape) -> str | None:
        """Return the start word: the page's, or the number of the restart where it has no time."""
        server = name_server(scrape.arm)
        word = self._starts.identify_start(scrape)
        number = self._start_numbers.get(server)
        has_own_word = scrape.began_s is not None or server in self._starts.replicas
        return word if number is None or has_own_word else str(number)

    async def _scrape_arm(
        self, arm: ArmSession, turn: PlanTurn, when: Literal["before", "after"]
    ) -> MetricsScrape:
        asked_work = self._asked_work.get(name_server(arm.name))
        page, error = await read_counters(arm.client, arm.models)
        block = turn.block
        return MetricsScrape(
            at_s=time.monotonic(),
            arm=arm.name,
            class_=None if block.class_ == ALL_CLASSES else block.class_,
            concurrency=block.load.concurrency,
            rate_per_s=block.load.rate_per_s,
            round=turn.round,
            slot=turn.slot,
            when=when,
            counters=page,
            error=error,
            utc_s=time.time(),
            asked_requests=asked_work.requests if asked_work else None,
            asked_tokens=asked_work.tokens if asked_work else None,
        )

    def count_work(self, arm: str, items: Sequence[PlanItem]) -> None:
        """Count a turn's requests to the arm's server, for the next scrape of its counters.

        Before the first scrape of this process nothing is counted: what others sent meanwhile is
        not known.
        """
        server = name_server(arm)
        work = self._asked_work.get(server)
        if work is not None:
            most_tokens = sum(item.entry.max_tokens for item in items)
            self._asked_work[server] = AskedWork(
                work.requests + len(items), work.tokens + most_tokens
            )


def _is_shared(arm: ArmSession, scrape: MetricsScrape, arms: Sequence[ArmSession]) -> bool:
    """Return whether the counters of an arm's page are also those of another arm of the turn."""
    if not scrape.counters:
        return False
    own = arm.client.arm
    others = [other.client.arm for other in arms if other is not arm]
    return any(
        is_same_server(own, other)
        and (own.model == other.model or OWN_MODEL not in scrape.counters)
        for other in others
    )
