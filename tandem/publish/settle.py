"""What became of a batch whose put was never answered: told by what CloudWatch shows of one minute of one series.

Invariant: a batch counts as sent where the values and their sum are explained by it and by nothing without it; as
absent only once CloudWatch had shown it by now. What neither explains is never sent again.

A minute of a series may lie in several batches (rounds shorter than a minute, or more values than a batch takes). So
what is read is held against every set of the batches in doubt there, on top of those that CloudWatch took.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

from tandem.publish.batch import Batch, Cell, Held, Round, batches
from tandem.publish.cloudwatch import CloudWatch
from tandem.publish.journal import Journal, Line

Rounds = Callable[[frozenset[int]], Iterable[Round]]
"""Gives the rounds of a run in their order, without those of these numbers, each time it is called."""

HOUR_S, DAY_S = 3600, 86400
RECENT_AGE_S, OLD_AGE_S = 3 * HOUR_S, DAY_S
SAME = 1e-6  # of a sum: values have three digits, so two sums of other values differ by more, or by nothing
_ASKED = frozenset({"intent", "sent", "unsettled"})  # states of a batch that CloudWatch may hold
MOST_AT_ONCE = 12  # batches in doubt in one cell whose sets are tried: 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How long after a put CloudWatch may not show it yet, by the age of the time that it carries.

    Args:
        recent_s: below three hours. The documents say two minutes for a new metric and fifteen until it is listed; the
            longer one is taken.
        hours_s: below a day: two hours (PutMetricData).
        days_s: beyond: "at least 48 hours" (PutMetricData), which is no bound, so half as much again.
    """

    recent_s: float = 15 * 60
    hours_s: float = 2 * HOUR_S
    days_s: float = 72 * HOUR_S

    def of(self, age_s: float) -> float:
        """Return the delay of a time that was `age_s` ago when it was sent."""
        if age_s < RECENT_AGE_S:
            return self.recent_s
        return self.hours_s if age_s < OLD_AGE_S else self.days_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A batch in doubt, and what is found of it.

    Args:
        round, batch: which.
        verdict: sent; absent: it may be sent again; wait: nobody can tell before `from_s`; unsettled: never.
        from_s: when CloudWatch shows it if it took it, in seconds since 1970.
        why: of unsettled, a sentence.
    """

    round: int
    batch: Batch
    verdict: Literal["sent", "absent", "wait", "unsettled"]
    from_s: float
    why: str = ""


class _Place(NamedTuple):
    round: int
    batch: int


class Settling:
    """Looks at the batches in doubt as often as it is asked.

    Args:
        journal: which batches these are, and what became of the others.
        cloudwatch: is read.
        delays: how long it may hide what it took.
        rounds: gives the rounds of the run; all are read, twice, and only here.
    """

    def __init__(self, journal: Journal, cloudwatch: CloudWatch, delays: Delays, rounds: Rounds) -> None:
        self._journal, self._cloudwatch, self._delays = journal, cloudwatch, delays
        doubts = journal.in_doubt()
        made = _made(rounds, {line.round for line in doubts})
        self.doubts = {
            _Place(line.round, line.batch): batch
            for line in doubts
            for batch in made.get(line.round, ())
            if (batch.number, batch.digest) == (line.batch, line.digest)
        }
        probes = {batch.probe for batch in self.doubts.values()}
        self._holders = _holders(rounds, probes)

    def knows(self, line: Line) -> bool:
        """Return whether the records of this folder give the batch."""
        return _Place(line.round, line.batch) in self.doubts

    def from_s(self, line: Line) -> float:
        """Return from when on CloudWatch shows a batch in doubt if it took it, in seconds since 1970."""
        return self._shown_s(self.doubts[_Place(line.round, line.batch)].probe)

    def _shown_s(self, cell: Cell) -> float:
        """Return from when on CloudWatch shows all that it took of a cell."""
        lines = (self._journal.last(*place) for place in self._holders[cell])
        asked = [line.at_s for line in lines if line is not None and line.state in _ASKED]
        return max(at_s + self._delays.of(at_s - cell.at_s) for at_s in asked)

    def look(self, now_s: float) -> tuple[Doubt, ...]:
        """Read CloudWatch once, and judge every batch that is in doubt still.

        Raises:
            PublishError: it refused, or is out of reach.
        """
        places = [_Place(line.round, line.batch) for line in self._journal.in_doubt()]
        open_ = {place: self.doubts[place] for place in places if place in self.doubts}
        shown = self._cloudwatch.held(sorted({batch.probe for batch in open_.values()}))
        return tuple(self._judged(place, batch, shown[batch.probe], now_s) for place, batch in open_.items())

    def _judged(self, place: _Place, batch: Batch, shown: Held, now_s: float) -> Doubt:
        cell = batch.probe
        landed, unknown = [], {}
        for other, held in self._holders[cell].items():
            line = self._journal.last(*other)
            if line is not None and line.state == "sent":
                landed.append(held)
            elif line is not None and line.state in _ASKED:
                unknown[other] = held
        with_it = {place in chosen for chosen in _explanations(shown, _sum(landed), unknown)}
        from_s = self._shown_s(cell)
        verdict: Literal["sent", "absent", "wait", "unsettled"] = "wait"
        if with_it == {True}:
            verdict = "sent"
        elif now_s >= from_s:
            verdict = "absent" if with_it == {False} else "unsettled"
        why = _unexplained(place, batch, shown) if verdict == "unsettled" else ""
        return Doubt(round=place.round, batch=batch, verdict=verdict, from_s=from_s, why=why)


def _unexplained(place: _Place, batch: Batch, shown: Held) -> str:
    return (
        f"batch {batch.number + 1} of {batch.of} of round {place.round} was sent and never answered, and CloudWatch "
        f"shows {shown.samples} values of {batch.probe}, which this run alone does not explain: another run publishes "
        "the same experiment and variants at the same time, or the records changed; it is not sent again, so these "
        "figures may be missing in CloudWatch; its records are in S3"
    )


def _made(rounds: Rounds, wanted: set[int]) -> dict[int, tuple[Batch, ...]]:
    return {one.number: batches(one.data) for one in rounds(frozenset()) if one.number in wanted and one.complete}


def _holders(rounds: Rounds, cells: set[Cell]) -> dict[Cell, dict[_Place, Held]]:
    """Return what every batch of the run holds of some cells."""
    found: dict[Cell, dict[_Place, Held]] = {cell: {} for cell in cells}
    for one in rounds(frozenset()):
        if one.complete and any(Cell.of(datum) in cells for datum in one.data):
            for batch in batches(one.data):
                for cell in cells & batch.held.keys():
                    found[cell][_Place(one.number, batch.number)] = batch.held[cell]
    return found


def _explanations(shown: Held, landed: Held, unknown: dict[_Place, Held]) -> list[set[_Place]]:
    """Return every set of batches in doubt that, on top of what landed, gives what is shown.

    None where there are too many to try them all: an explanation that was not tried could be the true one.
    """
    if len(unknown) > MOST_AT_ONCE:
        return []
    places = sorted(unknown)
    return [
        set(chosen)
        for size in range(len(places) + 1)
        for chosen in combinations(places, size)
        if _same(shown, _sum([landed, *(unknown[place] for place in chosen)]))
    ]


def _sum(held: Sequence[Held]) -> Held:
    return Held(sum(one.samples for one in held), sum(one.total for one in held))


def _same(one: Held, other: Held) -> bool:
    return one.samples == other.samples and math.isclose(one.total, other.total, rel_tol=SAME, abs_tol=1e-9)
