"""What the servers' counters say of a run, by arm and class, all loads summed; by the functions of the summary.

Invariant: a turn is that of the summary: what one server counted between two scrapes, held against the records of the
same turn. Loads are summed and not averaged, so that a figure is that of all steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tandem.bench import counters, throughput
from tandem.bench.request_table import RequestTable
from tandem.bench.schedule import TurnKey
from tandem.bench.throughput import TurnRequests


@dataclass(frozen=True)
class ServerCounters:
    """What was counted: figures by arm and class, under loads without concurrency and rate; why turns were dropped."""

    figures: throughput.TurnMetrics
    drop_reasons: tuple[str, ...]

    def list_limits(self, arm: str) -> tuple[str, ...]:
        """Return what limits the counters of an arm."""
        doubts = [sentence for (doubt_arm, sentence), _ in self.figures.sentences.items() if doubt_arm == arm]
        prefix = f"{arm}: "
        return (*doubts, *(reason.removeprefix(prefix) for reason in self.drop_reasons if reason.startswith(prefix)))


def read_server_counters(table: RequestTable) -> ServerCounters:
    """Read the counters of a run.

    Raises:
        BenchError: a line of counters.jsonl that is no scrape.
    """
    changes, drop_reasons = counters.pair_scrapes(counters.read_scrapes(table.folder / counters.FILE))
    numbers: dict[TurnKey, int] = {turn: number for number, (turn, _) in enumerate(changes)}

    def strip_load(turn: TurnKey) -> TurnKey:
        """Return a turn as one of its arm and class at no load in particular; its number keeps it apart from others."""
        number = numbers.setdefault(turn, len(numbers))
        return turn._replace(concurrency=None, rate_per_s=None, round=number, slot=0)

    requests = TurnRequests.select(table, np.full(len(table), bool(changes)))
    scraped_turns = [turn.pool_classes() if turn.pool_classes() in numbers else turn for turn in requests.turns]
    figures = throughput.compute_acceptance(
        [(strip_load(turn), change) for turn, change in changes],
        {arm.name: arm for arm in table.run.arms},
        requests.rename_turns([strip_load(turn) for turn in scraped_turns]),
    )
    return ServerCounters(figures, tuple(drop_reasons))
