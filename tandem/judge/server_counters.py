"""What the servers' counters say of a run, by arm and class, all loads summed; by the functions of the summary.

Invariant: a turn is that of the summary: what one server counted between two scrapes, held against the records of the
same turn. Loads are summed and not averaged, so that a figure is that of all steps.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from tandem.bench import counters, throughput
from tandem.bench.aggregate import ArmLoad, RequestRows, RequestTally, TurnPosition
from tandem.bench.columns import IntArray
from tandem.bench.counters import TurnKey
from tandem.bench.request_table import RequestTable


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
    turn_numbers: dict[TurnKey, int] = {}
    changes_by_arm = [(_strip_turn_load(turn, turn_numbers), change) for turn, change in changes]
    tally = _tally_records(table, turn_numbers) if changes else RequestTally()
    return ServerCounters(
        throughput.compute_acceptance(changes_by_arm, {arm.name: arm for arm in table.run.arms}, tally),
        tuple(drop_reasons),
    )


def _tally_records(table: RequestTable, turn_numbers: dict[TurnKey, int]) -> RequestTally:
    """Return what the records of each turn hold, under the names that its counters have."""
    mixed_turns = {turn[:1] + turn[2:] for turn in turn_numbers if turn[1] is None}
    columns = (table.arm, table.class_, table.load, table.round, table.slot)
    codes_by_key: dict[tuple[int, ...], int] = {}
    codes: dict[tuple[ArmLoad, TurnPosition], int] = {}
    row_codes = []
    for key in zip(*(column.tolist() for column in columns), strict=True):
        code = codes_by_key.get(key)
        if code is None:
            turn = _strip_turn_load(_find_turn(table, key, mixed_turns), turn_numbers)
            code = codes_by_key[key] = codes.setdefault((ArmLoad(*turn[:4]), TurnPosition(*turn[4:])), len(codes))
        row_codes.append(code)
    return RequestTally(turns=codes, rows=[_build_rows(table, np.array(row_codes, np.intp))] if row_codes else [])


def _find_turn(table: RequestTable, codes: tuple[int, ...], mixed_turns: Collection[tuple[object, ...]]) -> TurnKey:
    """Return the turn of a request; without its class where the turn mixes classes."""
    arm, class_, load, round_, slot = codes
    load_level = table.loads[load]
    place = (load_level.concurrency, load_level.rate_per_s, round_, slot)
    name = table.arms[arm]
    return (name, None if (name, *place) in mixed_turns else table.classes[class_], *place)


def _strip_turn_load(turn: TurnKey, turn_numbers: dict[TurnKey, int]) -> TurnKey:
    """Return a turn as one of its arm and class at no load in particular; its number keeps it apart from others."""
    return (turn[0], turn[1], None, None, turn_numbers.setdefault(turn, len(turn_numbers)), 0)


def _build_rows(table: RequestTable, turn: IntArray) -> RequestRows:
    none_mask = np.zeros(len(table), bool)
    return RequestRows(turn, table.start_s, table.end_s, table.tokens, table.failed, none_mask, none_mask)
