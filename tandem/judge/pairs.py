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

from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.quantiles import Values
from tandem.bench.request_table import UNKNOWN, RequestTable
from tandem.metrics import CATALOGUE

DECIDING_METRIC = "e2e_ms"
"""What a user waits for: it decides a verdict, and its mean and 90th percentile are judged beside its median."""

JUDGED_METRICS = ("tpot_ms", DECIDING_METRIC, "ttft_ms", "output_tokens_per_s")
"""The metrics that have a cell in a verdict; each belongs to one request."""

LENGTH_METRIC = "completion_tokens"
"""Output tokens: a shorter time of fewer of them is not the same work done faster."""


class CellRequests(NamedTuple):
    """Requests of two arms in one class at one load, to prompts that both answered in the same round.

    Args:
        prompt: place of the prompt among CellPairs.prompts. round: place of the round among CellPairs.rounds.
        arm: 0 for the baseline, 1 for the variant.
        value: the figure, in the metric's unit.
    """

    prompt: IntArray
    round: IntArray
    arm: IntArray
    value: Values


@dataclass(frozen=True)
class CellPairs:
    """The prompts that both arms answered, in one class at one load, by one metric.

    Args:
        prompts: codes of RequestTable.prompts, P of them.
        logs: log speed-up of each, above 0 where the variant is better: of the medians of all its requests.
        by_round: the same of each round alone, P x R; NaN where an arm did not answer in it.
        rounds: numbers of the rounds, R of them.
        starts: code of each round, the same for rounds that share a start of either arm's server, so that rounds of
            other codes are independent of each other; UNKNOWN where a record does not say its start.
        placements: code of the pair of places where the servers ran in each round; UNKNOWN likewise.
        baseline_medians, variant_medians: the medians, in the metric's unit.
        requests: what all of it is made of.
    """

    prompts: IntArray
    logs: Values
    by_round: Values
    rounds: IntArray
    starts: IntArray
    placements: IntArray
    baseline_medians: Values
    variant_medians: Values
    requests: CellRequests


@dataclass(frozen=True)
class RequestPairing:
    """Requests ready to be paired: each two arms and metric are grouped when they are first asked for.

    Args:
        table: the run.
        marked_rounds: numbers of rounds that do not count.
    """

    table: RequestTable
    marked_rounds: tuple[int, ...] = ()
    _tables: dict[tuple[str, str, str], _PairTable] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def cell_count(self) -> int:
        """How many classes at loads there can be."""
        return len(self.table.classes) * len(self.table.loads)

    def cell_codes(self) -> IntArray:
        """Return the class and load of each request as one code: class code * number of loads + load code."""
        return self.table.class_ * len(self.table.loads) + self.table.load

    def metric_mask(self, metric: str) -> BoolArray:
        """Return which requests have a figure that is a number above 0."""
        values = self.table.figures.get(metric)
        if values is None:
            return np.zeros(len(self.table), bool)
        mask: BoolArray = (values > 0) & (values < np.inf)  # a comparison with NaN is false, and warns of nothing
        return mask

    def row_mask(self) -> BoolArray:
        """Return which requests stand in a round that counts."""
        return ~np.isin(self.table.round, self.marked_rounds)

    def pairs(self, *, baseline: str, variant: str, class_: int, load: int, metric: str) -> CellPairs:
        """Return the pairs of one cell, none where an arm or the metric is not there.

        Args:
            baseline, variant: names of arms.
            class_, load: codes of the run's classes and loads.
            metric: one of RequestTable.figures; where more is not better by the catalogue, less is.
        """
        key = (baseline, variant, metric)
        if key not in self._tables:
            self._tables[key] = _build_table(self, *key)
        return self._tables[key].slice_cell(class_, load)


class _PromptColumns(NamedTuple):
    """One line a prompt of a cell, by cell and prompt."""

    cell: IntArray
    prompt: IntArray
    baseline: Values
    variant: Values
    log: Values


class _TurnColumns(NamedTuple):
    """One line a round of a prompt; `owner` is the line of the prompt, ascending."""

    owner: IntArray
    round: IntArray
    log: Values


class _RoundColumns(NamedTuple):
    """One line a round of a cell, by cell and round."""

    cell: IntArray
    round: IntArray
    starts: IntArray
    placements: IntArray


@dataclass(frozen=True)
class _PairTable:
    """All pairs of two arms by one metric, cells end to end."""

    loads: int
    rows: _RequestRows
    prompts: _PromptColumns
    turns: _TurnColumns
    rounds: _RoundColumns

    def slice_cell(self, class_: int, load: int) -> CellPairs:
        """Return one cell: a slice of each, and the rounds of its prompts as a matrix."""
        cell_code = class_ * self.loads + load
        first, last = np.searchsorted(self.prompts.cell, (cell_code, cell_code + 1))
        begin, end = np.searchsorted(self.turns.owner, (first, last))
        low, high = np.searchsorted(self.rounds.cell, (cell_code, cell_code + 1))
        rounds = self.rounds.round[low:high]
        by_round = np.full((last - first, high - low), np.nan)
        column = np.searchsorted(rounds, self.turns.round[begin:end])
        by_round[self.turns.owner[begin:end] - first, column] = self.turns.log[begin:end]
        return CellPairs(
            prompts=self.prompts.prompt[first:last],
            logs=self.prompts.log[first:last],
            by_round=by_round,
            rounds=rounds,
            starts=self.rounds.starts[low:high],
            placements=self.rounds.placements[low:high],
            baseline_medians=self.prompts.baseline[first:last],
            variant_medians=self.prompts.variant[first:last],
            requests=self._slice_requests(cell_code, self.prompts.prompt[first:last], rounds),
        )

    def _slice_requests(self, cell: int, prompts: IntArray, rounds: IntArray) -> CellRequests:
        first, last = np.searchsorted(self.rows.cell, (cell, cell + 1))
        return CellRequests(
            prompt=np.searchsorted(prompts, self.rows.prompt[first:last]),
            round=np.searchsorted(rounds, self.rows.round[first:last]),
            arm=self.rows.arm[first:last],
            value=self.rows.value[first:last],
        )


class _RequestRows(NamedTuple):
    """Requests of two arms as columns; `arm` is 0 for the baseline and 1 for the variant."""

    cell: IntArray
    prompt: IntArray
    round: IntArray
    arm: IntArray
    value: Values
    start: IntArray
    placement: IntArray

    def select(self, rows: IntArray | BoolArray) -> _RequestRows:
        return _RequestRows._make(column[rows] for column in self)


def _build_table(pairing: RequestPairing, baseline: str, variant: str, metric: str) -> _PairTable:
    rows = _select_rows(pairing, baseline, variant, metric)
    rows = rows.select(np.lexsort((rows.value, rows.arm, rows.round, rows.prompt, rows.cell)))
    turns = _number_groups(rows.cell, rows.prompt, rows.round)
    answers = np.bincount(2 * turns + rows.arm, minlength=2 * _count_groups(turns)).reshape(-1, 2)
    has_both: BoolArray = answers.min(axis=1) > 0
    rows = rows.select(has_both[turns])
    sign = -1.0 if metric in CATALOGUE and CATALOGUE[metric].better == "higher" else 1.0
    return _PairTable(
        len(pairing.table.loads),
        rows,
        _summarize_prompts(rows, sign),
        _summarize_turns(rows, sign),
        _summarize_rounds(rows),
    )


def _select_rows(pairing: RequestPairing, baseline: str, variant: str, metric: str) -> _RequestRows:
    table = pairing.table
    value = table.figures.get(metric, np.empty(len(table)))
    arms = [table.arms.index(arm) if arm in table.arms else UNKNOWN - 1 for arm in (baseline, variant)]
    usable_mask = pairing.row_mask() & ~table.failed & pairing.metric_mask(metric) & np.isin(table.arm, arms)
    return _RequestRows(
        cell=pairing.cell_codes(),
        prompt=table.prompt,
        round=table.round,
        arm=(table.arm == arms[1]).astype(np.intp),
        value=value,
        start=table.start,
        placement=table.placement,
    ).select(usable_mask)


def _summarize_prompts(rows: _RequestRows, sign: float) -> _PromptColumns:
    rows = rows.select(np.lexsort((rows.value, rows.arm, rows.prompt, rows.cell)))
    prompts = _number_groups(rows.cell, rows.prompt)
    first, medians = _find_firsts(prompts), _compute_medians(2 * prompts + rows.arm, rows.value)
    return _PromptColumns(
        rows.cell[first], rows.prompt[first], medians[:, 0], medians[:, 1], _compute_log_ratios(medians, sign)
    )


def _summarize_turns(rows: _RequestRows, sign: float) -> _TurnColumns:
    turns = _number_groups(rows.cell, rows.prompt, rows.round)
    first, medians = _find_firsts(turns), _compute_medians(2 * turns + rows.arm, rows.value)
    return _TurnColumns(
        _number_groups(rows.cell, rows.prompt)[first], rows.round[first], _compute_log_ratios(medians, sign)
    )


def _summarize_rounds(rows: _RequestRows) -> _RoundColumns:
    rows = rows.select(np.lexsort((rows.round, rows.cell)))
    rounds = _number_groups(rows.cell, rows.round)
    first = _find_firsts(rounds)
    return _RoundColumns(
        rows.cell[first],
        rows.round[first],
        _join_starts(rounds, rows),
        _encode_both_arms(rounds, rows.arm, rows.placement),
    )


def _join_starts(rounds: IntArray, rows: _RequestRows) -> IntArray:
    """Return a code of each round, the same for rounds of a cell that share a start, directly or through others."""
    round_count, start_count = _count_groups(rounds), int(rows.start.max(initial=UNKNOWN)) + 1
    if not start_count:
        return np.full(round_count, UNKNOWN)
    node = round_count + rows.cell * start_count + rows.start
    is_known = rows.start != UNKNOWN
    size = round_count + (int(rows.cell.max()) + 1) * start_count
    ones = np.ones(int(is_known.sum()), np.int8)
    graph = sparse.coo_matrix((ones, (rounds[is_known], node[is_known])), shape=(size, size))
    codes: IntArray = csgraph.connected_components(graph, directed=False)[1][:round_count].astype(np.intp)
    codes[np.unique(rounds[~is_known])] = UNKNOWN
    return codes


def _encode_both_arms(rounds: IntArray, arm: IntArray, code: IntArray) -> IntArray:
    """Return a code of what both arms had in each round; UNKNOWN where a request of either does not say.

    An arm that had several, as after a restart within a round, is told by the first and the last of their codes.
    """
    slot = 2 * rounds + arm
    lowest_codes = np.full(2 * _count_groups(rounds), np.iinfo(np.intp).max)
    highest_codes = np.full(2 * _count_groups(rounds), UNKNOWN)
    np.minimum.at(lowest_codes, slot, code)
    np.maximum.at(highest_codes, slot, code)
    code_ranges = np.column_stack([lowest_codes.reshape(-1, 2), highest_codes.reshape(-1, 2)])
    codes = np.unique(code_ranges, axis=0, return_inverse=True)[1].reshape(-1)
    return np.where((code_ranges == UNKNOWN).any(axis=1), UNKNOWN, codes)


def _number_groups(*keys: IntArray) -> IntArray:
    """Return the number of each row's group, from 0, of rows that are sorted by `keys`."""
    is_new = np.zeros(len(keys[0]), bool)
    for key in keys:
        is_new[1:] |= key[1:] != key[:-1]
    return np.cumsum(is_new)


def _count_groups(groups: IntArray) -> int:
    return int(groups[-1]) + 1 if len(groups) else 0


def _find_firsts(groups: IntArray) -> IntArray:
    return np.searchsorted(groups, np.arange(_count_groups(groups)))


def _compute_medians(groups: IntArray, values: Values) -> Values:
    """Return the median of each group of values that ascend in it, by twos: Shapes: (groups / 2, 2)."""
    sizes = np.bincount(groups)
    first = np.cumsum(sizes) - sizes
    low, high = values[first + (sizes - 1) // 2], values[first + sizes // 2]
    medians: Values = low + (high - low) / 2  # two large ones do not overflow
    return medians.reshape(-1, 2)


def _compute_log_ratios(medians: Values, sign: float) -> Values:
    logs = np.log(medians)
    return sign * (logs[:, 0] - logs[:, 1])
