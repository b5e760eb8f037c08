"""Comparison of two runs: before and after an upgrade, or on two days.

Invariant: prompts are paired by the content of their suite and their id. Only arms, classes and
loads of both runs are compared. Between two runs the day and the machine differ as well as the
change. So no difference is called unless both runs measured a noise floor, nor inside both floors
together. The gain of a variant over its baseline is compared too: there each run is its own
control, and an effect on both arms alike is taken out. No arm wins by leaving answers out. Failures
and refused answers that only one side has bar a row. A shorter time of shorter answers is not
called faster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from tandem.bench.figures.columns import BoolArray
from tandem.bench.figures.quantiles import Values
from tandem.bench.figures.request_table import UNKNOWN, RequestTable, read_request_table
from tandem.bench.figures.summary import ALL_CLASSES
from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.bench.records.manifest import run_id
from tandem.judge import verdict_reason
from tandem.judge.comparability import BROKEN_CONTENT, CellFailures, count_failures
from tandem.judge.compare.acceptance_drift import CHUNK_METRIC, join_series, measure_drift
from tandem.judge.compare.differences import CommonParts, find_common_parts, find_differences
from tandem.judge.compare.schema import (
    ComparisonRow,
    OutputAgreement,
    RunComparison,
    RunSeries,
    RunSummary,
)
from tandem.judge.controls import check_controls
from tandem.judge.decision import (
    adjust_with_fallback,
    compare_lengths,
    decide_speed_up,
    require_margin,
)
from tandem.judge.equality.output_pairs import build_matcher
from tandem.judge.interval import LogRatioEstimate, convert_log_ratio, estimate_log_ratio
from tandem.judge.pairs import (
    DECIDING_METRIC,
    JUDGED_METRICS,
    LENGTH_METRIC,
    RequestPairing,
    weigh_metric,
)
from tandem.judge.schema import MARGIN, CellWord, RatioEstimate, RunControls, ShareEstimate
from tandem.judge.text_format import format_interval, format_number

CONFOUNDING_NOTE = (
    "Between two runs the day, the machine and the start of each server differ as well as what was"
    " changed: an arm's own figures cannot tell these apart. The rows of gains can: there each run"
    " is its own control."
)
_EARLIER = "earlier "
_LATER = "later "
_COPY_COLUMNS = (
    "failed",
    "tokens",
    "output",
    "ids",
    "start_s",
    "end_s",
    "start",
    "placement",
    "repeat",
    "slot",
)
_GROUNDS = {
    "margin": "the whole interval lies inside the margin of {percent:g} %",
    "chance": "chance explains it, with every row taken into account",
    "floor": "inside the noise floors of both runs together, {floor:.3f}",
    "difference": "beyond chance and beyond both noise floors",
}
"""The reason for a row's word, by the ground of the decision."""

_RowKind = Literal["figure", "gain"]


def compare_tables(
    before: RequestTable, after: RequestTable, *, margin: float = MARGIN
) -> RunComparison:
    """Compare the later of two runs with the earlier.

    >>> from tandem.bench import read_request_table
    >>> before, after = read_request_table("monday"), read_request_table("tuesday")
    >>> comparison = compare_tables(before, after)
    >>> for row in comparison.rows:
    ...     if row.kind == "gain" and row.metric == "e2e_ms":
    ...         print(row.class_, f"{row.before:.2f} then {row.after:.2f}", row.verdict)
    repeat 2.79 then 3.45 faster
    open 1.00 then 1.00 same

    Args:
        before, after: their tables.
        margin: a speed-up within 1 / (1 + margin) to 1 + margin is `same`; above 0.

    Raises:
        InputError: the two cannot be compared; the error says why. Or the margin is not above 0.
    """
    require_margin(margin)
    common = find_common_parts(before, after)
    sides = [
        _RunSide(_EARLIER, before, check_controls(before), common.arms, common.suites.values()),
        _RunSide(_LATER, after, check_controls(after), common.arms, common.suites.keys()),
    ]
    differences = find_differences(before.run, after.run, common)
    settings = ", ".join(difference.what for difference in differences if difference.blocks)
    block_reason = f"the runs were asked differently ({settings})" if settings else ""
    for reason in [reason for side in sides for reason in side.controls.void][:1]:
        block_reason = f"a run is void: {reason}"
    arms: list[tuple[_RowKind, str]] = [("figure", arm) for arm in common.arms]
    if before.baseline == after.baseline:
        arms += [("gain", arm) for arm in common.arms if arm != before.baseline]
    merged_run = _merge_runs(sides, common)
    estimates = list(_estimate_rows(RequestPairing(merged_run), arms, before.baseline))
    rows = _decide_rows(estimates, sides, block_reason, before.baseline, margin)
    is_greedy = not before.run.temperature and not after.run.temperature
    return RunComparison(
        before=_summarize_run(sides[0]),
        after=_summarize_run(sides[1]),
        differences=differences,
        rows=tuple(row for row, entry in zip(rows, estimates, strict=True) if not entry.is_overall),
        overall=tuple(row for row, entry in zip(rows, estimates, strict=True) if entry.is_overall),
        outputs=tuple(_compare_outputs(merged_run, common)) if is_greedy else (),
        acceptance=(
            ()
            if block_reason
            else tuple(
                measure_drift(
                    merged_run,
                    [(side.prefix, side.table) for side in sides],
                    common.arms,
                    margin=margin,
                )
            )
        ),
        margin=margin,
        notes=tuple(_list_notes(sides, common, estimates)),
    )


def compare_series(folders: Sequence[Path], *, margin: float) -> RunSeries:
    """Compare each run of a series with the earliest one; otherwise as `compare_tables`.

    Args:
        folders: two, which keep their order, or more, which are ordered by when they began.
        margin: as for `compare_tables`.
    """
    tables = [read_request_table(folder) for folder in folders]
    if len(tables) > 2:  # noqa: PLR2004 - of two, the caller says which is earlier
        tables.sort(key=lambda table: table.run.created_utc)
    return join_series([compare_tables(tables[0], table, margin=margin) for table in tables[1:]])


@dataclass(frozen=True)
class _RunSide:
    """One of the two runs; `arms` and `suites` are the compared ones, by the names of this run."""

    prefix: str
    table: RequestTable
    controls: RunControls
    arms: tuple[str, ...]
    suites: Collection[str]

    @cached_property
    def arm_rows(self) -> BoolArray:
        return np.isin(
            self.table.arm, [code for code, name in enumerate(self.table.arms) if name in self.arms]
        )

    @cached_property
    def mask(self) -> BoolArray:
        """Which requests are compared: no other suites, single-run arms, or marked rounds."""
        prompts = [
            code for code, prompt in enumerate(self.table.prompts) if prompt.suite in self.suites
        ]
        is_marked = np.isin(self.table.round, self.controls.marked_rounds)
        mask: BoolArray = ~is_marked & self.arm_rows & np.isin(self.table.prompt, prompts)
        return mask

    def count_rounds(self, arms: Sequence[str], entry: _RowEstimate) -> int:
        """Return in how many rounds all arms answered in a row's class and load, no controls."""
        table = self.table
        row = entry.draft
        mask = self.mask & ~table.failed & ~table.control_round_mask()
        mask &= table.load == table.loads.index(row.load)
        if not entry.is_overall:
            mask &= table.class_ == table.classes.index(row.class_)
        return len(
            set.intersection(
                *(set(table.round[mask & table.arm_mask(arm)].tolist()) for arm in arms)
            )
        )


def _merge_runs(sides: Sequence[_RunSide], common: CommonParts) -> RequestTable:
    """Return one run with each arm twice in one round, as rounds of two runs do not pair.

    Suites have the earlier run's names.
    """

    def join_columns(columns: Sequence[Any]) -> Any:
        return np.concatenate(
            [column[side.mask] for column, side in zip(columns, sides, strict=True)]
        )

    tables = [side.table for side in sides]
    codes = {}
    later_prompts = [
        prompt._replace(suite=common.suites.get(prompt.suite, prompt.suite))
        for prompt in tables[1].prompts
    ]
    names: dict[str, list[Sequence[Any]]] = {
        "arm": [[side.prefix + name for name in side.table.arms] for side in sides],
        "prompt": [tables[0].prompts, later_prompts],
        "class_": [table.classes for table in tables],
        "load": [table.loads for table in tables],
        "content": [table.contents for table in tables],
    }
    columns = {
        name: join_columns([getattr(table, name) for table in tables]) for name in _COPY_COLUMNS
    }
    for column, parts in names.items():  # names for both runs, and the codes of the kept rows
        codes[column] = {
            name: code for code, name in enumerate(dict.fromkeys(chain.from_iterable(parts)))
        }
        own_codes = [
            np.array([*(codes[column][name] for name in part), UNKNOWN], np.intp) for part in parts
        ]
        columns[column] = join_columns(
            [part[getattr(table, column)] for part, table in zip(own_codes, tables, strict=True)]
        )
    figures = {
        metric: join_columns(
            [table.figures.get(metric, np.full(len(table), np.nan)) for table in tables]
        )
        for metric in (*JUDGED_METRICS, LENGTH_METRIC, CHUNK_METRIC)
    }
    zeros = np.zeros(len(columns["arm"]), np.intp)
    columns |= dict.fromkeys(("round", "error", "line_offsets"), zeros) | {
        "hit_token_limit": zeros.astype(bool)
    }
    plurals = {
        "arms": "arm",
        "prompts": "prompt",
        "classes": "class_",
        "loads": "load",
        "contents": "content",
    }
    shared_names: dict[str, Any] = {
        plural: tuple(codes[column]) for plural, column in plurals.items()
    }
    return replace(tables[0], figures=figures, torn_lines=(), **shared_names, **columns)


class _RowEstimate(NamedTuple):
    """A row before its p-value is adjusted for the other rows.

    `draft` is the row as far as it is known; its `why` says why only survivors could be compared,
    or is empty. `is_overall`: it is of all classes. `length_ratio` is the length of the later
    answers as a ratio of the earlier ones, where the metric grows with the length and servers
    counted tokens.
    """

    draft: ComparisonRow
    estimate: LogRatioEstimate | None
    length_ratio: RatioEstimate | None
    is_overall: bool


def _estimate_rows(
    pairing: RequestPairing, arms: Sequence[tuple[_RowKind, str]], baseline: str
) -> Iterator[_RowEstimate]:
    """Yield each arm's own figures, or its gain over its baseline, later against earlier."""
    cells = sorted(
        pairing.known_cells(), key=lambda cell: divmod(cell, len(pairing.table.loads))[::-1]
    )
    groups: list[tuple[int, ...]] = [(cell,) for cell in cells]
    for load in pairing.table.loads:
        codes = tuple(cell for cell in cells if pairing.cell_place(cell)[1] == load)
        if len(codes) > 1:
            groups.append(codes)
    for kind, arm in arms:
        own_arms = (_EARLIER + arm, _LATER + arm)
        baseline_arms = (_EARLIER + baseline, _LATER + baseline)
        pairs = [own_arms] if kind == "figure" else list(zip(baseline_arms, own_arms, strict=True))
        loss_pairs = pairs if kind == "figure" else [*pairs, baseline_arms, own_arms]
        compared_arms = _ComparedArms(kind, arm, pairs, _explain_losses(pairing, loss_pairs))
        for codes in groups:
            yield from _estimate_group(pairing, compared_arms, codes)


class _ComparedArms(NamedTuple):
    """Arms of the merged run.

    Args:
        kind, arm: of the rows.
        pairs: of arms, as for `_pair_figures`.
        losses: why a cell compares only survivors, by its code.
    """

    kind: _RowKind
    arm: str
    pairs: Sequence[tuple[str, str]]
    losses: Mapping[int, str]


def _estimate_group(
    pairing: RequestPairing, compared_arms: _ComparedArms, codes: tuple[int, ...]
) -> Iterator[_RowEstimate]:
    """Yield the metrics of one class at one load, or the deciding metric of all classes.

    Args:
        pairing: the merged run.
        compared_arms: the arms.
        codes: of one cell, or of all cells of a load.
    """
    kind, arm, pairs, losses = compared_arms
    is_overall = len(codes) > 1
    class_, load = pairing.cell_place(codes[0])
    lossy_codes = [code for code in codes if code in losses]
    loss_reason = losses[lossy_codes[0]] if lossy_codes else ""
    if is_overall and lossy_codes:
        loss_reason += f" (class {pairing.cell_place(lossy_codes[0])[0]})"
    length_estimate = estimate_log_ratio(-_pair_figures(pairing, pairs, codes, LENGTH_METRIC)[0])
    length_ratio = length_estimate.convert() if length_estimate else None
    for metric in (DECIDING_METRIC,) if is_overall else JUDGED_METRICS:
        logs, before, after = _pair_figures(pairing, pairs, codes, metric)
        if not len(logs):
            continue
        estimate = estimate_log_ratio(logs)
        draft = ComparisonRow(
            kind=kind,
            arm=arm,
            class_=ALL_CLASSES if is_overall else class_,
            load=load,
            metric=metric,
            prompts=len(logs),
            before=float(np.median(before)) if kind == "figure" else _average_ratio(before),
            after=float(np.median(after)) if kind == "figure" else _average_ratio(after),
            speed_up=estimate.convert() if estimate else RatioEstimate(value=_average_ratio(logs)),
            p=estimate.p if estimate else None,
            verdict="no evidence",
            why=loss_reason,
        )
        yield _RowEstimate(
            draft,
            estimate,
            length_ratio if metric == DECIDING_METRIC else None,
            is_overall,
        )


def _pair_figures(
    pairing: RequestPairing, arms: Sequence[tuple[str, str]], cells: Sequence[int], metric: str
) -> tuple[Values, Values, Values]:
    """Return the later run's log speed-ups over the earlier, one a prompt, and both values.

    For one pair of arms these are each run's figures; for a pair in each run, the gains over
    prompts that all four arms answered.
    """
    earlier, *laters = (pairing.join_cells(pair, cells, metric) for pair in arms)
    if not laters:
        return earlier.logs, earlier.baseline_medians, earlier.variant_medians
    _, first, second = np.intersect1d(earlier.prompts, laters[0].prompts, return_indices=True)
    gains = earlier.logs[first], laters[0].logs[second]
    return gains[1] - gains[0], *gains


def _average_ratio(logs: Values) -> float:
    return convert_log_ratio(float(np.mean(logs)))


def _explain_losses(pairing: RequestPairing, pairs: Sequence[tuple[str, str]]) -> dict[int, str]:
    """Return why a cell compares only survivors, by cell: failed or refused answers."""
    table = pairing.table
    cells = pairing.cell_codes()
    reasons = dict[int, str]()
    is_checked = ~table.failed & (table.content != UNKNOWN)
    is_broken = np.isin(
        table.content, [code for code, word in enumerate(table.contents) if word in BROKEN_CONTENT]
    )
    for pair in pairs:
        counts = [
            [
                np.bincount(cells[mask & table.arm_mask(arm)], minlength=pairing.cell_count)
                for arm in pair
            ]
            for mask in (is_checked, is_checked & is_broken)
        ]
        cell_failures = count_failures(pairing, *pair)
        cell_refusals = CellFailures(*map(np.column_stack, counts))
        for cell in np.unique(cells).tolist():
            failures = cell_failures.count(cell)
            refusals = cell_refusals.count(cell)
            if failures.is_biased:
                reasons.setdefault(
                    cell, f"{failures.describe(*pair)}, so only survivors could be compared"
                )
            elif refusals.is_biased:
                refusals_text = refusals.describe(*pair, noun="answers", verb="")
                reasons.setdefault(
                    cell,
                    f"the content check refused {refusals_text}: broken answers are not compared",
                )
    return reasons


def _explain_few_rounds(entry: _RowEstimate, baseline: str, sides: Sequence[_RunSide]) -> str:
    """Say why a row has too few rounds, in the run that has fewer; empty where they are enough."""
    row = entry.draft
    arms = (row.arm,) if row.kind == "figure" else (baseline, row.arm)
    count = min(side.count_rounds(arms, entry) for side in sides)
    if count >= FEWEST_ROUNDS:
        return ""
    return (
        "a run is short:"
        f" {verdict_reason.explain_few_rounds(count) or 'both arms answered in no round of it'}"
    )


def _decide_rows(
    estimates: Sequence[_RowEstimate],
    sides: Sequence[_RunSide],
    block_reason: str,
    baseline: str,
    margin: float,
) -> list[ComparisonRow]:
    """Return the rows with their words, with every test taken into account.

    Args:
        estimates: of all rows.
        sides: both runs.
        block_reason: why no row may be called; empty if they may be.
        baseline: of the earlier run.
        margin: within which a speed-up is the same.
    """
    adjusted_p_values = _adjust_rows(estimates)
    rows = []
    for place, entry in enumerate(estimates):
        floors = [_find_floor(side, entry) for side in sides]
        row = msgspec.structs.replace(
            entry.draft,
            adjusted_p=adjusted_p_values.get(place),
            noise_floor=floors[0] * floors[1] if floors[0] and floors[1] else None,
        )
        bar_reason = block_reason or _explain_few_rounds(entry, baseline, sides) or row.why
        word, reason = _decide_row(entry._replace(draft=row), bar_reason, margin)
        rows.append(msgspec.structs.replace(row, verdict=word, why=reason))
    return rows


def _adjust_rows(estimates: Sequence[_RowEstimate]) -> dict[int, float]:
    """Return the adjusted p-value of each row that has an estimate, by its place."""
    groups: dict[bool, list[int]] = {True: [], False: []}
    p_values: dict[bool, list[float]] = {True: [], False: []}
    for place, entry in enumerate(estimates):
        if entry.estimate is not None:
            groups[entry.is_overall].append(place)
            p_values[entry.is_overall].append(entry.estimate.p)

    weights = [weigh_metric(estimates[place].draft.metric) for place in groups[False]]
    adjusted = adjust_with_fallback(
        np.array(p_values[True]), np.array(p_values[False]), np.array(weights)
    )
    places = [*groups[True], *groups[False]]
    return dict(zip(places, np.concatenate(adjusted).tolist(), strict=True))


def _find_floor(side: _RunSide, entry: _RowEstimate) -> float | None:
    """Return the noise floor of a row in one run; None without one."""
    row = entry.draft
    if entry.is_overall:
        return side.controls.overall_floor_ratios().get(row.load)
    return side.controls.floor_ratios().get((row.class_, row.load, row.metric))


def _decide_row(entry: _RowEstimate, bar_reason: str, margin: float) -> tuple[CellWord, str]:
    """Return a row's word and why; `bar_reason` says why it must not be judged."""
    row = entry.draft
    decision = decide_speed_up(entry.estimate, row.adjusted_p, floor=row.noise_floor, margin=margin)
    if not bar_reason and row.noise_floor is None:
        bar_reason = "no noise floor in one run or both: measure both with --control-rounds"
    elif not bar_reason and entry.estimate is None:
        bar_reason = "too few prompts for an interval"
    reason = bar_reason or _explain_other_length(entry, decision.word, margin)
    if reason:
        return "no evidence", reason
    return decision.word, _GROUNDS[decision.ground].format(
        percent=100 * margin, floor=row.noise_floor
    )


def _explain_other_length(entry: _RowEstimate, word: CellWord, margin: float) -> str:
    """Return why shorter times are not of the same work; empty if answers are long enough."""
    ratio = entry.length_ratio
    is_same = word == "same"
    if ratio is None or entry.estimate is None or not (is_same or entry.estimate.log > 0):
        return ""
    length = compare_lengths(ratio, margin)
    if length == "alike" or (length == "longer" and not is_same):
        return ""
    scope = "beside its baseline's, " if entry.draft.kind == "gain" else ""
    times = f"{format_number(ratio.value)} times as long ({format_interval(ratio)})"
    return (
        f"{scope}the later answers are {times}, so their times are not those of the same work:"
        " see TPOT"
    )


def _compare_outputs(merged_run: RequestTable, common: CommonParts) -> Iterator[OutputAgreement]:
    """Yield how many of each arm's last outputs per prompt and load agree in both runs."""
    for arm in common.arms:
        names = (_EARLIER + arm, _LATER + arm)
        pairs = build_matcher(merged_run, *names).pair_arms(*names)
        if len(pairs):
            yield OutputAgreement(
                arm=arm, identical=ShareEstimate(n=int(pairs.is_same.sum()), of=len(pairs))
            )


def _summarize_run(side: _RunSide) -> RunSummary:
    run = side.table.run
    is_failed = side.arm_rows & side.table.failed
    return RunSummary(
        run=run_id(run),
        folder=side.table.folder.resolve().name,
        created_utc=run.created_utc,
        requests=int(side.arm_rows.sum()),
        failed=int(is_failed.sum()),
        simulated=run.simulated,
        void=side.controls.void,
    )


def _list_notes(
    sides: Sequence[_RunSide], common: CommonParts, estimates: Sequence[_RowEstimate]
) -> Iterator[str]:
    yield CONFOUNDING_NOTE
    yield from common.omissions
    for side in sides:
        name = side.table.folder.resolve().name
        marked_count = len(side.controls.marked)
        if not side.controls.floors:
            yield f"{name} has no noise floor, so nothing is called: --control-rounds measures one"
        if marked_count:
            yield (
                f"{name}: {marked_count} rounds are left out, because the client was the bottleneck"
            )
        yield from (f"{name}: {sentence}" for sentence in side.table.torn_lines)
    before, after = (side.table for side in sides)
    if before.baseline != after.baseline:
        yield f"the baselines are {before.baseline} and {after.baseline}, so gains are not compared"
    if not estimates:
        yield "no prompt was answered in both runs at the same load"
    for arm in common.arms:
        key = ("figure", arm, DECIDING_METRIC)
        rows = [
            row
            for row in estimates
            if row.estimate and (row.draft.kind, row.draft.arm, row.draft.metric) == key
        ]
        if rows and all(row.length_ratio is None for row in rows):
            yield (
                f"tokens of {arm} were not counted in both runs: whether its answers are of one"
                " length is not known"
            )
