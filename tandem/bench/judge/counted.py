"""What the servers' counters say of a run, by arm and class, all loads summed; by the functions of the summary.

Invariant: a turn is that of the summary: what one server counted between two scrapes, held against the records of the
same turn. Loads are summed and not averaged, so that a figure is that of all steps.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from tandem.bench import counters, turns
from tandem.bench.columns import Whole
from tandem.bench.counters import Turn
from tandem.bench.judge.observations import Observations
from tandem.bench.tally import Load, Place, Rows, Tally


@dataclass(frozen=True)
class Counted:
    """What was counted: figures by arm and class, under loads without concurrency and rate; why turns were dropped."""

    measured: turns.Measured
    dropped: tuple[str, ...]

    def said(self, arm: str) -> tuple[str, ...]:
        """Return what limits the counters of an arm."""
        doubts = [sentence for (of, sentence), _ in self.measured.said.items() if of == arm]
        begin = f"{arm}: "
        return (*doubts, *(reason.removeprefix(begin) for reason in self.dropped if reason.startswith(begin)))


def counted(seen: Observations) -> Counted:
    """Read the counters of a run.

    Raises:
        BenchError: a line of counters.jsonl that is no scrape.
    """
    changes, dropped = counters.changes(counters.read_scrapes(seen.folder / counters.FILE))
    places: dict[Turn, int] = {}
    renamed = [(_turn(turn, places), change) for turn, change in changes]
    tally = _tally(seen, places) if changes else Tally()
    return Counted(turns.acceptance(renamed, {arm.name: arm for arm in seen.run.arms}, tally), tuple(dropped))


def _tally(seen: Observations, places: dict[Turn, int]) -> Tally:
    """Return what the records of each turn hold, under the names that its counters have."""
    mixed = {turn[:1] + turn[2:] for turn in places if turn[1] is None}
    columns = (seen.arm, seen.class_, seen.load, seen.round, seen.slot)
    known: dict[tuple[int, ...], int] = {}
    codes: dict[tuple[Load, Place], int] = {}
    of_rows = []
    for asked in zip(*(column.tolist() for column in columns), strict=True):
        code = known.get(asked)
        if code is None:
            turn = _turn(_asked(seen, asked, mixed), places)
            code = known[asked] = codes.setdefault((Load(*turn[:4]), Place(*turn[4:])), len(codes))
        of_rows.append(code)
    return Tally(turns=codes, rows=[_rows(seen, np.array(of_rows, np.intp))] if of_rows else [])


def _asked(seen: Observations, codes: tuple[int, ...], mixed: Collection[tuple[object, ...]]) -> Turn:
    """Return the turn of a request; without its class where the turn mixes classes."""
    arm, class_, load, round_, slot = codes
    at = seen.loads[load]
    place = (at.concurrency, at.rate_per_s, round_, slot)
    name = seen.arms[arm]
    return (name, None if (name, *place) in mixed else seen.classes[class_], *place)


def _turn(turn: Turn, places: dict[Turn, int]) -> Turn:
    """Return a turn as one of its arm and class at no load in particular; its number keeps it apart from others."""
    return (turn[0], turn[1], None, None, places.setdefault(turn, len(places)), 0)


def _rows(seen: Observations, turn: Whole) -> Rows:
    nothing = np.zeros(len(seen), bool)
    return Rows(turn, seen.start_s, seen.end_s, seen.tokens, seen.failed, nothing, nothing)
