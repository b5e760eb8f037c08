"""Results of one variant of one run, from which claims are answered.

Invariant: a class with too few prompts for an interval over prompts is judged over its rounds, and
its text says so. The result holds only for those prompts, as the post's two do. No difference is
called inside the noise floor, nor if chance explains it, adjusted for every cell of the report. A
cell of too few rounds for a verdict has no interval here, whatever its prompts give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from tandem.bench.figures.quantiles import Values
from tandem.bench.figures.request_table import RequestTable
from tandem.bench.figures.summary import ALL_CLASSES
from tandem.bench.plan.schedule import FEWEST_ROUNDS, LoadLevel
from tandem.judge import text_format as fmt
from tandem.judge.decision import adjust_single_p, decide_speed_up
from tandem.judge.interval import (
    FEWEST_STARTS,
    LogRatioEstimate,
    convert_log_ratio,
    estimate_log_ratio,
)
from tandem.judge.pairs import RequestPairing
from tandem.judge.quantile_curve import FEWEST_PROMPTS
from tandem.judge.schema import CellVerdict, ClassAcceptance, OutputEquality, RatioEstimate, Verdict
from tandem.post.register import PostSetup, read_register


@dataclass(frozen=True, kw_only=True)
class VariantResults:
    """Results of one variant.

    Args:
        pairing: the rounds of the run that count.
        verdict: on the run.
        variant: its arm.
        drafts: the draft of each variant that has one.
    """

    pairing: RequestPairing
    verdict: Verdict
    variant: str
    drafts: Mapping[str, str]

    @property
    def table(self) -> RequestTable:
        """The run."""
        return self.pairing.table

    @property
    def arms(self) -> tuple[str, str]:
        """The baseline and the variant."""
        return self.table.baseline, self.variant

    @property
    def set_up(self) -> PostSetup:
        """What the post measured."""
        return read_register().set_up

    @property
    def equality(self) -> OutputEquality | None:
        """The comparison of the outputs; None where they were not compared."""
        for entry in self.verdict.equality:
            if entry.variant == self.variant:
                return entry
        return None

    @cached_property
    def loads(self) -> tuple[LoadLevel, ...]:
        """The loads that answer claims: the post's load if the run has it, else all."""
        post_loads = tuple(
            load for load in self.table.loads if load.concurrency == self.set_up.concurrency
        )
        return post_loads or self.table.loads

    @cached_property
    def test_count(self) -> int:
        """How many cells of the report are judged, over prompts or over rounds."""
        return max(sum(cell.prompts > 0 for cell in self.verdict.cells), 1)

    def find_acceptance(self, arm: str) -> ClassAcceptance | None:
        """Return the acceptance of an arm over all classes."""
        rows = self.verdict.acceptance
        for row in rows:
            if row.arm == arm and row.class_ == ALL_CLASSES:
                return row
        return None

    def select_cells(
        self, metrics: Sequence[str], classes: Sequence[str] = ()
    ) -> list[CellVerdict]:
        """Return the cells of some metrics in some classes; in all classes if none is named.

        A named class of few prompts is judged over its rounds, because the claim is about these
        very prompts.
        """
        cells = []
        for cell in self.verdict.cells:
            if cell.variant != self.variant or cell.load not in self.loads:
                continue
            if cell.metric in metrics and (not classes or cell.class_ in classes):
                cells.append(self._restrict_cell(cell, is_named=bool(classes)))
        return cells

    def _restrict_cell(self, cell: CellVerdict, *, is_named: bool) -> CellVerdict:
        if cell.rounds < FEWEST_ROUNDS:
            ratio = RatioEstimate(value=cell.speed_up.value) if cell.speed_up else None
            return replace(cell, verdict="no evidence", speed_up=ratio)
        if is_named and 0 < cell.prompts < FEWEST_PROMPTS:
            return self._judge_rounds(cell)
        return cell

    def _judge_rounds(self, cell: CellVerdict) -> CellVerdict:
        """Return a cell as judged over its rounds, with the noise floor over rounds."""
        floor = cell.noise_floor
        if floor is None and self.table.control is not None:
            own_estimate = self._estimate_rounds(self.table.control, cell)
            if own_estimate:
                floor = convert_log_ratio(max(-own_estimate.low, own_estimate.high))

        estimate = self._estimate_rounds(self.variant, cell)
        # Bonferroni: Holm's correction would need the p-value over rounds of every other cell of
        # the report
        adjusted_p = adjust_single_p(estimate.p, self.test_count) if estimate else None
        margin = self.verdict.margin
        word = decide_speed_up(estimate, adjusted_p, floor=floor, margin=margin).word
        speed_up = estimate.convert() if estimate else cell.speed_up
        return replace(cell, verdict=word, speed_up=speed_up, noise_floor=floor)

    def _estimate_rounds(self, arm: str, cell: CellVerdict) -> LogRatioEstimate | None:
        """Return an arm's speed-up over rounds; None if there are too few."""
        logs = self.compare_rounds(arm, cell)
        if len(logs) >= FEWEST_STARTS:
            return estimate_log_ratio(logs)
        return None

    def compare_rounds(self, arm: str, cell: CellVerdict) -> Values:
        """Return an arm's log speed-up in each round, in time order."""
        code = self.pairing.cell_code(cell.class_, cell.load)
        pairs = self.pairing.pairs((self.table.baseline, arm), code, cell.metric)
        is_finite = np.isfinite(pairs.by_round)
        sums = np.where(is_finite, pairs.by_round, 0.0).sum(axis=0)
        counts = is_finite.sum(axis=0)
        logs: Values = sums[counts > 0] / counts[counts > 0]
        return logs


def is_over_rounds(cell: CellVerdict) -> bool:
    """Return whether the interval of a selected cell is over rounds."""
    has_interval = cell.speed_up is not None and cell.speed_up.low is not None
    return has_interval and cell.prompts < FEWEST_PROMPTS


def describe_cell(cell: CellVerdict) -> str:
    """Return a cell in words: class, load, metric, figures and verdict."""
    before = fmt.format_number(cell.baseline)
    after = fmt.format_number(cell.measured)
    unit = fmt.metric_unit(cell.metric)
    name = fmt.format_metric(cell.metric)
    figures = f"{name} {before} to {after}"
    if unit != name:
        figures += f" {unit}"
    parts = [f"{describe_place(cell)}: {figures}"]
    if cell.speed_up:
        has_interval = cell.speed_up.low is not None
        interval = ""
        if has_interval:
            interval = f" ({fmt.format_interval(cell.speed_up)})"
        parts.append(f"{fmt.format_times(cell.speed_up.value)}{interval}")
    parts.append(cell.verdict)
    if is_over_rounds(cell):
        counts = (
            fmt.count_things(cell.rounds, "round"),
            fmt.count_things(cell.prompts, "prompt"),
        )
        parts[-1] += f" over {' of '.join(counts)}"
        if not cell.noise_floor:
            parts.append("without a noise floor")
    return ", ".join(parts)


def describe_place(cell: CellVerdict) -> str:
    """Return the class and the load of a cell."""
    return f"{cell.class_} at {fmt.format_load(cell.load)}"
