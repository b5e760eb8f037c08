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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.manifest import run_id
from tandem.bench.quantiles import Values
from tandem.bench.request_table import NO_DIGEST, UNKNOWN, RequestTable, read_request_table
from tandem.bench.schedule import FEWEST_ROUNDS, LoadLevel
from tandem.judge import failure_bias, verdict_reason
from tandem.judge.compare.differences import (
    CommonParts,
    find_common_parts,
    find_differences,
    list_similarities,
)
from tandem.judge.compare.schema import ComparisonRow, OutputAgreement, RunComparison, RunSummary
from tandem.judge.controls import check_controls
from tandem.judge.decision import SpeedUpDecision, adjust_p_values, compare_lengths, decide_speed_up
from tandem.judge.equality.content_rejections import BROKEN_CONTENT
from tandem.judge.interval import LogRatioEstimate, convert_log_ratio, estimate_log_ratio
from tandem.judge.pairs import DECIDING_METRIC, JUDGED_METRICS, LENGTH_METRIC, RequestPairing
from tandem.judge.schema import RatioEstimate, RunControls, ShareEstimate
from tandem.judge.text_format import format_interval, format_number

CONFOUNDING_NOTE = (
    "Between two runs the day, the machine and the start of each server differ as well as what was changed: an arm's "
    "own figures cannot tell these apart. The rows of gains can: there each run is its own control."
)
_BEFORE, _AFTER = "before ", "after "
_COPY_COLUMNS = ("failed", "tokens", "output", "ids", "start_s", "end_s", "start", "placement", "repeat", "slot")
_SOUND, _REFUSAL = 0, 1  # codes of contents in a merged run
_CellKey = tuple[str, LoadLevel, str]
_RowKind = Literal["figure", "gain"]
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
    void_reasons = [reason for controls in run_controls for reason in controls.void]
    settings = ", ".join(difference.what for difference in manifest_differences if difference.blocks)
    block_reason = f"the runs were asked differently ({settings})" if settings else ""
    if void_reasons:
        block_reason = f"a run is void: {void_reasons[0]}"
    is_greedy = not before.run.temperature and not after.run.temperature
    outputs = tuple(_compare_outputs(pairing.table, common)) if is_greedy else ()
    arms: list[tuple[_RowKind, str]] = [("figure", arm) for arm in common.arms]
    if before.baseline == after.baseline:
        arms += [("gain", arm) for arm in common.arms if arm != before.baseline]
    estimates = list(_estimate_rows(pairing, arms, before.baseline))
    p_values = iter(adjust_p_values(np.array([entry.estimate.p for entry in estimates if entry.estimate])).tolist())
    rows = tuple(
        _decide_row(
            entry,
            next(p_values) if entry.estimate else None,
            floors.get((entry.draft.class_, entry.draft.load, entry.draft.metric)),
            block_reason or _explain_few_rounds(entry.draft, before.baseline, rounds),
            margin,
        )
        for entry in estimates
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

    `draft` is the row as far as it is known; its `why` says why only survivors could be compared, or is empty.
    `length_ratio` is that of the later answers as a ratio of the earlier ones, where the metric grows with it and
    servers counted tokens.
    """

    draft: ComparisonRow
    estimate: LogRatioEstimate | None
    length_ratio: RatioEstimate | None


def _merge_runs(parts: Sequence[_RunPart], common: CommonParts) -> RequestTable:
    """Return one run that has each arm twice; its rounds are one, since no round of one run belongs to one of another.

    Requests of other suites, of arms that only one run has and of marked rounds are left out.
    """
    masks = [_mask_rows(part, common) for part in parts]
    tables = [part.table for part in parts]

    def join_columns(columns: Iterable[NDArray[Any]]) -> Any:
        return np.concatenate([column[mask] for column, mask in zip(columns, masks, strict=True)])

    def join_codes(names: Sequence[Sequence[Any]], column: str) -> tuple[tuple[Any, ...], Any]:
        """Return names that serve both runs, and the codes of the rows that are kept."""
        codes = {name: code for code, name in enumerate(dict.fromkeys(chain.from_iterable(names)))}
        code_columns = (
            np.array([codes[name] for name in part_names], np.intp)[getattr(table, column)]
            for part_names, table in zip(names, tables, strict=True)
        )
        return tuple(codes), join_columns(code_columns)

    arms, arm = join_codes([[part.prefix + name for name in part.table.arms] for part in parts], "arm")
    prompt_keys = [
        [prompt._replace(suite=part.suites.get(prompt.suite, prompt.suite)) for prompt in part.table.prompts]
        for part in parts
    ]
    prompts, prompt = join_codes(prompt_keys, "prompt")
    classes, class_ = join_codes([table.classes for table in tables], "class_")
    loads, load = join_codes([table.loads for table in tables], "load")
    columns = {name: join_columns(getattr(table, name) for table in tables) for name in _COPY_COLUMNS}
    row_count = len(arm)
    return replace(
        tables[0],
        arms=arms, prompts=prompts, classes=classes, loads=loads, arm=arm, prompt=prompt, class_=class_, load=load,
        round=np.zeros(row_count, np.intp), error=np.zeros(row_count, np.intp), contents=("sound", "refused"),
        content=join_columns(_encode_content(table) for table in tables),
        hit_token_limit=np.zeros(row_count, bool), line_offsets=np.zeros(row_count, np.intp), torn_lines=(),
        figures={
            metric: join_columns(table.figures.get(metric, np.full(len(table), np.nan)) for table in tables)
            for metric in (*JUDGED_METRICS, LENGTH_METRIC)
        },
        **columns,
    )  # fmt: skip


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
    round_mask = RequestPairing(table, part.controls.marked_rounds).row_mask()
    rows: BoolArray = round_mask & np.isin(table.arm, arms) & np.isin(table.prompt, prompts)
    return rows


def _encode_content(table: RequestTable) -> IntArray:
    """Return what the content check said of each answer: sound, refused, or UNKNOWN where it was not asked."""
    refusal_mask = np.isin(table.content, [code for code, word in enumerate(table.contents) if word in BROKEN_CONTENT])
    return np.where(table.content == UNKNOWN, UNKNOWN, np.where(refusal_mask, _REFUSAL, _SOUND))


class _PairedFigures(NamedTuple):
    """What one metric of one cell is in both runs, of the prompts that can be compared.

    `logs` are the later run's log speed-ups over the earlier, one a prompt; before and after are each run's figure.
    """

    logs: Values
    before: float
    after: float


def _estimate_rows(
    pairing: RequestPairing, arms: Sequence[tuple[_RowKind, str]], baseline: str
) -> Iterator[_RowEstimate]:
    """Yield each arm's own figures, or what it gains over its baseline, later against earlier."""
    table = pairing.table
    cells = sorted(set(zip(table.class_.tolist(), table.load.tolist(), strict=True)), key=lambda cell: cell[::-1])
    for kind, arm in arms:
        pair_figures = partial(_pair_own_figures, pairing, arm)
        losses = [_ArmLosses.from_arms(pairing, _BEFORE + arm, _AFTER + arm, ("the earlier run", "the later run"))]
        if kind == "gain":
            pair_figures = partial(_pair_gains, pairing, baseline, arm)
            losses = [
                _ArmLosses.from_arms(pairing, *pair, (_name_arm(pair[0]), _name_arm(pair[1])))
                for pair in (
                    (_BEFORE + baseline, _BEFORE + arm), (_AFTER + baseline, _AFTER + arm),
                    (_BEFORE + baseline, _AFTER + baseline), (_BEFORE + arm, _AFTER + arm),
                )
            ]  # fmt: skip
        for cell in cells:
            loss_reason = next(filter(None, (entry.explain_loss(*cell) for entry in losses)), "")
            length_estimate = estimate_log_ratio(-pair_figures(cell, LENGTH_METRIC).logs)
            length_ratio = length_estimate.convert() if length_estimate else None
            for metric in JUDGED_METRICS:
                figures = pair_figures(cell, metric)
                if not len(figures.logs):
                    continue
                estimate = estimate_log_ratio(figures.logs)
                mean_ratio = RatioEstimate(value=convert_log_ratio(float(np.mean(figures.logs))))
                draft = ComparisonRow(
                    kind=kind,
                    arm=arm,
                    class_=table.classes[cell[0]],
                    load=table.loads[cell[1]],
                    metric=metric,
                    prompts=len(figures.logs),
                    before=figures.before,
                    after=figures.after,
                    speed_up=estimate.convert() if estimate else mean_ratio,
                    p=estimate.p if estimate else None,
                    verdict="no evidence",
                    why=loss_reason,
                )
                yield _RowEstimate(draft, estimate, length_ratio if metric == DECIDING_METRIC else None)


def _pair_own_figures(pairing: RequestPairing, arm: str, cell: tuple[int, int], metric: str) -> _PairedFigures:
    """Return an arm's own figures in both runs; the medians over prompts stand for each run."""
    pairs = pairing.pairs(baseline=_BEFORE + arm, variant=_AFTER + arm, class_=cell[0], load=cell[1], metric=metric)
    if not len(pairs.logs):
        return _PairedFigures(pairs.logs, math.nan, math.nan)
    return _PairedFigures(pairs.logs, float(np.median(pairs.baseline_medians)), float(np.median(pairs.variant_medians)))


def _pair_gains(pairing: RequestPairing, baseline: str, arm: str, cell: tuple[int, int], metric: str) -> _PairedFigures:
    """Return an arm's speed-up over its baseline in both runs, of prompts that all four answered."""
    earlier, later = (
        pairing.pairs(baseline=prefix + baseline, variant=prefix + arm, class_=cell[0], load=cell[1], metric=metric)
        for prefix in (_BEFORE, _AFTER)
    )
    _, first, second = np.intersect1d(earlier.prompts, later.prompts, return_indices=True)
    if not len(first):
        return _PairedFigures(np.empty(0), math.nan, math.nan)
    logs = earlier.logs[first], later.logs[second]
    return _PairedFigures(logs[1] - logs[0], *(convert_log_ratio(float(np.mean(side))) for side in logs))


def _name_arm(arm_name: str) -> str:
    """Return the name of an arm of a merged run as a sentence has it."""
    is_earlier = arm_name.startswith(_BEFORE)
    name = arm_name.removeprefix(_BEFORE if is_earlier else _AFTER)
    return f"{name} in the {'earlier' if is_earlier else 'later'} run"


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


def _explain_few_rounds(row: ComparisonRow, baseline: str, rounds: Sequence[_RoundsByCell]) -> str:
    """Say why a row has too few rounds, in the run that has fewer; empty where they are enough."""
    arms = (row.arm,) if row.kind == "figure" else (baseline, row.arm)
    round_count = min(
        len(set.intersection(*(run_rounds.get((arm, row.class_, row.load), set()) for arm in arms)))
        for run_rounds in rounds
    )
    if round_count >= FEWEST_ROUNDS:
        return ""
    return f"a run is short: {verdict_reason.explain_few_rounds(round_count) or 'both arms answered in no round of it'}"


def _decide_row(
    row: _RowEstimate, adjusted_p: float | None, floor: float | None, block_reason: str, margin: float
) -> ComparisonRow:
    decision = decide_speed_up(row.estimate, adjusted_p, floor=floor, margin=margin)
    reason = block_reason or row.draft.why
    if not reason and row.estimate is None:
        reason = "too few prompts for an interval"
    elif not reason and floor is None:
        reason = "no noise floor in one run or both: measure both with --control-rounds"
    reason = reason or _explain_other_length(row, decision, margin)
    return msgspec.structs.replace(
        row.draft,
        adjusted_p=adjusted_p,
        noise_floor=floor,
        verdict="no evidence" if reason else decision.word,
        why=reason or _GROUNDS[decision.ground].format(percent=100 * margin, floor=floor),
    )


_GROUNDS = {
    "margin": "the whole interval lies inside the margin of {percent:g} %",
    "chance": "chance explains it, with every row taken into account",
    "floor": "inside the noise floors of both runs together, {floor:.3f}",
    "difference": "beyond chance and beyond both noise floors",
}
"""Why a row has its word, by what decided it."""


def _explain_other_length(row: _RowEstimate, decision: SpeedUpDecision, margin: float) -> str:
    """Return why equal or shorter times are not those of the same work; empty where answers are long enough."""
    is_same = decision.word == "same"
    if row.length_ratio is None or row.estimate is None or not (is_same or row.estimate.log > 0):
        return ""
    length = compare_lengths(row.length_ratio, margin)
    if length == "alike" or (length == "longer" and not is_same):
        return ""
    baseline_text = "beside its baseline's, " if row.draft.kind == "gain" else ""
    length_text = f"{format_number(row.length_ratio.value)} times as long ({format_interval(row.length_ratio)})"
    return (
        f"{baseline_text}the later answers are {length_text}, so their times are not those of the same work: see TPOT"
    )


def _compare_outputs(table: RequestTable, common: CommonParts) -> Iterator[OutputAgreement]:
    """Yield how many first answers are the same text in both runs."""
    for arm in common.arms:
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
            row
            for row in estimates
            if (row.draft.kind, row.draft.arm, row.draft.metric) == ("figure", arm, DECIDING_METRIC) and row.estimate
        ]
        if e2e_rows and all(row.length_ratio is None for row in e2e_rows):
            yield f"tokens of {arm} were not counted in both runs: whether its answers are of one length is not known"
    if before.run.created_utc > after.run.created_utc:
        yield "the first run is the later one: figures read from it to the earlier one"
