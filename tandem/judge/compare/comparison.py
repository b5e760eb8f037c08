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

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from msgspec.structs import replace

from tandem.bench.figures.quantiles import Values
from tandem.bench.figures.request_table import RequestTable, read_request_table
from tandem.bench.figures.summary import ALL_CLASSES
from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.bench.records.manifest import run_id
from tandem.judge import verdict_reason
from tandem.judge.comparability import count_failures, count_refusals
from tandem.judge.compare.acceptance_drift import join_series, measure_drift
from tandem.judge.compare.differences import CommonParts, find_common_parts, find_differences
from tandem.judge.compare.run_merge import EARLIER, LATER, RunSide, merge_runs
from tandem.judge.compare.schema import (
    ComparisonRow,
    OutputAgreement,
    RunComparison,
    RunSeries,
    RunSummary,
)
from tandem.judge.controls import check_controls
from tandem.judge.decision import adjust_groups, compare_lengths, decide_speed_up, require_margin
from tandem.judge.equality.output_pairs import build_matcher
from tandem.judge.interval import LogRatioEstimate, convert_log_ratio, estimate_log_ratio
from tandem.judge.pairs import (
    DECIDING_METRIC,
    JUDGED_METRICS,
    LENGTH_METRIC,
    RequestPairing,
    weigh_metric,
)
from tandem.judge.schema import MARGIN, CellWord, RatioEstimate, ShareEstimate
from tandem.judge.text_format import format_interval, format_number

CONFOUNDING_NOTE = (
    "Between two runs the day, the machine and the start of each server differ as well as what was"
    " changed: an arm's own figures cannot tell these apart. The rows of gains can: there each run"
    " is its own control."
)
_GROUNDS = {
    "margin": "the whole interval lies inside the margin of {percent:g} %",
    "chance": "chance explains it, with every row taken into account",
    "floor": "inside the noise floors of both runs together, {floor:.3f}",
    "difference": "beyond chance and beyond both noise floors",
}
"""The reason for a row's word, by the ground of the decision."""


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
        RunSide(EARLIER, before, check_controls(before), common.arms, common.suites.values()),
        RunSide(LATER, after, check_controls(after), common.arms, common.suites.keys()),
    ]
    differences = find_differences(before.run, after.run, common)
    settings = ", ".join(difference.what for difference in differences if difference.blocks)
    block_reason = f"the runs were asked differently ({settings})" if settings else ""
    void_reasons = [*sides[0].controls.void, *sides[1].controls.void]
    if void_reasons:
        block_reason = f"a run is void: {void_reasons[0]}"

    merged_run = merge_runs(sides, common)
    estimates = list(_estimate_rows(RequestPairing(merged_run), common.arms, sides))
    rows = []
    overall = []
    decided_rows = _decide_rows(estimates, sides, block_reason, margin)
    for entry, row in zip(estimates, decided_rows, strict=True):
        if entry.is_overall:
            overall.append(row)
        else:
            rows.append(row)
    is_greedy = not before.run.temperature and not after.run.temperature
    arm_names = {}
    if not block_reason:
        arm_names = {arm: _name_arms(arm) for arm in common.arms}
    return RunComparison(
        before=_summarize_run(sides[0]),
        after=_summarize_run(sides[1]),
        differences=differences,
        rows=tuple(rows),
        overall=tuple(overall),
        outputs=tuple(_compare_outputs(merged_run, common)) if is_greedy else (),
        acceptance=tuple(measure_drift(merged_run, (before, after), arm_names, margin=margin)),
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


class _ComparedArms(NamedTuple):
    """Arms of the merged run that give rows.

    Args:
        kind, arm: of the rows.
        own_arms: those of each run that the rows are of: the arm, and for a gain its baseline.
        pairs: of arms, as for `_pair_figures`.
        losses: why a cell compares only survivors, by its code.
    """

    kind: Literal["figure", "gain"]
    arm: str
    own_arms: tuple[str, ...]
    pairs: Sequence[tuple[str, str]]
    losses: Mapping[int, str]


class _RowEstimate(NamedTuple):
    """A row before its p-value is adjusted for the other rows.

    Args:
        draft: the row as far as it is known; its `why` says why only survivors could be compared,
            or is empty.
        estimate: of its speed-up; None of too few prompts.
        length_ratio: the length of the later answers as a ratio of the earlier ones, where the
            metric grows with the length and servers counted tokens.
        is_overall: whether it is of all classes.
        own_arms: those of each run that it is of.
    """

    draft: ComparisonRow
    estimate: LogRatioEstimate | None
    length_ratio: RatioEstimate | None
    is_overall: bool
    own_arms: tuple[str, ...]


def _estimate_rows(
    pairing: RequestPairing, arms: Sequence[str], sides: Sequence[RunSide]
) -> Iterator[_RowEstimate]:
    """Yield each arm's own figures, then its gain over its baseline, later against earlier."""
    by_load = pairing.group_loads()
    groups: list[tuple[int, ...]] = []
    for load in pairing.table.loads:
        groups += [(code,) for code in by_load.get(load, ())]
    groups += [tuple(codes) for codes in by_load.values() if len(codes) > 1]
    for compared_arms in _list_compared_arms(pairing, arms, sides):
        for codes in groups:
            yield from _estimate_group(pairing, compared_arms, codes)


def _name_arms(arm: str) -> tuple[str, str]:
    """Return the names of an arm in the merged run."""
    return EARLIER + arm, LATER + arm


def _list_compared_arms(
    pairing: RequestPairing, arms: Sequence[str], sides: Sequence[RunSide]
) -> Iterator[_ComparedArms]:
    baseline, later_baseline = (side.table.baseline for side in sides)
    for arm in arms:
        pair = _name_arms(arm)
        losses = _explain_losses(pairing, [pair])
        yield _ComparedArms("figure", arm, (arm,), [pair], losses)
    for arm in arms:
        if arm == baseline or baseline != later_baseline:
            continue
        pairs = [(EARLIER + baseline, EARLIER + arm), (LATER + baseline, LATER + arm)]
        losses = _explain_losses(pairing, [*pairs, _name_arms(baseline), _name_arms(arm)])
        yield _ComparedArms("gain", arm, (baseline, arm), pairs, losses)


def _estimate_group(
    pairing: RequestPairing, compared_arms: _ComparedArms, codes: tuple[int, ...]
) -> Iterator[_RowEstimate]:
    """Yield the metrics of one class at one load, or the deciding metric of all classes.

    Args:
        pairing: the merged run.
        compared_arms: the arms.
        codes: of one cell, or of all cells of a load.
    """
    kind, arm, own_arms, pairs, losses = compared_arms
    is_overall = len(codes) > 1
    class_, load = pairing.cell_place(codes[0])
    loss_reason = ""
    lossy_codes = [code for code in codes if code in losses]
    if lossy_codes:
        loss_reason = losses[lossy_codes[0]]
        if is_overall:
            loss_reason += f" (class {pairing.cell_place(lossy_codes[0])[0]})"
    length_estimate = estimate_log_ratio(-_pair_figures(pairing, pairs, codes, LENGTH_METRIC)[0])
    length_ratio = length_estimate.convert() if length_estimate else None

    average = _compute_median if kind == "figure" else _average_ratio
    metrics = (DECIDING_METRIC,) if is_overall else JUDGED_METRICS
    for metric in metrics:
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
            before=average(before),
            after=average(after),
            speed_up=estimate.convert() if estimate else RatioEstimate(value=_average_ratio(logs)),
            p=estimate.p if estimate else None,
            verdict="no evidence",
            why=loss_reason,
        )
        lengths = length_ratio if metric == DECIDING_METRIC else None
        yield _RowEstimate(draft, estimate, lengths, is_overall, own_arms)


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
    earlier_gains = earlier.logs[first]
    later_gains = laters[0].logs[second]
    return later_gains - earlier_gains, earlier_gains, later_gains


def _compute_median(values: Values) -> float:
    return float(np.median(values))


def _average_ratio(logs: Values) -> float:
    return convert_log_ratio(float(np.mean(logs)))


def _explain_losses(pairing: RequestPairing, pairs: Sequence[tuple[str, str]]) -> dict[int, str]:
    """Return why a cell compares only survivors, by cell: failed or refused answers."""
    reasons = dict[int, str]()
    for pair in pairs:
        cell_failures = count_failures(pairing, *pair)
        cell_refusals = count_refusals(pairing, *pair)
        for cell in pairing.known_cells():
            failures = cell_failures.count(cell)
            refusals = cell_refusals.count(cell)
            reason = ""
            if failures.is_biased:
                reason = f"{failures.describe(*pair)}, so only survivors could be compared"
            elif refusals.is_biased:
                refusals_text = refusals.describe(*pair, noun="answers", verb="")
                reason = (
                    f"the content check refused {refusals_text}: broken answers are not compared"
                )
            if reason:
                reasons.setdefault(cell, reason)
    return reasons


def _decide_rows(
    estimates: Sequence[_RowEstimate], sides: Sequence[RunSide], block_reason: str, margin: float
) -> list[ComparisonRow]:
    """Return the rows with their words, with every test taken into account.

    Args:
        estimates: of all rows.
        sides: both runs.
        block_reason: why no row may be called; empty if they may be.
        margin: within which a speed-up is the same.
    """
    tested = [entry for entry in estimates if entry.estimate]
    p_values = np.array([entry.draft.p for entry in tested])
    weights = np.array([weigh_metric(entry.draft.metric) for entry in tested])
    is_overall = np.array([entry.is_overall for entry in tested], bool)
    adjusted_p_values = iter(adjust_groups(p_values, weights, is_overall).tolist())
    rows = []
    for entry in estimates:
        floors = [_find_floor(side, entry) for side in sides]
        row = replace(
            entry.draft,
            adjusted_p=next(adjusted_p_values) if entry.estimate else None,
            noise_floor=floors[0] * floors[1] if floors[0] and floors[1] else None,
        )
        bar_reason = block_reason or _explain_few_rounds(entry, sides) or row.why
        word, reason = _decide_row(entry._replace(draft=row), bar_reason, margin)
        rows.append(replace(row, verdict=word, why=reason))
    return rows


def _find_floor(side: RunSide, entry: _RowEstimate) -> float | None:
    """Return the noise floor of a row in one run; None without one."""
    row = entry.draft
    if entry.is_overall:
        return side.controls.overall_floor_ratios().get(row.load)
    return side.controls.floor_ratios().get((row.class_, row.load, row.metric))


def _explain_few_rounds(entry: _RowEstimate, sides: Sequence[RunSide]) -> str:
    """Say why a row has too few rounds, in the run that has fewer; empty where they are enough."""
    count = min(_count_rounds(side, entry) for side in sides)
    if count >= FEWEST_ROUNDS:
        return ""
    reason = verdict_reason.explain_few_rounds(count) or "both arms answered in no round of it"
    return f"a run is short: {reason}"


def _count_rounds(side: RunSide, entry: _RowEstimate) -> int:
    """Return in how many rounds all arms answered in a row's class and load, no controls."""
    table = side.table
    mask = side.mask & ~table.failed & ~table.control_round_mask()
    mask &= table.load == table.loads.index(entry.draft.load)
    if not entry.is_overall:
        mask &= table.class_ == table.classes.index(entry.draft.class_)
    rounds = [set(table.round[mask & table.arm_mask(arm)].tolist()) for arm in entry.own_arms]
    return len(set.intersection(*rounds))


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
    text = _GROUNDS[decision.ground]
    return decision.word, text.format(percent=100 * margin, floor=row.noise_floor)


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
        names = _name_arms(arm)
        pairs = build_matcher(merged_run, *names).pair_arms(*names)
        if len(pairs):
            share = ShareEstimate(n=int(pairs.is_same.sum()), of=len(pairs))
            yield OutputAgreement(arm=arm, identical=share)


def _summarize_run(side: RunSide) -> RunSummary:
    run = side.table.run
    return RunSummary(
        run=run_id(run),
        folder=side.name,
        created_utc=run.created_utc,
        requests=int(side.arm_rows.sum()),
        failed=int((side.arm_rows & side.table.failed).sum()),
        simulated=run.simulated,
        void=side.controls.void,
    )


def _list_notes(
    sides: Sequence[RunSide], common: CommonParts, estimates: Sequence[_RowEstimate]
) -> Iterator[str]:
    yield CONFOUNDING_NOTE
    yield from common.omissions
    for side in sides:
        marked_count = len(side.controls.marked)
        if not side.controls.floors:
            reason = "has no noise floor, so nothing is called: --control-rounds measures one"
            yield f"{side.name} {reason}"
        if marked_count:
            reason = "rounds are left out, because the client was the bottleneck"
            yield f"{side.name}: {marked_count} {reason}"
        for sentence in side.table.torn_lines:
            yield f"{side.name}: {sentence}"
    before = sides[0].table.baseline
    after = sides[1].table.baseline
    if before != after:
        yield f"the baselines are {before} and {after}, so gains are not compared"
    if not estimates:
        yield "no prompt was answered in both runs at the same load"
    for arm in common.arms:
        key = ("figure", arm, DECIDING_METRIC)
        ratios = [
            row.length_ratio
            for row in estimates
            if row.estimate and (row.draft.kind, row.draft.arm, row.draft.metric) == key
        ]
        if ratios and not any(ratios):
            yield (
                f"tokens of {arm} were not counted in both runs: whether its answers are of one"
                " length is not known"
            )
