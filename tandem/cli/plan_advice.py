"""What `tandem plan` recommends, and what would have to be known where it recommends nothing.

Invariant: a recommendation has its range. Drafts that the plan cannot tell apart are never ranked,
and an assumed acceptance recommends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tandem.declarations.experiment import Experiment
from tandem.plan.forecast import CoreMemory, choose_window, rank_cell
from tandem.plan.forecast_cell import ForecastCell
from tandem.plan.plan_basis import DraftBasis, PlanBasis
from tandem.shell_command import quote_command


@dataclass(frozen=True, kw_only=True)
class PlanPlace:
    """Where an experiment would run.

    Args:
        environment: its name; None where none is named.
        instance_type: of its nodes, or the one that `tandem new` takes.
        usd_per_hour: price of a node-hour; None where no environment says it, 0 where one leaves it
            out.
    """

    environment: str | None
    instance_type: str
    usd_per_hour: float | None


@dataclass(frozen=True, kw_only=True)
class PlanForecast:
    """What is printed.

    Args:
        experiment: as declared.
        place: where it would run.
        cells: each draft, window and load.
        basis: what every cell rests on.
        core_memory: draft to what each logical core holds; None where unknown.
        hbm_gib: of a logical core; None where unknown.
    """

    experiment: Experiment
    place: PlanPlace
    cells: tuple[ForecastCell, ...]
    basis: PlanBasis
    core_memory: dict[str, CoreMemory | None]
    hbm_gib: float | None

    @property
    def has_speed_ups(self) -> bool:
        """Whether a cell has one."""
        return any(cell.speed_up is not None for cell in self.cells)

    def list_best_cells(self) -> list[ForecastCell]:
        """Return the best window of each group of drafts, at the lowest load."""
        load = min(cell.concurrency for cell in self.cells)
        return [choose_window(self.cells, drafts, load) for drafts in self.basis.list_groups()]

    def find_basis(self, cell: ForecastCell) -> DraftBasis:
        """Return what a cell rests on."""
        return self.basis.drafts[cell.drafts[0]]


def describe_recommendation(forecast: PlanForecast) -> str:
    """Return what to try first with its range, or why nothing is recommended."""
    basis = forecast.basis
    if basis.objection and not forecast.has_speed_ups:
        experiment = forecast.experiment
        return (
            f"No speed-up can be forecast for {experiment.target}: {basis.objection}. Measure it "
            f"(tandem run {experiment.name} --env NAME --hours 8), then plan with --from DIR."
        )
    best = forecast.list_best_cells()
    known_cells = [cell for cell in best if forecast.find_basis(cell).has_acceptance]
    if not known_cells:
        return _describe_assumption(max(best, key=rank_cell), forecast)

    cell = max(known_cells, key=rank_cell)
    sentences = [_describe_choice(cell, _list_rivals(cell, known_cells), forecast)]
    if len(cell.drafts) > 1:
        sentences.append("The same is known of these drafts, so the plan cannot tell them apart.")
    unknown = [draft for draft, row in basis.drafts.items() if not row.has_acceptance]
    if unknown:
        sentences.append(f"Nothing is known of {' and '.join(unknown)}: it may be better.")
    return " ".join(sentences)


def list_deciding_steps(forecast: PlanForecast) -> Iterator[str]:
    """Yield how to get the figures that are missing, for the least money."""
    bases = forecast.basis.drafts.values()
    experiment = forecast.experiment
    if not all(basis.has_acceptance for basis in bases):
        bench = quote_command(
            "tandem", "bench", "run", "--baseline", "URL", "--variant", "draft=URL"
        )
        yield (
            "  acceptance: serve target and draft on any hardware, and measure:"
            f" {bench} --speculates draft=K --out DIR; then plan with --from DRAFT=DIR"
        )
    if any(basis.share is None for basis in bases):
        run = "the first pair of a sweep" if experiment.sweep else "a quick run"
        yield (
            f"  cost: measure the plain server's TPOT (--tpot MS), or {run}: tandem run"
            f" {experiment.name} --env NAME --hours H --quick; then plan with --from DIR"
        )


def _list_rivals(cell: ForecastCell, known: Sequence[ForecastCell]) -> list[ForecastCell]:
    """Return the other drafts' best cells whose ranges reach into that of the best cell."""
    rivals = []
    for rival in known:
        if rival is cell or rival.high is None or cell.low is None:
            continue
        if rival.high >= max(cell.low, 1):
            rivals.append(rival)
    return rivals


def _describe_assumption(cell: ForecastCell, forecast: PlanForecast) -> str:
    """Return which window would come first, where the acceptance of no draft is known."""
    missing = "the acceptance of no draft is known"
    if forecast.find_basis(cell).share is None:
        missing = "neither acceptance nor cost of a draft is known"
    sentences = [f"No recommendation: {missing}."]
    if len(cell.drafts) > 1:
        sentences.append("The plan cannot tell the drafts apart, and ranks windows alone.")
    first = f"At an assumed acceptance of {forecast.find_basis(cell).acceptance:g}, window"
    first += f" {cell.window} comes first"
    if cell.break_even is not None:
        first += f"; it gains from an acceptance of {cell.break_even:.2f} on"
    elif cell.gain_tpot_ms is not None:
        first += f"; it gains if the plain server's TPOT is above {math.ceil(cell.gain_tpot_ms)} ms"
    sentences.append(f"{first}.")
    return " ".join(sentences)


def _describe_choice(
    cell: ForecastCell, rivals: Sequence[ForecastCell], forecast: PlanForecast
) -> str:
    """Return what to do about the most promising cell, and why."""
    name = f"{cell.draft} with window {cell.window}"
    rest = f"at concurrency {cell.concurrency}, {_describe_ground(cell, forecast)}"
    if cell.low is None or cell.high is None:
        return _describe_gain(cell, forecast.basis, name, rest)
    if rivals:
        ranges = "; ".join(
            f"{option.draft} {_describe_range(option)} with window {option.window}"
            for option in (cell, *rivals)
        )
        return f"No recommendation between drafts, because their ranges overlap {rest}: {ranges}."
    if cell.high <= 1:
        return f"Keep plain decoding: no window of these is faster {rest}."
    if cell.low <= 1:
        range_text = _describe_range(cell)
        return f"Measure before you decide: {name} may be slower or faster, {range_text} {rest}."
    return f"Try {name} first: {_describe_range(cell)} {rest}."


def _describe_range(cell: ForecastCell) -> str:
    return f"{cell.low:.1f} to {cell.high:.1f} times as fast"


def _describe_ground(cell: ForecastCell, forecast: PlanForecast) -> str:
    """Return what a cell rests on: `by a given acceptance and published draft costs`."""
    basis = forecast.find_basis(cell)
    cost_words = "published" if basis.share is None else basis.share.basis
    servers = " of simulated servers" if basis.is_simulated else ""
    return f"by {basis.acceptance_basis} acceptance and {cost_words} draft costs{servers}"


def _describe_gain(cell: ForecastCell, basis: PlanBasis, name: str, rest: str) -> str:
    """Return what to try first where no cell of its load has a speed-up."""
    if basis.cost is not None and cell.concurrency > basis.cost.concurrency:
        reason = f"none is published above {basis.cost.concurrency}"
        return f"No speed-up can be forecast at concurrency {cell.concurrency}: {reason}."
    if cell.gain_tpot_ms is None:
        reason = "no window of these is sure to be faster, whatever the TPOT"
        return f"Measure before you decide: {reason}, {rest}."
    condition = f"if the plain server's TPOT is above {math.ceil(cell.gain_tpot_ms)} ms"
    return f"Try {name} first: faster than plain decoding {condition}, {rest}."
