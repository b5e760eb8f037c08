"""From requests to pairs: what one prompt took in the baseline and in a variant, and the log of the speed-up.

Invariant: a prompt is one value, however often it was asked, because its repeats are no independent evidence; only
rounds in which both arms answered a prompt count for it, so that what a round has of its own touches both arms; a
figure that is not a number above 0 is no figure. Everything is grouped once, because a run may have thousands of cells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from tandem.bench.columns import Mask, Whole
from tandem.bench.judge.observations import UNKNOWN, Observations
from tandem.bench.quantiles import Values
from tandem.metrics import CATALOGUE

JUDGED = ("tpot_ms", "e2e_ms", "ttft_ms", "output_tokens_per_s")
"""The metrics that have a cell in a verdict; each belongs to one request."""

DECIDING = "e2e_ms"
"""What a user waits for: it decides a verdict, and its mean and 90th percentile are judged beside its median."""


class CellRequests(NamedTuple):
    """Requests of two arms in one class at one load, to prompts that both answered in the same round.

    Args:
        prompt: place of the prompt among Pairs.prompts. round: place of the round among Pairs.rounds.
        arm: 0 for the baseline, 1 for the variant.
        value: the figure, in the metric's unit.
    """

    prompt: Whole
    round: Whole
    arm: Whole
    value: Values


@dataclass(frozen=True)
class Pairs:
    """The prompts that both arms answered, in one class at one load, by one metric.

    Args:
        prompts: codes of Observations.prompts, P of them.
        logs: log speed-up of each, above 0 where the variant is better: of the medians of all its requests.
        by_round: the same of each round alone, P x R; NaN where an arm did not answer in it.
        rounds: numbers of the rounds, R of them.
        starts: code of each round, the same for rounds that share a start of either arm's server, so that rounds of
            other codes are independent of each other; UNKNOWN where a record does not say its start.
        placements: code of the pair of places where the servers ran in each round; UNKNOWN likewise.
        baseline, measured: the medians, in the metric's unit.
        requests: what all of it is made of.
    """

    prompts: Whole
    logs: Values
    by_round: Values
    rounds: Whole
    starts: Whole
    placements: Whole
    baseline: Values
    measured: Values
    requests: CellRequests


@dataclass(frozen=True)
class Grouped:
    """Observations ready to be paired: each two arms and metric are grouped when they are first asked for.

    Args:
        seen: the run.
        rounds: which rounds count, by their number; None: all. A round that the mask does not reach counts.
    """

    seen: Observations
    rounds: Mask | None = None
    _tables: dict[tuple[str, str, str], _Table] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def number_of_cells(self) -> int:
        """How many classes at loads there can be."""
        return len(self.seen.classes) * len(self.seen.loads)

    def cells(self) -> Whole:
        """Return the class and load of each request as one code: class code * number of loads + load code."""
        return self.seen.class_ * len(self.seen.loads) + self.seen.load

    def has(self, metric: str) -> Mask:
        """Return which requests have a figure that is a number above 0."""
        values = self.seen.figures.get(metric)
        if values is None:
            return np.zeros(len(self.seen), bool)
        has: Mask = (values > 0) & (values < np.inf)  # a comparison with NaN is false, and warns of nothing
        return has

    def rows(self) -> Mask:
        """Return which requests stand in a round that counts."""
        number = self.seen.round
        if self.rounds is None:
            return np.ones(len(number), bool)
        counted: Mask = (number < 0) | (number >= len(self.rounds))
        counted[~counted] = self.rounds[number[~counted]]
        return counted

    def pairs(self, *, baseline: str, variant: str, class_: int, load: int, metric: str) -> Pairs:
        """Return the pairs of one cell, none where an arm or the metric is not there.

        Args:
            baseline, variant: names of arms.
            class_, load: codes of the run's classes and loads.
            metric: one of Observations.figures; where more is not better by the catalogue, less is.
        """
        key = (baseline, variant, metric)
        if key not in self._tables:
            self._tables[key] = _table(self, *key)
        return self._tables[key].cell(class_, load)


def pairs(  # noqa: PLR0913 - a cell has so many names
    seen: Observations | Grouped,
    *,
    baseline: str,
    variant: str,
    class_: int,
    load: int,
    metric: str,
    rounds: Mask | None = None,
) -> Pairs:
    """Return the pairs of one cell; whoever asks for many makes a `Grouped` and asks that.

    Args:
        seen: the run. The rounds of a Grouped are its own.
        baseline, variant, class_, load, metric: as of Grouped.pairs.
        rounds: as of Grouped.
    """
    grouped = seen if isinstance(seen, Grouped) else Grouped(seen, rounds)
    return grouped.pairs(baseline=baseline, variant=variant, class_=class_, load=load, metric=metric)


class _Prompts(NamedTuple):
    """One line a prompt of a cell, by cell and prompt."""

    cell: Whole
    prompt: Whole
    baseline: Values
    measured: Values
    log: Values


class _Turns(NamedTuple):
    """One line a round of a prompt; `owner` is the line of the prompt, ascending."""

    owner: Whole
    round: Whole
    log: Values


class _Rounds(NamedTuple):
    """One line a round of a cell, by cell and round."""

    cell: Whole
    round: Whole
    starts: Whole
    placements: Whole


@dataclass(frozen=True)
class _Table:
    """All pairs of two arms by one metric, cells end to end."""

    loads: int
    rows: _Rows
    prompts: _Prompts
    turns: _Turns
    rounds: _Rounds

    def cell(self, class_: int, load: int) -> Pairs:
        """Return one cell: a slice of each, and the rounds of its prompts as a matrix."""
        number = class_ * self.loads + load
        first, last = np.searchsorted(self.prompts.cell, (number, number + 1))
        begin, end = np.searchsorted(self.turns.owner, (first, last))
        low, high = np.searchsorted(self.rounds.cell, (number, number + 1))
        rounds = self.rounds.round[low:high]
        by_round = np.full((last - first, high - low), np.nan)
        column = np.searchsorted(rounds, self.turns.round[begin:end])
        by_round[self.turns.owner[begin:end] - first, column] = self.turns.log[begin:end]
        return Pairs(
            prompts=self.prompts.prompt[first:last],
            logs=self.prompts.log[first:last],
            by_round=by_round,
            rounds=rounds,
            starts=self.rounds.starts[low:high],
            placements=self.rounds.placements[low:high],
            baseline=self.prompts.baseline[first:last],
            measured=self.prompts.measured[first:last],
            requests=self._requests(number, self.prompts.prompt[first:last], rounds),
        )

    def _requests(self, cell: int, prompts: Whole, rounds: Whole) -> CellRequests:
        first, last = np.searchsorted(self.rows.cell, (cell, cell + 1))
        return CellRequests(
            prompt=np.searchsorted(prompts, self.rows.prompt[first:last]),
            round=np.searchsorted(rounds, self.rows.round[first:last]),
            arm=self.rows.arm[first:last],
            value=self.rows.value[first:last],
        )


class _Rows(NamedTuple):
    """Requests of two arms as columns; `arm` is 0 for the baseline and 1 for the variant."""

    cell: Whole
    prompt: Whole
    round: Whole
    arm: Whole
    value: Values
    start: Whole
    placement: Whole

    def take(self, which: Whole | Mask) -> _Rows:
        return _Rows(
            self.cell[which],
            self.prompt[which],
            self.round[which],
            self.arm[which],
            self.value[which],
            self.start[which],
            self.placement[which],
        )


def _table(grouped: Grouped, baseline: str, variant: str, metric: str) -> _Table:
    rows = _rows(grouped, baseline, variant, metric)
    rows = rows.take(np.lexsort((rows.value, rows.arm, rows.round, rows.prompt, rows.cell)))
    turns = _groups(rows.cell, rows.prompt, rows.round)
    answers = np.bincount(2 * turns + rows.arm, minlength=2 * _number(turns)).reshape(-1, 2)
    both: Mask = answers.min(axis=1) > 0
    rows = rows.take(both[turns])
    sign = -1.0 if metric in CATALOGUE and CATALOGUE[metric].better == "higher" else 1.0
    return _Table(len(grouped.seen.loads), rows, _prompts(rows, sign), _turns(rows, sign), _rounds(rows))


def _rows(grouped: Grouped, baseline: str, variant: str, metric: str) -> _Rows:
    seen = grouped.seen
    value = seen.figures.get(metric, np.empty(len(seen)))
    arms = [seen.arms.index(arm) if arm in seen.arms else UNKNOWN - 1 for arm in (baseline, variant)]
    usable = grouped.rows() & ~seen.failed & grouped.has(metric) & np.isin(seen.arm, arms)
    return _Rows(
        cell=grouped.cells(),
        prompt=seen.prompt,
        round=seen.round,
        arm=(seen.arm == arms[1]).astype(np.intp),
        value=value,
        start=seen.start,
        placement=seen.placement,
    ).take(usable)


def _prompts(rows: _Rows, sign: float) -> _Prompts:
    rows = rows.take(np.lexsort((rows.value, rows.arm, rows.prompt, rows.cell)))
    prompts = _groups(rows.cell, rows.prompt)
    first, medians = _firsts(prompts), _medians(2 * prompts + rows.arm, rows.value)
    return _Prompts(rows.cell[first], rows.prompt[first], medians[:, 0], medians[:, 1], _logs(medians, sign))


def _turns(rows: _Rows, sign: float) -> _Turns:
    turns = _groups(rows.cell, rows.prompt, rows.round)
    first, medians = _firsts(turns), _medians(2 * turns + rows.arm, rows.value)
    return _Turns(_groups(rows.cell, rows.prompt)[first], rows.round[first], _logs(medians, sign))


def _rounds(rows: _Rows) -> _Rounds:
    rows = rows.take(np.lexsort((rows.round, rows.cell)))
    rounds = _groups(rows.cell, rows.round)
    first = _firsts(rounds)
    return _Rounds(
        rows.cell[first],
        rows.round[first],
        _join_starts(rounds, rows),
        _of_both(rounds, rows.arm, rows.placement),
    )


def _join_starts(rounds: Whole, rows: _Rows) -> Whole:
    """Return a code of each round, the same for rounds of a cell that share a start, directly or through others."""
    number, starts = _number(rounds), int(rows.start.max(initial=UNKNOWN)) + 1
    if not starts:
        return np.full(number, UNKNOWN)
    node = number + rows.cell * starts + rows.start
    known = rows.start != UNKNOWN
    size = number + (int(rows.cell.max()) + 1) * starts
    ones = np.ones(int(known.sum()), np.int8)
    graph = sparse.coo_matrix((ones, (rounds[known], node[known])), shape=(size, size))
    codes: Whole = csgraph.connected_components(graph, directed=False)[1][:number].astype(np.intp)
    codes[np.unique(rounds[~known])] = UNKNOWN
    return codes


def _of_both(rounds: Whole, arm: Whole, code: Whole) -> Whole:
    """Return a code of what both arms had in each round; UNKNOWN where a request of either does not say.

    An arm that had several, as after a restart within a round, is told by the first and the last of their codes.
    """
    slot = 2 * rounds + arm
    least = np.full(2 * _number(rounds), np.iinfo(np.intp).max)
    most = np.full(2 * _number(rounds), UNKNOWN)
    np.minimum.at(least, slot, code)
    np.maximum.at(most, slot, code)
    had = np.column_stack([least.reshape(-1, 2), most.reshape(-1, 2)])
    codes = np.unique(had, axis=0, return_inverse=True)[1].reshape(-1)
    return np.where((had == UNKNOWN).any(axis=1), UNKNOWN, codes)


def _groups(*keys: Whole) -> Whole:
    """Return the number of each row's group, from 0, of rows that are sorted by `keys`."""
    new = np.zeros(len(keys[0]), bool)
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return np.cumsum(new)


def _number(groups: Whole) -> int:
    return int(groups[-1]) + 1 if len(groups) else 0


def _firsts(groups: Whole) -> Whole:
    return np.searchsorted(groups, np.arange(_number(groups)))


def _medians(groups: Whole, values: Values) -> Values:
    """Return the median of each group of values that ascend in it, by twos: Shapes: (groups / 2, 2)."""
    sizes = np.bincount(groups)
    first = np.cumsum(sizes) - sizes
    low, high = values[first + (sizes - 1) // 2], values[first + sizes // 2]
    medians: Values = low + (high - low) / 2  # two large ones do not overflow
    return medians.reshape(-1, 2)


def _logs(medians: Values, sign: float) -> Values:
    logs = np.log(medians)
    return sign * (logs[:, 0] - logs[:, 1])
