"""Two runs beside each other: before and after an upgrade, or on two days.

Invariant: prompts are paired by the content of their suite and their id, and only arms, classes and loads of both runs
are compared. Between two runs the day and the machine differ as well as what was changed, so nothing is called unless
both runs measured how far a server is from itself, and nothing inside both floors together. What a variant gains over
its baseline is compared too: there each run is its own control, and what touched both arms alike is out of it. No arm
wins by what it left out: failures and refused answers that the other side has not bar a row, and a shorter time of
shorter answers is not called faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.manifest import run_id
from tandem.bench.quantiles import Values
from tandem.bench.request_table import NO_DIGEST, UNKNOWN, RequestTable, read_request_table
from tandem.bench.schedule import LoadLevel
from tandem.judge import failure_bias, verdict_reason
from tandem.judge.cells import adjust_p_values, mask_valid_rounds
from tandem.judge.compare.differences import (
    CommonParts,
    find_common_parts,
    find_differences,
    list_similarities,
)
from tandem.judge.compare.schema import ComparisonRow, OutputAgreement, RunComparison, RunSummary
from tandem.judge.controls import check_controls
from tandem.judge.equality.content_rejections import BROKEN_CONTENT
from tandem.judge.interval import FEWEST_ROUNDS, LEVEL, LogRatioEstimate, estimate_log_ratio
from tandem.judge.pairs import JUDGED_METRICS, RequestPairing
from tandem.judge.ratio import convert_log_ratio, convert_optional_estimate
from tandem.judge.schema import CellWord, RatioEstimate, RunControls, ShareEstimate
from tandem.judge.text_format import format_interval, format_number

CONFOUNDING_NOTE = (
    "Between two runs the day, the machine and the start of each server differ as well as what was changed: an arm's "
    "own figures cannot tell these apart. The rows of gains can: there each run is its own control."
)
_BEFORE, _AFTER = "before ", "after "
_E2E, _LENGTH = "e2e_ms", "completion_tokens"
_SOUND, _REFUSAL = 0, 1  # codes of contents in a merged run
_CellKey = tuple[str, LoadLevel, str]
_RoundsByCell = dict[tuple[str, str, LoadLevel], set[int]]


def compare_runs(before: Path, after: Path, *, margin: float) -> RunComparison:
    """Compare the later of two runs with the earlier.

    Args:
        before, after: their folders.
        margin: a speed-up within 1 / (1 + margin) to 1 + margin is `same`; above 0.

    Raises:
        BenchError: a folder is no run, or the two cannot be compared; it says why.
    """
    return compare_tables(read_request_table(before), read_request_table(after), margin=margin)


def compare_tables(before: RequestTable, after: RequestTable, *, margin: float) -> RunComparison:
    """Compare two runs that are read already; else as `compare_runs`."""
    common = find_common_parts(before, after)
    run_controls = (check_controls(before), check_controls(after))
    manifest_differences = find_differences(before.run, after.run, common)
    parts = (
        _RunPart(before, _BEFORE, {suite: suite for suite in common.suites.values()}, run_controls[0]),
        _RunPart(after, _AFTER, dict(common.suites), run_controls[1]),
    )
    pairing = RequestPairing(_merge_runs(parts, common))
    floors, rounds = _combine_floors(*run_controls), [_list_rounds(part, common) for part in parts]
    block_reason = _explain_block(run_controls, [entry.what for entry in manifest_differences if entry.blocks])
    is_greedy = not before.run.temperature and not after.run.temperature
    outputs = tuple(_compare_outputs(pairing.table, common)) if is_greedy else ()
    estimates = [
        *_estimate_figures(pairing, common),
        *_estimate_gains(pairing, common, before.baseline, after.baseline),
    ]
    adjusted_p_values = _adjust_known_p_values([entry.estimate for entry in estimates])
    rows = tuple(
        _build_row(
            entry,
            p,
            floors.get((entry.class_, entry.load, entry.metric)),
            block_reason or _explain_few_rounds(entry, before.baseline, rounds),
            margin,
        )
        for entry, p in zip(estimates, adjusted_p_values, strict=True)
    )
    return RunComparison(
        before=_summarize_run(before, run_controls[0], common),
        after=_summarize_run(after, run_controls[1], common),
        differences=manifest_differences,
        alike=list_similarities(before.run, after.run, common),
        rows=rows,
        outputs=outputs,
        margin=margin,
        notes=tuple(_list_notes(before, after, common, run_controls, estimates)),
    )


class _RowEstimate(NamedTuple):
    """A row before it is held against the others.

    `loss_reason` says why only survivors could be compared. `length_ratio` is that of the later answers as a ratio of
    the earlier
    ones, where the metric grows with it and servers counted tokens.
    """

    kind: Literal["figure", "gain"]
    arm: str
    class_: str
    load: LoadLevel
    metric: str
    logs: Values
    before: float
    after: float
    estimate: LogRatioEstimate | None
    loss_reason: str
    length_ratio: RatioEstimate | None


def _merge_runs(parts: Sequence[_RunPart], common: CommonParts) -> RequestTable:
    """Return one run that has each arm twice; its rounds are one, since no round of one run belongs to one of another.

    Requests of other suites, of arms that only one run has and of marked rounds are left out.
    """
    rows = [_mask_rows(part, common) for part in parts]
    code_columns: dict[str, Any] = {
        "arm": _merge_codes([[part.prefix + name for name in part.table.arms] for part in parts], parts, rows, "arm"),
        "prompt": _merge_codes([_rename_prompts(part) for part in parts], parts, rows, "prompt"),
        **{
            name: _merge_codes([getattr(part.table, names) for part in parts], parts, rows, name)
            for name, names in (("class_", "classes"), ("load", "loads"))
        },
    }
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part.table, name)[mask] for part, mask in zip(parts, rows, strict=True)])
        for name in ("failed", "tokens", "output", "ids", "start_s", "end_s", "start", "placement", "repeat", "slot")
    }
    row_count = len(columns["failed"])
    return replace(
        parts[0].table,
        arms=code_columns["arm"][0],
        prompts=code_columns["prompt"][0],
        classes=code_columns["class_"][0],
        loads=code_columns["load"][0],
        arm=code_columns["arm"][1],
        prompt=code_columns["prompt"][1],
        class_=code_columns["class_"][1],
        load=code_columns["load"][1],
        round=np.zeros(row_count, np.intp),
        error=np.zeros(row_count, np.intp),
        contents=("sound", "refused"),
        content=np.concatenate([_encode_content(part.table)[mask] for part, mask in zip(parts, rows, strict=True)]),
        hit_token_limit=np.zeros(row_count, bool),
        line_offsets=np.zeros(row_count, np.intp),
        torn_lines=(),
        figures={
            metric: np.concatenate(
                [_read_figure(part.table, metric)[mask] for part, mask in zip(parts, rows, strict=True)]
            )
            for metric in (*JUDGED_METRICS, _LENGTH)
        },
        **columns,
    )


class _RunPart(NamedTuple):
    """One run of a merge: the sign before its arms' names, and what its suites are called."""

    table: RequestTable
    prefix: str
    suites: Mapping[str, str]
    controls: RunControls


def _mask_rows(part: _RunPart, common: CommonParts) -> BoolArray:
    table = part.table
    arms = [code for code, name in enumerate(table.arms) if name in common.arms]
    prompts = [code for code, prompt in enumerate(table.prompts) if prompt.suite in part.suites]
    round_mask = RequestPairing(table, mask_valid_rounds(table, part.controls)).row_mask()
    rows: BoolArray = round_mask & np.isin(table.arm, arms) & np.isin(table.prompt, prompts)
    return rows


def _rename_prompts(part: _RunPart) -> list[Any]:
    return [prompt._replace(suite=part.suites.get(prompt.suite, prompt.suite)) for prompt in part.table.prompts]


def _merge_codes(
    names: Sequence[Sequence[Any]], parts: Sequence[_RunPart], rows: Sequence[BoolArray], column: str
) -> tuple[tuple[Any, ...], IntArray]:
    """Return names that serve both runs, and the codes of the rows that are kept."""
    codes_by_name = {
        name: code for code, name in enumerate(dict.fromkeys(name for part_names in names for name in part_names))
    }
    codes = [
        np.array([codes_by_name[name] for name in part_names], np.intp)[getattr(part.table, column)[mask]]
        for part_names, part, mask in zip(names, parts, rows, strict=True)
    ]
    return tuple(codes_by_name), np.concatenate(codes)


def _encode_content(table: RequestTable) -> IntArray:
    """Return what the content check said of each answer: sound, refused, or UNKNOWN where it was not asked."""
    refusal_mask = np.isin(table.content, [code for code, word in enumerate(table.contents) if word in BROKEN_CONTENT])
    return np.where(table.content == UNKNOWN, UNKNOWN, np.where(refusal_mask, _REFUSAL, _SOUND))


def _read_figure(table: RequestTable, metric: str) -> Values:
    return table.figures[metric] if metric in table.figures else np.full(len(table), np.nan)


def _estimate_figures(pairing: RequestPairing, common: CommonParts) -> Iterator[_RowEstimate]:
    """Yield each arm's own figures, later against earlier."""
    table = pairing.table
    for arm in common.arms:
        pair = (_BEFORE + arm, _AFTER + arm)
        if not set(pair) <= set(table.arms):
            continue
        losses = _ArmLosses.from_arms(pairing, *pair, ("the earlier run", "the later run"))
        for class_, load in _list_cells(table):
            length_ratio = convert_optional_estimate(
                estimate_log_ratio(_compare_lengths(pairing, pair, class_, load)[1])
            )
            for metric in JUDGED_METRICS:
                cell_pairs = pairing.pairs(baseline=pair[0], variant=pair[1], class_=class_, load=load, metric=metric)
                if not len(cell_pairs.logs):
                    continue
                yield _RowEstimate(
                    "figure",
                    arm,
                    table.classes[class_],
                    table.loads[load],
                    metric,
                    cell_pairs.logs,
                    float(np.median(cell_pairs.baseline_medians)),
                    float(np.median(cell_pairs.variant_medians)),
                    estimate_log_ratio(cell_pairs.logs),
                    losses.explain_loss(class_, load),
                    length_ratio if metric == _E2E else None,
                )


def _estimate_gains(pairing: RequestPairing, common: CommonParts, before: str, after: str) -> Iterator[_RowEstimate]:
    """Yield what each variant gains over its baseline, later against earlier; the baselines must be of one name."""
    table = pairing.table
    if before != after or not {_BEFORE + before, _AFTER + before} <= set(table.arms):
        return
    for arm in common.arms:
        if arm == before:
            continue
        losses = [
            *(
                _ArmLosses.from_arms(
                    pairing, prefix + before, prefix + arm, (f"{before} in {run_text}", f"{arm} in {run_text}")
                )
                for prefix, run_text in ((_BEFORE, "the earlier run"), (_AFTER, "the later run"))
            ),
            *(
                _ArmLosses.from_arms(
                    pairing,
                    _BEFORE + entry,
                    _AFTER + entry,
                    (f"{entry} in the earlier run", f"{entry} in the later run"),
                )
                for entry in (before, arm)
            ),
        ]
        for class_, load in _list_cells(table):
            loss_reason = next(filter(None, (entry.explain_loss(class_, load) for entry in losses)), "")
            lengths = [
                _compare_lengths(pairing, (prefix + before, prefix + arm), class_, load) for prefix in (_BEFORE, _AFTER)
            ]
            _, earlier, later = np.intersect1d(lengths[0][0], lengths[1][0], return_indices=True)
            length_ratio = convert_optional_estimate(estimate_log_ratio(lengths[1][1][later] - lengths[0][1][earlier]))
            for metric in JUDGED_METRICS:
                sides = [
                    pairing.pairs(
                        baseline=prefix + before, variant=prefix + arm, class_=class_, load=load, metric=metric
                    )
                    for prefix in (_BEFORE, _AFTER)
                ]
                _, first, second = np.intersect1d(sides[0].prompts, sides[1].prompts, return_indices=True)
                if not len(first):
                    continue
                logs = [sides[0].logs[first], sides[1].logs[second]]
                yield _RowEstimate(
                    "gain",
                    arm,
                    table.classes[class_],
                    table.loads[load],
                    metric,
                    logs[1] - logs[0],
                    convert_log_ratio(float(np.mean(logs[0]))),
                    convert_log_ratio(float(np.mean(logs[1]))),
                    estimate_log_ratio(logs[1] - logs[0]),
                    loss_reason,
                    length_ratio if metric == _E2E else None,
                )


def _compare_lengths(pairing: RequestPairing, pair: tuple[str, str], class_: int, load: int) -> tuple[IntArray, Values]:
    """Return prompts of two arms and the log ratio of their answers' tokens, above 0 where the second's are more."""
    cell_pairs = pairing.pairs(baseline=pair[0], variant=pair[1], class_=class_, load=load, metric=_LENGTH)
    return cell_pairs.prompts, -cell_pairs.logs


class _ArmLosses(NamedTuple):
    """What two arms lost, by cell: requests that failed, and answers that the content check refused."""

    names: tuple[str, str]
    loads: int
    failures: failure_bias.CellFailures
    refusals: failure_bias.CellFailures

    @classmethod
    def from_arms(cls, pairing: RequestPairing, first: str, second: str, names: tuple[str, str]) -> _ArmLosses:
        """Count what two arms of a merged run lost.

        Args:
            pairing: the merged run.
            first, second: the arms.
            names: what they are called in a sentence.
        """
        table, cells = pairing.table, pairing.cell_codes()
        answer_mask = ~table.failed & (table.content != UNKNOWN)

        def count_by_cell(rows: BoolArray) -> IntArray:
            of_arms = (rows & table.arm_mask(arm) for arm in (first, second))
            return np.column_stack([np.bincount(cells[arm_rows], minlength=pairing.cell_count) for arm_rows in of_arms])

        refusals = failure_bias.CellFailures(
            count_by_cell(answer_mask), count_by_cell(answer_mask & (table.content == _REFUSAL))
        )
        return cls(names, len(table.loads), failure_bias.count_failures(pairing, first, second), refusals)

    def explain_loss(self, class_: int, load: int) -> str:
        """Return why a cell compares survivors; empty where it does not."""
        cell = class_ * self.loads + load
        failure_counts, refusal_counts = self.failures.count_cell(cell), self.refusals.count_cell(cell)
        if failure_counts.is_biased:
            return f"{failure_counts.describe(*self.names)}, so only survivors could be compared"
        if refusal_counts.is_biased:
            return (
                f"the content check refused {refusal_counts.variant_failures} of "
                f"{refusal_counts.variant_requests} answers of {self.names[1]}, "
                f"{refusal_counts.baseline_failures} of {refusal_counts.baseline_requests} of {self.names[0]}: "
                "broken answers are not compared"
            )
        return ""


def _list_cells(table: RequestTable) -> list[tuple[int, int]]:
    """Return the classes and loads that were asked, in the order of their names."""
    return sorted(set(zip(table.class_.tolist(), table.load.tolist(), strict=True)), key=lambda cell: cell[::-1])


def _combine_floors(before: RunControls, after: RunControls) -> dict[_CellKey, float]:
    """Return the floors of both runs together, of the cells for which both have one."""
    floors_by_run = [
        {(floor.class_, floor.load, floor.metric): max(floor.ratio, 1.0) for floor in run_controls.floors}
        for run_controls in (before, after)
    ]
    return {
        place: ratio * floors_by_run[1][place] for place, ratio in floors_by_run[0].items() if place in floors_by_run[1]
    }


def _list_rounds(part: _RunPart, common: CommonParts) -> _RoundsByCell:
    """Return the rounds in which each arm answered in a class at a load, control rounds left out."""
    table, answer_mask = part.table, _mask_rows(part, common) & ~part.table.failed & ~part.table.control_round_mask()
    rounds: _RoundsByCell = {}
    for arm, class_, load, round_ in np.unique(
        np.column_stack([column[answer_mask] for column in (table.arm, table.class_, table.load, table.round)]), axis=0
    ).tolist():
        rounds.setdefault((table.arms[arm], table.classes[class_], table.loads[load]), set()).add(round_)
    return rounds


def _explain_few_rounds(estimate_row: _RowEstimate, baseline: str, rounds: Sequence[_RoundsByCell]) -> str:
    """Say why a row has too few rounds, in the run that has fewer; empty where they are enough."""
    arms = (estimate_row.arm,) if estimate_row.kind == "figure" else (baseline, estimate_row.arm)
    round_count = min(
        len(set.intersection(*(run_rounds.get((arm, estimate_row.class_, estimate_row.load), set()) for arm in arms)))
        for run_rounds in rounds
    )
    if round_count >= FEWEST_ROUNDS:
        return ""
    return f"a run is short: {verdict_reason.explain_few_rounds(round_count) or 'both arms answered in no round of it'}"


def _explain_block(run_controls: Sequence[RunControls], setting_names: Sequence[str]) -> str:
    """Say why nothing may be called, whatever the figures; empty where it may."""
    void_reasons = [reason for controls_of_run in run_controls for reason in controls_of_run.void]
    if void_reasons:
        return f"a run is void: {void_reasons[0]}"
    return f"the runs were asked differently ({', '.join(setting_names)})" if setting_names else ""


def _adjust_known_p_values(estimates: Sequence[LogRatioEstimate | None]) -> list[float | None]:
    """Return each p with all of them taken into account; None where there is none."""
    p_values = [row_estimate.p for row_estimate in estimates if row_estimate is not None]
    adjusted_p_values = iter(adjust_p_values(np.array(p_values)).tolist() if p_values else [])
    return [None if row_estimate is None else next(adjusted_p_values) for row_estimate in estimates]


def _build_row(
    row_estimate: _RowEstimate, adjusted_p: float | None, floor: float | None, block_reason: str, margin: float
) -> ComparisonRow:
    verdict, reason = _decide_row(row_estimate, adjusted_p, floor, block_reason, margin)
    log_ratio = row_estimate.estimate
    ratio = convert_optional_estimate(log_ratio) or RatioEstimate(
        value=convert_log_ratio(float(np.mean(row_estimate.logs)))
    )
    return ComparisonRow(
        kind=row_estimate.kind,
        arm=row_estimate.arm,
        class_=row_estimate.class_,
        load=row_estimate.load,
        metric=row_estimate.metric,
        prompts=len(row_estimate.logs),
        before=row_estimate.before,
        after=row_estimate.after,
        speed_up=ratio,
        p=None if log_ratio is None else log_ratio.p,
        adjusted_p=adjusted_p,
        noise_floor=floor,
        verdict=verdict,
        why=reason,
    )


def _decide_row(
    row_estimate: _RowEstimate, adjusted_p: float | None, floor: float | None, block_reason: str, margin: float
) -> tuple[CellWord, str]:
    """Return what may be said of a row, and why."""
    log_ratio, margin_log = row_estimate.estimate, math.log1p(margin)
    reason = block_reason or _explain_no_call(row_estimate, floor)
    if reason or log_ratio is None or floor is None or adjusted_p is None:
        return "no evidence", reason
    is_same = -margin_log <= log_ratio.low and log_ratio.high <= margin_log
    if (
        row_estimate.length_ratio is not None
        and (is_same or log_ratio.log > 0)
        and _has_other_length(row_estimate.length_ratio, margin, only_shorter=not is_same)
    ):
        baseline_text = "beside its baseline's, " if row_estimate.kind == "gain" else ""
        length_text = (
            f"{baseline_text}the later answers are {format_number(row_estimate.length_ratio.value)} "
            f"times as long ({format_interval(row_estimate.length_ratio)})"
        )
        return "no evidence", f"{length_text}, so their times are not those of the same work: see TPOT"
    if is_same:
        return "same", f"the whole interval lies inside the margin of {100 * margin:g} %"
    if adjusted_p >= 1 - LEVEL:
        return "no evidence", "chance explains it, with every row taken into account"
    if abs(log_ratio.log) <= math.log(floor):
        return "no evidence", f"inside the noise floors of both runs together, {floor:.3f}"
    return ("faster" if log_ratio.log > 0 else "slower"), "beyond chance and beyond both noise floors"


def _has_other_length(length: RatioEstimate, margin: float, *, only_shorter: bool) -> bool:
    """Return whether answers are of another length, interval and all; with `only_shorter`, whether they are shorter."""
    low, high = length.low or length.value, length.high or length.value
    return high < 1 / (1 + margin) or (not only_shorter and low > 1 + margin)


def _explain_no_call(row_estimate: _RowEstimate, floor: float | None) -> str:
    if row_estimate.loss_reason:
        return row_estimate.loss_reason
    if row_estimate.estimate is None:
        return "too few prompts for an interval"
    return "" if floor is not None else "no noise floor in one run or both: measure both with --control-rounds"


def _compare_outputs(table: RequestTable, common: CommonParts) -> Iterator[OutputAgreement]:
    """Yield how many first answers are the same text in both runs."""
    for arm in common.arms:
        if not {_BEFORE + arm, _AFTER + arm} <= set(table.arms):
            continue
        texts = [_find_first_digests(table, prefix + arm) for prefix in (_BEFORE, _AFTER)]
        common_keys = texts[0].keys() & texts[1].keys()
        if common_keys:
            same_count = sum(texts[0][key] == texts[1][key] for key in common_keys)
            yield OutputAgreement(arm=arm, identical=ShareEstimate(n=same_count, of=len(common_keys)))


def _find_first_digests(table: RequestTable, arm: str) -> dict[tuple[int, int], int]:
    rows = np.flatnonzero(table.arm_mask(arm) & ~table.failed & (table.output != NO_DIGEST))
    keys = zip(table.prompt[rows].tolist(), table.load[rows].tolist(), strict=True)
    digests: dict[tuple[int, int], int] = {}
    for key, digest in zip(keys, table.output[rows].tolist(), strict=True):
        digests.setdefault(key, digest)
    return digests


def _summarize_run(table: RequestTable, run_controls: RunControls, common: CommonParts) -> RunSummary:
    rows = np.isin(table.arm, [code for code, name in enumerate(table.arms) if name in common.arms])
    return RunSummary(
        run=run_id(table.run), folder=table.folder.resolve().name, created_utc=table.run.created_utc,
        requests=int(rows.sum()), failed=int((rows & table.failed).sum()), floors=bool(run_controls.floors),
        simulated=table.run.simulated,
        void=run_controls.void,
    )  # fmt: skip


def _list_notes(
    before: RequestTable,
    after: RequestTable,
    common: CommonParts,
    run_controls: Sequence[RunControls],
    estimates: Sequence[_RowEstimate],
) -> Iterator[str]:
    yield CONFOUNDING_NOTE
    yield from common.omissions
    for table, controls_of_run in zip((before, after), run_controls, strict=True):
        name = table.folder.resolve().name
        if not controls_of_run.floors:
            yield f"{name} has no noise floor, so nothing is called: --control-rounds measures one"
        if controls_of_run.marked:
            yield f"{name}: {len(controls_of_run.marked)} rounds are left out, because the client was the bottleneck"
        yield from map(str, table.torn_lines)
    if before.baseline != after.baseline:
        yield f"the baselines are {before.baseline} and {after.baseline}, so gains are not compared"
    if not estimates:
        yield "no prompt was answered in both runs at the same load"
    for arm in common.arms:
        e2e_rows = [
            row_estimate
            for row_estimate in estimates
            if (row_estimate.kind, row_estimate.arm, row_estimate.metric) == ("figure", arm, _E2E)
            and row_estimate.estimate
        ]
        if e2e_rows and all(row_estimate.length_ratio is None for row_estimate in e2e_rows):
            yield f"tokens of {arm} were not counted in both runs: whether its answers are of one length is not known"
    if before.run.created_utc > after.run.created_utc:
        yield "the first run is the later one: figures read from it to the earlier one"
