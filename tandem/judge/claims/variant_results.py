"""What a claim is answered from: one variant of one run, with everything that was found of it.

Invariant: a class that has too few prompts for an interval over prompts is judged over its rounds, and what is said of
it says so: it holds of those prompts alone, as the post's two do. Nothing is called inside the noise floor, nor what
chance explains with every cell of the report taken into account. A cell of too few rounds for a verdict has no interval
here, whatever its prompts give.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from tandem.bench.manifest import ManifestArm
from tandem.bench.quantiles import Values
from tandem.bench.request_table import RequestTable
from tandem.bench.schedule import FEWEST_ROUNDS, LoadLevel
from tandem.bench.summary import ALL_CLASSES
from tandem.judge import failure_bias
from tandem.judge.claims.register import PostSetup
from tandem.judge.decision import adjust_single_p, decide_speed_up
from tandem.judge.interval import FEWEST_PROMPTS, FEWEST_STARTS, LogRatioEstimate, convert_log_ratio, estimate_log_ratio
from tandem.judge.output_validity import explain_invalidity
from tandem.judge.pairs import CellPairs, RequestPairing
from tandem.judge.schema import CellVerdict, CellWord, ClassAcceptance, OutputEquality, RatioEstimate
from tandem.judge.text_format import (
    format_interval,
    format_load,
    format_metric,
    format_number,
    format_times,
    metric_unit,
)

_MAX_TEXTS = 4  # cells that are spelt out in an answer


@dataclass(frozen=True, kw_only=True)
class MetricFinding:
    """What one metric shows in one class at one load.

    Args:
        class_, load, metric: of which cell.
        word: what may be said.
        speed_up: with its interval; None where there is none.
        baseline_value, variant_value: in the metric's unit.
        unit_count: prompts, or rounds, that the interval is over.
        unit_text: `prompts`; of rounds, how many prompts they were of.
        noise_floor: how far the baseline is from itself there, as a ratio above 1; None without a control.
    """

    class_: str
    load: LoadLevel
    metric: str
    word: CellWord
    speed_up: RatioEstimate | None
    baseline_value: float | None
    variant_value: float | None
    unit_count: int
    unit_text: str = "prompts"
    noise_floor: float | None = None

    def __str__(self) -> str:
        """Say it with its figures."""
        name, unit = format_metric(self.metric), metric_unit(self.metric)
        text = f"{self.class_} at {format_load(self.load)}: {name} {format_number(self.baseline_value)} to "
        text += f"{format_number(self.variant_value)}{'' if unit == name else f' {unit}'}"
        if self.speed_up:
            text += f", {format_times(self.speed_up.value)}"
            text += f" ({format_interval(self.speed_up)})" if self.speed_up.low is not None else ""
        text += f", {self.word}"
        if self.unit_text == "prompts":
            return text
        text += f" over {self.unit_count} round{'' if self.unit_count == 1 else 's'} of {self.unit_text}"
        return f"{text}, without a noise floor" if self.noise_floor is None and self.word != "no evidence" else text


class RoundSpeedUps(NamedTuple):
    """The log speed-up of each round of one cell, in the order of time, and their mean; None of too few rounds."""

    logs: Values
    estimate: LogRatioEstimate | None


@dataclass(frozen=True, kw_only=True)
class VariantResults:
    """One variant before the register.

    Args:
        pairing: the run, without the rounds that a control marked.
        variant: its arm.
        cells: its cells.
        equality: of its output; None where it was not judged.
        acceptance: of every arm.
        margin: within which a speed-up is the same.
        set_up: what the post measured.
        test_count: how many cells of the report, of all variants, are judged, over prompts or over rounds.
    """

    pairing: RequestPairing
    variant: str
    cells: tuple[CellVerdict, ...]
    equality: OutputEquality | None
    acceptance: tuple[ClassAcceptance, ...]
    margin: float
    set_up: PostSetup
    test_count: int = 1

    @property
    def table(self) -> RequestTable:
        """The run."""
        return self.pairing.table

    @property
    def manifest_arm(self) -> ManifestArm | None:
        """What the manifest says of the variant."""
        return find_manifest_arm(self.table, self.variant)

    def arm_names(self) -> tuple[str, str]:
        """Return the baseline and the variant."""
        return self.table.baseline, self.variant

    def find_acceptance(self, arm: str) -> ClassAcceptance | None:
        """Return the acceptance of an arm over all classes."""
        return next((row for row in self.acceptance if row.arm == arm and row.class_ == ALL_CLASSES), None)

    def select_loads(self) -> tuple[LoadLevel, ...]:
        """Return the loads that answer: the post's where the run has it, else all."""
        post_loads = tuple(load for load in self.table.loads if load.concurrency == self.set_up.concurrency)
        return post_loads or self.table.loads

    def find_metric(self, metric: str, classes: Sequence[str] = ()) -> list[MetricFinding]:
        """Return what a metric shows in some classes; in all of the run where none is named.

        A class of few prompts is judged over its rounds where it is named: then the claim is about these very prompts.
        """
        loads = self.select_loads()
        return [
            self._summarize_cell(cell, use_rounds=bool(classes))
            for cell in self.cells
            if cell.metric == metric and cell.load in loads and (not classes or cell.class_ in classes)
        ]

    def _summarize_cell(self, cell: CellVerdict, *, use_rounds: bool) -> MetricFinding:
        finding = MetricFinding(
            class_=cell.class_,
            load=cell.load,
            metric=cell.metric,
            word=cell.verdict,
            speed_up=cell.speed_up,
            baseline_value=cell.baseline,
            variant_value=cell.measured,
            unit_count=cell.prompts,
            noise_floor=cell.noise_floor,
        )
        if cell.rounds < FEWEST_ROUNDS:
            ratio = RatioEstimate(value=cell.speed_up.value) if cell.speed_up else None
            return replace(finding, word="no evidence", speed_up=ratio)
        if not use_rounds or cell.prompts >= FEWEST_PROMPTS or not cell.prompts:
            return finding
        logs, estimate = self.compare_rounds(self.variant, cell)
        noise_floor = self._find_noise_floor(cell)
        # Bonferroni: Holm's correction would need the p-value over rounds of every other cell of the report
        adjusted_p = adjust_single_p(estimate.p, self.test_count) if estimate else None
        return replace(
            finding,
            word=decide_speed_up(estimate, adjusted_p, floor=noise_floor, margin=self.margin).word,
            speed_up=estimate.convert() if estimate else cell.speed_up,
            unit_count=len(logs),
            unit_text=f"{cell.prompts} prompt{'s' if cell.prompts > 1 else ''}",
            noise_floor=noise_floor,
        )

    def count_rounds(self, metrics: Sequence[str], classes: Sequence[str] = ()) -> int:
        """Return the most rounds of a cell of some metrics in some classes, of all where none is named; 0 of none."""
        loads = self.select_loads()
        return max(
            (
                cell.rounds
                for cell in self.cells
                if cell.metric in metrics and cell.load in loads and (not classes or cell.class_ in classes)
            ),
            default=0,
        )

    def compare_rounds(self, arm: str, cell: CellVerdict | MetricFinding) -> RoundSpeedUps:
        """Return the speed-up of an arm against the baseline round by round."""
        pairs = self._pair_cell(arm, cell)
        is_finite = np.isfinite(pairs.by_round)
        sums, counts = np.where(is_finite, pairs.by_round, 0.0).sum(axis=0), is_finite.sum(axis=0)
        logs: Values = sums[counts > 0] / counts[counts > 0]
        return RoundSpeedUps(logs, estimate_log_ratio(logs) if len(logs) >= FEWEST_STARTS else None)

    def _find_noise_floor(self, cell: CellVerdict) -> float | None:
        """Return the floor of a cell that is judged over rounds, which is found over rounds too."""
        if cell.noise_floor is not None or self.table.control is None:
            return cell.noise_floor
        estimate = self.compare_rounds(self.table.control, cell).estimate
        return convert_log_ratio(max(-estimate.low, estimate.high)) if estimate else None

    def _pair_cell(self, arm: str, cell: CellVerdict | MetricFinding) -> CellPairs:
        table = self.table
        return self.pairing.pairs(
            baseline=table.baseline, variant=arm, class_=table.classes.index(cell.class_),
            load=table.loads.index(cell.load), metric=cell.metric,
        )  # fmt: skip

    def explain_difference(self, *, allow_tuning: bool = False) -> str:
        """Say in what the run is not the post's set-up; empty where it is, as far as the manifest knows.

        Args:
            allow_tuning: draft and window may be others: a claim about tuning compares them.
        """
        arms = [find_manifest_arm(self.table, name) for name in self.arm_names()]
        if arms[0] is None or arms[1] is None:
            return "the manifest does not know both arms"
        return next(list_differences(self.set_up, arms[0], arms[1], allow_tuning=allow_tuning), "")

    @cached_property
    def invalid_reason(self) -> str:
        """Why no figure of these arms is worth anything; empty where their answers are text."""
        return explain_invalidity(self.pairing, *self.arm_names())

    def explain_bias(self) -> str:
        """Say how differently the arms failed; empty where what is compared are no survivors."""
        failures = failure_bias.count_failures(self.pairing, *self.arm_names()).count_all()
        return failures.describe(*self.arm_names()) if failures.is_biased else ""


def list_differences(
    set_up: PostSetup, base: ManifestArm, variant: ManifestArm, *, allow_tuning: bool
) -> Iterator[str]:
    """Yield what of two arms is not the post's, most important first."""
    models = sorted({base.model, variant.model} - {set_up.target})
    if models:
        yield f"the target is {', '.join(models)}, not {set_up.target}"
    runtimes = sorted({arm.runtime or "not known" for arm in (base, variant)} - set(set_up.runtimes))
    if runtimes:
        yield f"the runtime is {', '.join(runtimes)}, so nothing says that this is the post's accelerator"
    if base.speculation is None or base.speculation.method is not None:
        yield f"nothing says that {base.name} decodes without speculation"
    if allow_tuning:
        return
    method = variant.speculation.method if variant.speculation else None
    window = variant.speculation.num_speculative_tokens if variant.speculation else None
    if (method, window) != (set_up.mode, set_up.num_speculative_tokens):
        yield f"the variant's speculation is not {set_up.mode} with {set_up.num_speculative_tokens} tokens"
    if find_draft(variant) != model_slug(set_up.draft):
        yield f"nothing says that the draft is {set_up.draft}"


def find_manifest_arm(table: RequestTable, arm: str) -> ManifestArm | None:
    """Return what the manifest says of an arm."""
    return next((manifest_arm for manifest_arm in table.run.arms if manifest_arm.name == arm), None)


def model_slug(model: str) -> str:
    """Return a model's name as it stands in the readable part of an artifact key."""
    return re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")


def find_draft(arm: ManifestArm | None) -> str | None:
    """Return the draft that an arm's artifact key names; None where it has no key or names none."""
    mode = arm.speculation.method if arm is not None and arm.speculation is not None else None
    match = re.search(rf"-{re.escape(mode)}-(.+)-k\d+-tp", arm.artifact_key or "") if arm is not None and mode else None
    return match[1] if match else None


def join_first(items: Iterable[object]) -> str:
    """Return the first few of many, and how many more there are."""
    texts = [str(item) for item in items]
    remainder = f"; and {len(texts) - _MAX_TEXTS} more" if len(texts) > _MAX_TEXTS else ""
    return "; ".join(texts[:_MAX_TEXTS]) + remainder


def describe_llmperf(results: VariantResults, classes: Sequence[str]) -> str | None:
    """Return the figures of some classes by llmperf's definition beside the true ones; None where nobody has them."""
    texts = []
    for class_, load in product(classes, results.select_loads()):
        figures = [
            f"{name} {format_number(before)} to {format_number(after)} ms"
            for metric, name in (("llmperf_inter_token_latency_ms", "by llmperf's definition"), ("tpot_ms", "TPOT"))
            for before, after in [
                [_compute_median(results, arm, (class_, load), metric) for arm in results.arm_names()]
            ]
            if before is not None and after is not None
        ]
        if figures:
            texts.append(f"{class_} at {format_load(load)}: {', '.join(figures)}")
    return join_first(texts) or None


def _compute_median(results: VariantResults, arm: str, cell: tuple[str, LoadLevel], metric: str) -> float | None:
    table = results.table
    if cell[0] not in table.classes or metric not in table.figures:
        return None
    rows = results.pairing.row_mask() & table.arm_mask(arm) & ~table.failed
    rows &= (table.class_ == table.classes.index(cell[0])) & (table.load == table.loads.index(cell[1]))
    values = table.figures[metric][rows]
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else None
