"""Two runs beside each other: before and after an upgrade, or on two days.

Invariant: prompts are paired by the content of their suite and their id, and only arms, classes and loads of both runs
are compared. Between two runs the day and the machine differ as well as what was changed, so nothing is called unless
both runs measured how far a server is from itself, and nothing inside both floors together. What a variant gains over
its baseline is compared too: there each run is its own control, and what touched both arms alike is out of it. No arm
wins by what it left out: failures and refused answers that the other side has not bar a row, and a shorter time of
shorter answers is not called faster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from tandem.bench.columns import BoolArray
from tandem.bench.manifest import run_id
from tandem.bench.quantiles import Values
from tandem.bench.request_table import NO_DIGEST, UNKNOWN, RequestTable, read_request_table
from tandem.bench.schedule import FEWEST_ROUNDS, LoadLevel
from tandem.judge import verdict_reason
from tandem.judge.comparability import BROKEN_CONTENT, CellFailures, count_failures
from tandem.judge.compare.differences import CommonParts, find_common_parts, find_differences, list_similarities
from tandem.judge.compare.schema import ComparisonRow, OutputAgreement, RunComparison, RunSummary
from tandem.judge.controls import check_controls
from tandem.judge.decision import adjust_p_values, compare_lengths, decide_speed_up
from tandem.judge.interval import LogRatioEstimate, convert_log_ratio, estimate_log_ratio
from tandem.judge.pairs import DECIDING_METRIC, JUDGED_METRICS, LENGTH_METRIC, RequestPairing
from tandem.judge.schema import CellWord, RatioEstimate, RunControls, ShareEstimate
from tandem.judge.text_format import format_interval, format_number

CONFOUNDING_NOTE = (
    "Between two runs the day, the machine and the start of each server differ as well as what was changed: an arm's "
    "own figures cannot tell these apart. The rows of gains can: there each run is its own control."
)
_BEFORE, _AFTER = "before ", "after "
_COPY_COLUMNS = ("failed", "tokens", "output", "ids", "start_s", "end_s", "start", "placement", "repeat", "slot")
_SOUND, _REFUSAL = 0, 1  # codes of contents in a merged run
_GROUNDS = {
    "margin": "the whole interval lies inside the margin of {percent:g} %",
    "chance": "chance explains it, with every row taken into account",
    "floor": "inside the noise floors of both runs together, {floor:.3f}",
    "difference": "beyond chance and beyond both noise floors",
}
"""Why a row has its word, by what decided it."""

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
    tables, common = (before, after), find_common_parts(before, after)
    controls = [check_controls(table) for table in tables]
    suites: list[Collection[str]] = [common.suites.values(), common.suites.keys()]
    masks = [
        _mask_rows(table, common.arms, names, checks)
        for table, names, checks in zip(tables, suites, controls, strict=True)
    ]
    merged_run = _merge_runs(tables, masks, common)
    rounds = [_list_rounds(table, mask) for table, mask in zip(tables, masks, strict=True)]
    floors = [
        {(floor.class_, floor.load, floor.metric): max(floor.ratio, 1.0) for floor in controls_of_run.floors}
        for controls_of_run in controls
    ]
    differences = find_differences(before.run, after.run, common)
    settings = ", ".join(difference.what for difference in differences if difference.blocks)
    void_reasons = [reason for controls_of_run in controls for reason in controls_of_run.void]
    block_reason = f"the runs were asked differently ({settings})" if settings else ""
    if void_reasons:
        block_reason = f"a run is void: {void_reasons[0]}"
    is_greedy = not before.run.temperature and not after.run.temperature
    arms: list[tuple[_RowKind, str]] = [("figure", arm) for arm in common.arms]
    if before.baseline == after.baseline:
        arms += [("gain", arm) for arm in common.arms if arm != before.baseline]
    estimates = list(_estimate_rows(RequestPairing(merged_run), arms, before.baseline))
    p_values = iter(adjust_p_values(np.array([entry.estimate.p for entry in estimates if entry.estimate])).tolist())
    rows = []
    for entry in estimates:
        place = (entry.draft.class_, entry.draft.load, entry.draft.metric)
        row = msgspec.structs.replace(
            entry.draft,
            adjusted_p=next(p_values) if entry.estimate else None,
            noise_floor=floors[0][place] * floors[1][place] if place in floors[0].keys() & floors[1].keys() else None,
        )
        bar_reason = block_reason or _explain_few_rounds(row, before.baseline, rounds) or row.why
        word, reason = _decide_row(entry._replace(draft=row), bar_reason, margin)
        rows.append(msgspec.structs.replace(row, verdict=word, why=reason))
    return RunComparison(
        before=_summarize_run(before, controls[0], common),
        after=_summarize_run(after, controls[1], common),
        differences=differences,
        alike=list_similarities(before.run, after.run, common),
        rows=tuple(rows),
        outputs=tuple(_compare_outputs(merged_run, common)) if is_greedy else (),
        margin=margin,
        notes=tuple(_list_notes(tables, common, controls, estimates)),
    )


def _mask_rows(table: RequestTable, arms: Sequence[str], suites: Collection[str], controls: RunControls) -> BoolArray:
    """Return which requests are compared: none of other suites, of arms of one run alone, and of marked rounds."""
    arm_codes = [code for code, name in enumerate(table.arms) if name in arms]
    prompts = [code for code, prompt in enumerate(table.prompts) if prompt.suite in suites]
    is_marked = np.isin(table.round, controls.marked_rounds)
    mask: BoolArray = ~is_marked & np.isin(table.arm, arm_codes) & np.isin(table.prompt, prompts)
    return mask


def _merge_runs(tables: Sequence[RequestTable], masks: Sequence[BoolArray], common: CommonParts) -> RequestTable:
    """Return one run that has each arm twice; its rounds are one, since no round of one run belongs to one of another.

    Suites have the earlier run's names.
    """

    def join_columns(columns: Sequence[Any]) -> Any:
        return np.concatenate([column[mask] for column, mask in zip(columns, masks, strict=True)])

    def join_codes(names: Sequence[Sequence[Any]], column: str) -> tuple[tuple[Any, ...], Any]:
        """Return names that serve both runs, and the codes of the rows that are kept."""
        codes = {name: code for code, name in enumerate(dict.fromkeys(chain.from_iterable(names)))}
        code_columns = [
            np.array([codes[name] for name in part_names], np.intp)[getattr(table, column)]
            for part_names, table in zip(names, tables, strict=True)
        ]
        return tuple(codes), join_columns(code_columns)

    arm_names = [[prefix + name for name in run.arms] for prefix, run in zip((_BEFORE, _AFTER), tables, strict=True)]
    later_prompts = [
        prompt._replace(suite=common.suites.get(prompt.suite, prompt.suite)) for prompt in tables[1].prompts
    ]
    arms, arm = join_codes(arm_names, "arm")
    prompts, prompt = join_codes([tables[0].prompts, later_prompts], "prompt")
    classes, class_ = join_codes([table.classes for table in tables], "class_")
    loads, load = join_codes([table.loads for table in tables], "load")
    zeros = np.zeros(len(arm), np.intp)
    figures = {
        metric: join_columns([table.figures.get(metric, np.full(len(table), np.nan)) for table in tables])
        for metric in (*JUDGED_METRICS, LENGTH_METRIC)
    }
    columns = {name: join_columns([getattr(table, name) for table in tables]) for name in _COPY_COLUMNS}
    columns |= {"arm": arm, "prompt": prompt, "class_": class_, "load": load, "round": zeros, "error": zeros}
    refusals = [[code for code, word in enumerate(table.contents) if word in BROKEN_CONTENT] for table in tables]
    contents = [
        np.where(table.content == UNKNOWN, UNKNOWN, np.where(np.isin(table.content, codes), _REFUSAL, _SOUND))
        for table, codes in zip(tables, refusals, strict=True)
    ]
    columns |= {"content": join_columns(contents)}
    columns |= {"hit_token_limit": zeros.astype(bool), "line_offsets": zeros}
    names: dict[str, Any] = {"arms": arms, "prompts": prompts, "classes": classes, "loads": loads}
    return replace(tables[0], contents=("sound", "refused"), figures=figures, torn_lines=(), **names, **columns)


class _RowEstimate(NamedTuple):
    """A row before it is held against the others.

    `draft` is the row as far as it is known; its `why` says why only survivors could be compared, or is empty.
    `length_ratio` is that of the later answers as a ratio of the earlier ones, where the metric grows with it and
    servers counted tokens.
    """

    draft: ComparisonRow
    estimate: LogRatioEstimate | None
    length_ratio: RatioEstimate | None


def _estimate_rows(
    pairing: RequestPairing, arms: Sequence[tuple[_RowKind, str]], baseline: str
) -> Iterator[_RowEstimate]:
    """Yield each arm's own figures, or what it gains over its baseline, later against earlier."""
    table = pairing.table
    cells = sorted(set(zip(table.class_.tolist(), table.load.tolist(), strict=True)), key=lambda cell: cell[::-1])
    for kind, arm in arms:
        own_arms, baseline_arms = (_BEFORE + arm, _AFTER + arm), (_BEFORE + baseline, _AFTER + baseline)
        pairs = [own_arms] if kind == "figure" else list(zip(baseline_arms, own_arms, strict=True))
        losses = [_ArmLosses.from_arms(pairing, *pair) for pair in pairs]
        if kind == "gain":
            losses += [_ArmLosses.from_arms(pairing, *pair) for pair in (baseline_arms, own_arms)]
        for cell in cells:
            reason = next(filter(None, (entry.explain_loss(*cell, kind) for entry in losses)), "")
            length_estimate = estimate_log_ratio(-_pair_figures(pairing, pairs, cell, LENGTH_METRIC)[0])
            length_ratio = length_estimate.convert() if length_estimate else None
            for metric in JUDGED_METRICS:
                logs, before, after = _pair_figures(pairing, pairs, cell, metric)
                if not len(logs):
                    continue
                estimate = estimate_log_ratio(logs)
                draft = ComparisonRow(
                    kind=kind,
                    arm=arm,
                    class_=table.classes[cell[0]],
                    load=table.loads[cell[1]],
                    metric=metric,
                    prompts=len(logs),
                    before=float(np.median(before)) if kind == "figure" else _average_ratio(before),
                    after=float(np.median(after)) if kind == "figure" else _average_ratio(after),
                    speed_up=estimate.convert() if estimate else RatioEstimate(value=_average_ratio(logs)),
                    p=estimate.p if estimate else None,
                    verdict="no evidence",
                    why=reason,
                )
                yield _RowEstimate(draft, estimate, length_ratio if metric == DECIDING_METRIC else None)


def _pair_figures(
    pairing: RequestPairing, arms: Sequence[tuple[str, str]], cell: tuple[int, int], metric: str
) -> tuple[Values, Values, Values]:
    """Return the later run's log speed-ups over the earlier, one a prompt, and what they are of in both runs.

    Of one pair of arms that is each run's figure; of a pair in each run their gain, by prompts that all four answered.
    """
    earlier, *laters = (
        pairing.pairs(baseline=first, variant=second, class_=cell[0], load=cell[1], metric=metric)
        for first, second in arms
    )
    if not laters:
        return earlier.logs, earlier.baseline_medians, earlier.variant_medians
    _, first, second = np.intersect1d(earlier.prompts, laters[0].prompts, return_indices=True)
    gains = earlier.logs[first], laters[0].logs[second]
    return gains[1] - gains[0], *gains


def _average_ratio(logs: Values) -> float:
    return convert_log_ratio(float(np.mean(logs)))


class _ArmLosses(NamedTuple):
    """What two arms of a merged run lost, by cell: requests that failed, and answers that the content check refused."""

    arms: tuple[str, str]
    load_count: int
    failures: CellFailures
    refusals: CellFailures

    @classmethod
    def from_arms(cls, pairing: RequestPairing, first: str, second: str) -> _ArmLosses:
        """Count what two arms lost."""
        table, cells = pairing.table, pairing.cell_codes()
        answer_mask = ~table.failed & (table.content != UNKNOWN)
        counts = [
            np.column_stack(
                [
                    np.bincount(cells[mask & table.arm_mask(arm)], minlength=pairing.cell_count)
                    for arm in (first, second)
                ]
            )
            for mask in (answer_mask, answer_mask & (table.content == _REFUSAL))
        ]
        failures = count_failures(pairing, first, second)
        return cls((first, second), len(table.loads), failures, CellFailures(counts[0], counts[1]))

    def explain_loss(self, class_: int, load: int, kind: _RowKind) -> str:
        """Return why a cell compares survivors; empty where it does not."""
        names = []
        for arm_name in self.arms:
            run_name = "the earlier run" if arm_name.startswith(_BEFORE) else "the later run"
            arm = arm_name.removeprefix(_BEFORE if arm_name.startswith(_BEFORE) else _AFTER)
            names.append(run_name if kind == "figure" else f"{arm} in {run_name}")
        cell = class_ * self.load_count + load
        failures, refusals = self.failures.count(cell), self.refusals.count(cell)
        if failures.is_biased:
            return f"{failures.describe(*names)}, so only survivors could be compared"
        if refusals.is_biased:
            return (
                f"the content check refused {refusals.variant_failures} of {refusals.variant_requests} answers of "
                f"{names[1]}, {refusals.baseline_failures} of {refusals.baseline_requests} of {names[0]}: "
                "broken answers are not compared"
            )
        return ""


def _list_rounds(table: RequestTable, mask: BoolArray) -> _RoundsByCell:
    """Return the rounds in which each arm answered in a class at a load, control rounds left out."""
    mask = mask & ~table.failed & ~table.control_round_mask()
    columns = [column[mask] for column in (table.arm, table.class_, table.load, table.round)]
    rounds: _RoundsByCell = {}
    for arm, class_, load, round_ in np.unique(np.column_stack(columns), axis=0).tolist():
        rounds.setdefault((table.arms[arm], table.classes[class_], table.loads[load]), set()).add(round_)
    return rounds


def _explain_few_rounds(row: ComparisonRow, baseline: str, rounds: Sequence[_RoundsByCell]) -> str:
    """Say why a row has too few rounds, in the run that has fewer; empty where they are enough."""
    arms = (row.arm,) if row.kind == "figure" else (baseline, row.arm)
    count = min(
        len(set.intersection(*(run_rounds.get((arm, row.class_, row.load), set()) for arm in arms)))
        for run_rounds in rounds
    )
    if count >= FEWEST_ROUNDS:
        return ""
    return f"a run is short: {verdict_reason.explain_few_rounds(count) or 'both arms answered in no round of it'}"


def _decide_row(entry: _RowEstimate, bar_reason: str, margin: float) -> tuple[CellWord, str]:
    """Return the word of a row, and why; `bar_reason` is why nothing may be said of it, or empty."""
    row = entry.draft
    decision = decide_speed_up(entry.estimate, row.adjusted_p, floor=row.noise_floor, margin=margin)
    if not bar_reason and entry.estimate is None:
        bar_reason = "too few prompts for an interval"
    elif not bar_reason and row.noise_floor is None:
        bar_reason = "no noise floor in one run or both: measure both with --control-rounds"
    reason = bar_reason or _explain_other_length(entry, decision.word, margin)
    if reason:
        return "no evidence", reason
    return decision.word, _GROUNDS[decision.ground].format(percent=100 * margin, floor=row.noise_floor)


def _explain_other_length(entry: _RowEstimate, word: CellWord, margin: float) -> str:
    """Return why equal or shorter times are not those of the same work; empty where answers are long enough."""
    ratio, is_same = entry.length_ratio, word == "same"
    if ratio is None or entry.estimate is None or not (is_same or entry.estimate.log > 0):
        return ""
    length = compare_lengths(ratio, margin)
    if length == "alike" or (length == "longer" and not is_same):
        return ""
    scope = "beside its baseline's, " if entry.draft.kind == "gain" else ""
    times = f"{format_number(ratio.value)} times as long ({format_interval(ratio)})"
    return f"{scope}the later answers are {times}, so their times are not those of the same work: see TPOT"


def _compare_outputs(merged_run: RequestTable, common: CommonParts) -> Iterator[OutputAgreement]:
    """Yield how many first answers are the same text in both runs."""
    for arm in common.arms:
        digests: list[dict[tuple[int, int], int]] = []
        for arm_name in (_BEFORE + arm, _AFTER + arm):
            has_text = merged_run.arm_mask(arm_name) & ~merged_run.failed & (merged_run.output != NO_DIGEST)
            rows = np.flatnonzero(has_text)[::-1]  # of several answers the first stays
            keys = zip(merged_run.prompt[rows].tolist(), merged_run.load[rows].tolist(), strict=True)
            digests.append(dict(zip(keys, merged_run.output[rows].tolist(), strict=True)))
        keys_of_both = digests[0].keys() & digests[1].keys()
        if keys_of_both:
            same_count = sum(digests[0][key] == digests[1][key] for key in keys_of_both)
            yield OutputAgreement(arm=arm, identical=ShareEstimate(n=same_count, of=len(keys_of_both)))


def _summarize_run(table: RequestTable, controls: RunControls, common: CommonParts) -> RunSummary:
    rows = np.isin(table.arm, [code for code, name in enumerate(table.arms) if name in common.arms])
    return RunSummary(
        run=run_id(table.run),
        folder=table.folder.resolve().name,
        created_utc=table.run.created_utc,
        requests=int(rows.sum()),
        failed=int((rows & table.failed).sum()),
        floors=bool(controls.floors),
        simulated=table.run.simulated,
        void=controls.void,
    )


def _list_notes(
    tables: Sequence[RequestTable],
    common: CommonParts,
    controls: Sequence[RunControls],
    estimates: Sequence[_RowEstimate],
) -> Iterator[str]:
    yield CONFOUNDING_NOTE
    yield from common.omissions
    before, after = tables
    for table, controls_of_run in zip(tables, controls, strict=True):
        name, marked_count = table.folder.resolve().name, len(controls_of_run.marked)
        if not controls_of_run.floors:
            yield f"{name} has no noise floor, so nothing is called: --control-rounds measures one"
        if marked_count:
            yield f"{name}: {marked_count} rounds are left out, because the client was the bottleneck"
        yield from map(str, table.torn_lines)
    if before.baseline != after.baseline:
        yield f"the baselines are {before.baseline} and {after.baseline}, so gains are not compared"
    if not estimates:
        yield "no prompt was answered in both runs at the same load"
    for arm in common.arms:
        key = ("figure", arm, DECIDING_METRIC)
        rows = [row for row in estimates if row.estimate and (row.draft.kind, row.draft.arm, row.draft.metric) == key]
        if rows and all(row.length_ratio is None for row in rows):
            yield f"tokens of {arm} were not counted in both runs: whether its answers are of one length is not known"
    if before.run.created_utc > after.run.created_utc:
        yield "the first run is the later one: figures read from it to the earlier one"
