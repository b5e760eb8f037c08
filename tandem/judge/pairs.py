"""Pairs of requests: one prompt's figures in baseline and variant, and the log of the speed-up.

Invariant: a prompt is one value, however often it was sent, because its repeats are no independent
evidence. Only rounds in which both arms answered a prompt count for it, so a round's own noise
touches both arms. A figure that is not a number above 0 does not count. Requests are sorted once,
because a run may have thousands of cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from tandem.bench.figures.columns import BoolArray, IntArray
from tandem.bench.figures.quantiles import Values
from tandem.bench.figures.request_table import UNKNOWN, RequestTable
from tandem.bench.plan.schedule import LoadLevel
from tandem.judge.interval import NO_NOISE, LogRatioEstimate, RoundNoise, estimate_log_ratio
from tandem.judge.quantile_curve import ResidualPool
from tandem.metrics import CATALOGUE

DECIDING_METRIC = "e2e_ms"
"""The time that a user waits: it decides a verdict. Its mean and 90th percentile are judged as well
as its median."""

_DECIDING_WEIGHT = 2.0
"""Part of the level of a test of DECIDING_METRIC, its tails included; a test of another metric has
1 (decision 53)."""

_DECIDING_WEIGHT_WITH_LIMITS = 4.0
"""The same in a run with limits: what their tests take comes from the other metrics (decision
61)."""

JUDGED_METRICS = ("tpot_ms", DECIDING_METRIC, "ttft_ms", "output_tokens_per_s")
"""The metrics that have a cell in a verdict; each belongs to one request."""

_MS_PER_S = 1000.0

LENGTH_METRIC = "completion_tokens"
"""Output tokens: a shorter time for fewer tokens is not the same work done faster."""


WAIT_METRIC = "wait_ms"
"""E2E; of a failed request the time until it failed, but at least its prompt's median at its load
over all arms."""

LIMITS_METRIC = "within_limits"
"""2 of a request within every goodput limit, 1 of any other, failed ones included: a figure that is
no number above 0 does not count."""


def find_figures(table: RequestTable, metric: str) -> Values:
    """Return a metric of each request; NaN where it has none, as in a run that has no record."""
    return table.figures.get(metric, np.full(len(table), np.nan))


def weigh_metric(metric: str, *, has_limits: bool = False) -> float:
    """Return the weight of a test of a metric in `adjust_p_values`.

    Args:
        metric: of the test.
        has_limits: whether the report tests goodput limits too.
    """
    if metric != DECIDING_METRIC:
        return 1.0
    return _DECIDING_WEIGHT_WITH_LIMITS if has_limits else _DECIDING_WEIGHT


class CellRequests(NamedTuple):
    """Requests of two arms in a class at a load, to prompts that both answered in the same round.

    Args:
        prompt: place of the prompt among CellPairs.prompts.
        round: place of the round among CellPairs.rounds.
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
        cells: code of the class and load of each prompt; one code unless several cells are joined.
        logs: log speed-up of each, above 0 where the variant is better: of the medians of all its
            requests.
        by_round: the same of each round alone, P x R; NaN where an arm did not answer in it.
        rounds: numbers of the rounds, R of them.
        starts: code of each round, the same for rounds that share a start of either arm's server.
            So rounds of different codes are independent of each other. UNKNOWN where a record does
            not say its start. The codes hold for this cell alone.
        placements: code of the pair of places where the servers ran in each round; UNKNOWN
            likewise.
        baseline_medians, variant_medians: the medians, in the metric's unit.
        requests: the requests that all figures are from.
    """

    prompts: IntArray
    cells: IntArray
    logs: Values
    by_round: Values
    rounds: IntArray
    starts: IntArray
    placements: IntArray
    baseline_medians: Values
    variant_medians: Values
    requests: CellRequests

    def average_requests(self) -> tuple[Values, Values]:
        """Return the mean over requests of each arm's prompts, and of each round's; NaN if absent.

        Shapes: (2, prompts), (2, prompts, rounds).
        """
        requests = self.requests
        shape = (2, *self.by_round.shape)
        group = np.ravel_multi_index((requests.arm, requests.prompt, requests.round), shape)
        group_count = np.prod(shape)
        count = np.bincount(group, minlength=group_count).reshape(shape)
        total = np.bincount(group, requests.value, minlength=group_count).reshape(shape)
        with np.errstate(invalid="ignore"):
            round_means = total / count
        return total.sum(axis=2) / count.sum(axis=2), round_means

    def estimate(
        self, noise: RoundNoise = NO_NOISE, pool: ResidualPool | None = None
    ) -> LogRatioEstimate | None:
        """Return how sure the speed-up is; as for `estimate_log_ratio`."""
        return estimate_log_ratio(
            self.logs,
            self.by_round,
            self.starts,
            placements=self.placements,
            noise=noise,
            pool=pool,
        )


@dataclass(frozen=True)
class RequestPairing:
    """Requests ready to be paired: the first call for two arms and a metric sorts theirs.

    Args:
        table: the run.
        marked_rounds: numbers of rounds that do not count.
    """

    table: RequestTable
    marked_rounds: tuple[int, ...] = ()
    _rows: dict[tuple[str, str, str], _RequestRows] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _pairs: dict[tuple[str, str, str, tuple[int, ...]], CellPairs] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def cell_count(self) -> int:
        """Number of possible cells: classes times loads."""
        return len(self.table.classes) * len(self.table.loads)

    def cell_codes(self) -> IntArray:
        """Return each request's class and load as one code: class code * loads + load code."""
        return self.table.class_ * len(self.table.loads) + self.table.load

    def metric_mask(self, metric: str) -> BoolArray:
        """Return which requests have a figure that is a number above 0."""
        return _mask_positive(find_figures(self.table, metric))

    def row_mask(self) -> BoolArray:
        """Return which requests stand in a round that counts."""
        return ~np.isin(self.table.round, self.marked_rounds)

    def known_cells(self) -> list[int]:
        """Return the codes of the cells that have requests."""
        return [int(code) for code in np.unique(self.cell_codes())]

    def group_loads(self) -> dict[LoadLevel, list[int]]:
        """Return the codes of the cells that have requests, by load."""
        codes: dict[LoadLevel, list[int]] = {}
        for code in self.known_cells():
            codes.setdefault(self.cell_place(code)[1], []).append(code)
        return codes

    def cell_code(self, class_: str, load: LoadLevel) -> int:
        """Return the code of a class at a load."""
        loads = self.table.loads
        return self.table.classes.index(class_) * len(loads) + loads.index(load)

    def cell_place(self, cell: int) -> tuple[str, LoadLevel]:
        """Return the class and the load of a cell's code."""
        class_, load = divmod(cell, len(self.table.loads))
        return self.table.classes[class_], self.table.loads[load]

    def pairs(self, arms: tuple[str, str], cell: int, metric: str) -> CellPairs:
        """Return the pairs of one cell, none where an arm or the metric is not there.

        Args:
            arms: names of the baseline and of the variant.
            cell: its code.
            metric: one of RequestTable.figures; less is better unless the catalogue says that more
                is.
        """
        return self.join_cells(arms, [cell], metric)

    def join_cells(self, arms: tuple[str, str], cells: Sequence[int], metric: str) -> CellPairs:
        """Return the pairs of several cells as one; a prompt at two loads is two.

        Args:
            arms, metric: as for `pairs`.
            cells: their codes.
        """
        key = (*arms, metric, tuple(cells))
        if key not in self._pairs:
            self._pairs[key] = self._pair_requests(arms, cells, metric)
        return self._pairs[key]

    def _pair_requests(self, arms: tuple[str, str], cells: Sequence[int], metric: str) -> CellPairs:
        rows = self._select_rows(arms, cells, metric)
        prompt_total = max(len(self.table.prompts), 1)
        keys, prompt = np.unique(rows.cell * prompt_total + rows.prompt, return_inverse=True)
        prompt_cells, prompts = np.divmod(keys, prompt_total)
        rounds, round_ = np.unique(rows.round, return_inverse=True)
        medians = _compute_medians(2 * prompt + rows.arm, rows.value, (len(prompts), 2))
        turns = (prompt * len(rounds) + round_) * 2 + rows.arm
        round_medians = _compute_medians(turns, rows.value, (len(prompts), len(rounds), 2))
        return CellPairs(
            prompts=prompts,
            cells=prompt_cells,
            logs=_compare_medians(medians, metric),
            by_round=_compare_medians(round_medians, metric),
            rounds=rounds,
            starts=_join_starts(round_, rows.start, len(rounds)),
            placements=_encode_placements(round_, rows, len(rounds), len(self.table.placements)),
            baseline_medians=medians[:, 0],
            variant_medians=medians[:, 1],
            requests=CellRequests(prompt, round_, rows.arm, rows.value),
        )

    def _select_rows(
        self, arms: tuple[str, str], cells: Sequence[int], metric: str
    ) -> _RequestRows:
        """Return the requests of some cells, in the cells' order."""
        key = (*arms, metric)
        if key not in self._rows:
            self._rows[key] = self._sort_rows(*key)
        rows = self._rows[key]
        places = [np.empty(0, np.intp)]
        for cell in cells:
            first, last = np.searchsorted(rows.cell, [cell, cell + 1]).tolist()
            places.append(np.arange(first, last))
        return rows.select(np.concatenate(places))

    def average_noise(self, noise: RoundNoise, pairs: CellPairs) -> RoundNoise:
        """Return what is left of the noise of one class in the mean of joined cells.

        A disturbance reaches cells that were measured at times of their own independently of each
        other. Mixed classes of a load were asked at one time.
        """
        cells = np.unique(pairs.cells)
        blocks = cells
        if self.table.run.mixed:
            blocks = np.unique(cells % len(self.table.loads))
        return RoundNoise(noise.variance / max(len(blocks), 1), noise.df)

    def _sort_rows(self, baseline: str, variant: str, metric: str) -> _RequestRows:
        """Return requests with a figure and the other arm's answer in their round, by cell."""
        table = self.table
        is_variant = table.arm_mask(variant)
        is_kept = self.row_mask() & (is_variant | table.arm_mask(baseline))
        if metric == WAIT_METRIC:
            value = self._measure_waits()
        elif metric == LIMITS_METRIC:
            is_within, _ = table.limit_masks()
            value = np.where(is_within, 2.0, 1.0)
        else:
            value = find_figures(table, metric)
            is_kept &= ~table.failed
        all_rows = _RequestRows(
            self.cell_codes(),
            table.prompt,
            table.round,
            is_variant.astype(np.intp),
            value,
            table.start,
            table.placement,
        )
        rows = all_rows.select(is_kept & _mask_positive(value))
        rows = rows.select(np.lexsort((rows.value, rows.arm, rows.round, rows.prompt, rows.cell)))

        # rows of one cell, prompt and round follow each other
        turn_keys = np.stack([rows.round, rows.prompt, rows.cell])
        begins_turn = (np.diff(turn_keys, prepend=-1) != 0).any(axis=0)
        turns = np.cumsum(begins_turn) - 1
        turn_count = int(begins_turn.sum())
        answers = np.bincount(2 * turns + rows.arm, minlength=2 * turn_count).reshape(-1, 2)
        has_both = answers.min(axis=1) > 0
        return rows.select(has_both[turns])

    def _measure_waits(self) -> Values:
        """Return WAIT_METRIC of each request; NaN where nothing is known."""
        table = self.table
        answered_ms = np.where(table.failed, np.nan, find_figures(table, DECIDING_METRIC))
        is_known = np.isfinite(answered_ms)
        prompt_total = int(table.prompt.max(initial=0)) + 1
        groups = table.load * prompt_total + table.prompt
        group_total = max(len(table.loads), 1) * prompt_total
        medians_ms = _compute_medians(groups[is_known], answered_ms[is_known], (group_total,))
        own_ms = _MS_PER_S * (table.end_s - table.start_s)
        failed_ms = np.fmax(own_ms, medians_ms[groups])
        return np.where(table.failed, failed_ms, answered_ms)


def _mask_positive(values: Values) -> BoolArray:
    """Return which values are a number above 0; a comparison with NaN is false."""
    return (values > 0) & (values < np.inf)


class _RequestRows(NamedTuple):
    """Requests of two arms as columns; `arm` is 0 for the baseline and 1 for the variant."""

    cell: IntArray
    prompt: IntArray
    round: IntArray
    arm: IntArray
    value: Values
    start: IntArray
    placement: IntArray

    def select(self, rows: BoolArray | IntArray) -> _RequestRows:
        return _RequestRows._make(column[rows] for column in self)


def _compute_medians(groups: IntArray, values: Values, shape: tuple[int, ...]) -> Values:
    """Return the median of each group's values, by its place in `shape`; NaN if empty."""
    medians = np.full(math.prod(shape), np.nan)
    known_groups = np.unique(groups)
    if len(values):
        medians[known_groups] = ndimage.median(values, groups, known_groups)
    return medians.reshape(shape)


def _compare_medians(medians: Values, metric: str) -> Values:
    """Return the log speed-up of both arms' medians, which are the last axis."""
    is_higher_better = metric in CATALOGUE and CATALOGUE[metric].better == "higher"
    logs = np.log(medians[..., 0]) - np.log(medians[..., 1])
    return -1.0 * logs if is_higher_better else logs


def _join_starts(round_: IntArray, start: IntArray, round_count: int) -> IntArray:
    """Return a code of each round, shared by rounds of a cell that share a start."""
    starts, column = np.unique(start, return_inverse=True)
    if starts.max(initial=UNKNOWN) == UNKNOWN:
        return np.full(round_count, UNKNOWN)
    is_met = np.zeros((round_count, len(starts)))
    is_met[round_, column] = start != UNKNOWN
    if is_met.all(axis=0).any():  # one start of every round joins them all
        codes = np.zeros(round_count, np.intp)
    else:
        from scipy.sparse import csgraph  # noqa: PLC0415 - it takes a fifth of a second to load

        codes = csgraph.connected_components(is_met @ is_met.T, directed=False)[1].astype(np.intp)
    codes[round_[start == UNKNOWN]] = UNKNOWN
    return codes


def _encode_placements(
    round_: IntArray, rows: _RequestRows, round_count: int, placement_count: int
) -> IntArray:
    """Return a code of both arms' placements in each round; UNKNOWN where one is not recorded.

    The lowest and the highest code stand for an arm with several placements, as after a restart
    within a round.
    """
    lowest = np.full((round_count, 2), placement_count)
    highest = np.full((round_count, 2), UNKNOWN)
    np.minimum.at(lowest, (round_, rows.arm), rows.placement)
    np.maximum.at(highest, (round_, rows.arm), rows.placement)
    ends = np.hstack([lowest, highest])
    codes = ends @ max(placement_count, 1) ** np.arange(3, -1, -1)
    is_unknown = (ends == UNKNOWN).any(axis=1)
    return np.where(is_unknown, UNKNOWN, codes)
