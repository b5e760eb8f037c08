"""Results of one variant of one run, from which claims are answered.

Invariant: a class with too few prompts for an interval over prompts is judged over its rounds, and
its text says so. The result holds only for those prompts, as the post's two do. No difference is
called inside the noise floor, nor if chance explains it, adjusted for every cell of the report. A
cell of too few rounds for a verdict has no interval here, whatever its prompts give.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from tandem.bench.figures.quantiles import Values
from tandem.bench.figures.request_table import RequestTable
from tandem.bench.figures.summary import ALL_CLASSES
from tandem.bench.plan.schedule import FEWEST_ROUNDS, LoadLevel
from tandem.bench.records.manifest import ManifestArm
from tandem.judge import comparability
from tandem.judge import text_format as fmt
from tandem.judge.claims.register import PostSetup
from tandem.judge.decision import adjust_single_p, decide_speed_up
from tandem.judge.interval import (
    FEWEST_PROMPTS,
    FEWEST_STARTS,
    LogRatioEstimate,
    convert_log_ratio,
    estimate_log_ratio,
)
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import (
    CellVerdict,
    ClassAcceptance,
    OutputEquality,
    RatioEstimate,
    TaskQuality,
)

_MAX_TEXTS = 4  # cells that are spelt out in an answer


def is_over_rounds(cell: CellVerdict) -> bool:
    """Return whether the interval of a cell from `find_metric` is over rounds."""
    return (
        cell.prompts < FEWEST_PROMPTS
        and cell.speed_up is not None
        and cell.speed_up.low is not None
    )


def describe_cell(cell: CellVerdict) -> str:
    """Return a cell in words: class, load, metric, figures and verdict."""
    name = fmt.format_metric(cell.metric)
    unit = fmt.metric_unit(cell.metric)
    text = (
        f"{cell.class_} at {fmt.format_load(cell.load)}: {name}"
        f" {fmt.format_number(cell.baseline)} to "
    )
    text += f"{fmt.format_number(cell.measured)}{'' if unit == name else f' {unit}'}"
    if cell.speed_up:
        text += f", {fmt.format_times(cell.speed_up.value)}"
        text += f" ({fmt.format_interval(cell.speed_up)})" if cell.speed_up.low is not None else ""
    text += f", {cell.verdict}"
    if is_over_rounds(cell):
        text += (
            f" over {fmt.count_things(cell.rounds, 'round')} of"
            f" {fmt.count_things(cell.prompts, 'prompt')}"
        )
        text += ", without a noise floor" if cell.noise_floor is None else ""
    return text


@dataclass(frozen=True, kw_only=True)
class VariantResults:
    """Results of one variant, for the claims of the register.

    Args:
        pairing: the run, without the rounds that a control marked.
        variant: its arm.
        cells: its cells.
        equality: of its output; None where it was not judged.
        quality: of its answers to each task; empty if it was asked none.
        acceptance: of every arm.
        margin: within which a speed-up is the same.
        set_up: what the post measured.
        test_count: how many cells of the report, of all variants, are judged, over prompts or over
            rounds.
    """

    pairing: RequestPairing
    variant: str
    cells: tuple[CellVerdict, ...]
    equality: OutputEquality | None
    acceptance: tuple[ClassAcceptance, ...]
    margin: float
    set_up: PostSetup
    test_count: int = 1
    quality: tuple[TaskQuality, ...] = ()

    @cached_property
    def table(self) -> RequestTable:
        """The run."""
        return self.pairing.table

    @cached_property
    def arms(self) -> tuple[str, str]:
        """The baseline and the variant."""
        return self.table.baseline, self.variant

    @cached_property
    def manifest_arms(self) -> tuple[ManifestArm, ManifestArm]:
        """The manifest's entries of the baseline and the variant."""
        arms = {arm.name: arm for arm in self.table.run.arms}
        return arms[self.table.baseline], arms[self.variant]

    @cached_property
    def invalid_reason(self) -> str:
        """Why the figures of these arms are worth nothing; empty if their answers are text."""
        return comparability.explain_invalidity(self.pairing, *self.arms)

    @cached_property
    def loads(self) -> tuple[LoadLevel, ...]:
        """The loads that answer claims: the post's load if the run has it, else all."""
        post_loads = tuple(
            load for load in self.table.loads if load.concurrency == self.set_up.concurrency
        )
        return post_loads or self.table.loads

    def find_acceptance(self, arm: str) -> ClassAcceptance | None:
        """Return the acceptance of an arm over all classes."""
        return next(
            (row for row in self.acceptance if row.arm == arm and row.class_ == ALL_CLASSES), None
        )

    def select_cells(
        self, metrics: Sequence[str], classes: Sequence[str] = ()
    ) -> list[CellVerdict]:
        """Return the cells of some metrics in some classes; in all classes if none is named."""
        return [
            cell
            for cell in self.cells
            if cell.metric in metrics
            and cell.load in self.loads
            and (not classes or cell.class_ in classes)
        ]

    def find_metric(self, metric: str, classes: Sequence[str] = ()) -> list[CellVerdict]:
        """Return the cells of a metric in some classes; in all classes if none is named.

        A named class of few prompts is judged over its rounds, because the claim is about these
        very prompts.
        """
        cells = self.select_cells([metric], classes)
        for place, cell in enumerate(cells):
            if cell.rounds < FEWEST_ROUNDS:
                ratio = RatioEstimate(value=cell.speed_up.value) if cell.speed_up else None
                cells[place] = replace(cell, verdict="no evidence", speed_up=ratio)
            elif classes and 0 < cell.prompts < FEWEST_PROMPTS:
                cells[place] = self._judge_rounds(cell)
        return cells

    def _judge_rounds(self, cell: CellVerdict) -> CellVerdict:
        """Return a cell as judged over its rounds, with the noise floor over rounds."""
        floor = cell.noise_floor
        control = self.table.control
        if floor is None and control is not None:
            own_estimate = self.compare_rounds(control, cell)[1]
            floor = (
                convert_log_ratio(max(-own_estimate.low, own_estimate.high))
                if own_estimate
                else None
            )
        estimate = self.compare_rounds(self.variant, cell)[1]
        # Bonferroni: Holm's correction would need the p-value over rounds of every other cell of
        # the report
        adjusted_p = adjust_single_p(estimate.p, self.test_count) if estimate else None
        word = decide_speed_up(estimate, adjusted_p, floor=floor, margin=self.margin).word
        speed_up = estimate.convert() if estimate else cell.speed_up
        return replace(cell, verdict=word, speed_up=speed_up, noise_floor=floor)

    def compare_rounds(self, arm: str, cell: CellVerdict) -> tuple[Values, LogRatioEstimate | None]:
        """Return an arm's log speed-up in each round, in time order; None if there are too few."""
        code = self.pairing.cell_code(cell.class_, cell.load)
        pairs = self.pairing.pairs((self.table.baseline, arm), code, cell.metric)
        is_finite = np.isfinite(pairs.by_round)
        sums = np.where(is_finite, pairs.by_round, 0.0).sum(axis=0)
        counts = is_finite.sum(axis=0)
        logs: Values = sums[counts > 0] / counts[counts > 0]
        return logs, estimate_log_ratio(logs) if len(logs) >= FEWEST_STARTS else None

    def explain_bias(self) -> str:
        """Say how differently the arms failed; empty unless only survivors are compared."""
        failures = comparability.count_failures(self.pairing, *self.arms).count()
        return failures.describe(*self.arms) if failures.is_biased else ""


def list_differences(set_up: PostSetup, base: ManifestArm, variant: ManifestArm) -> Iterator[str]:
    """Yield the differences of two arms from the post's set-up, most important first."""
    models = sorted({base.model, variant.model} - {set_up.target})
    if models:
        yield f"the target is {', '.join(models)}, not {set_up.target}"
    runtimes = sorted(
        {arm.runtime or "not known" for arm in (base, variant)} - set(set_up.runtimes)
    )
    if runtimes:
        yield (
            f"the runtime is {', '.join(runtimes)},"
            " so nothing says that this is the post's accelerator"
        )
    if base.speculation is None or base.speculation.method is not None:
        yield f"nothing says that {base.name} decodes without speculation"
    tuning = variant.speculation and (
        variant.speculation.method,
        variant.speculation.num_speculative_tokens,
    )
    if tuning != (set_up.mode, set_up.num_speculative_tokens):
        yield (
            f"the variant's speculation is not {set_up.mode} with {set_up.num_speculative_tokens}"
            " tokens"
        )
    if find_draft(variant) != model_slug(set_up.draft):
        yield f"nothing says that the draft is {set_up.draft}"


def model_slug(model: str) -> str:
    """Return a model's name as it stands in the readable part of an artifact key."""
    return re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")


def find_draft(arm: ManifestArm) -> str | None:
    """Return the draft that an arm's artifact key names; None where it has no key or names none."""
    mode = arm.speculation.method if arm.speculation is not None else None
    match = re.search(rf"-{re.escape(mode)}-(.+)-k\d+-tp", arm.artifact_key or "") if mode else None
    return match[1] if match else None


def join_first(texts: Sequence[str]) -> str:
    """Return the first few of many, and how many more there are."""
    remainder = f"; and {len(texts) - _MAX_TEXTS} more" if len(texts) > _MAX_TEXTS else ""
    return "; ".join(texts[:_MAX_TEXTS]) + remainder
