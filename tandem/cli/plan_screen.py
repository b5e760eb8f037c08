"""What `tandem plan` prints: a recommendation and its ground, the table, memory and cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.bench.records.terminal_table import format_table
from tandem.bench.records.terminal_text import wrap_text
from tandem.declarations.experiment import Experiment
from tandem.judge import text_format as fmt
from tandem.plan.forecast import CoreMemory, PlanBasis, choose_window, rank_cell
from tandem.plan.forecast_cell import ForecastCell
from tandem.plan.measurement_rows import PublishedRow
from tandem.plan.step_cost import StepCost

NO_PRICE = "no cost: `capacity.usd_per_hour` is 0, write your price of a node-hour"
NO_ENVIRONMENT = (
    "price unknown: no environment is named, so the node is taken to be a {}; --env NAME gives both"
)
BREAK_EVEN_LEGEND = (
    "break-even: acceptance below which plain decoding is faster; -: it is always faster"
)
GAIN_LEGEND = (
    "gains above: the plain server's TPOT from which even the low end of the range is faster;"
    " -: never"
)
NO_LOAD = (
    "no figure above concurrency {}, because none is published: measure it and plan with --from DIR"
)
NO_TPOT = (
    "no speed-up without the plain server's TPOT, because a draft forward takes milliseconds "
    "whatever the target: pass --tpot MS, or run the experiment and plan with --from DIR"
)


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


def list_lines(forecast: PlanForecast, width: int) -> Iterator[str]:
    """Yield the recommendation, what rests on what, the table, memory and what trying costs."""
    if forecast.basis.is_simulated:
        yield SIMULATED_BAND
    for text in (describe_recommendation(forecast), *list_bases(forecast)):
        yield from wrap_text(text, width, indent="  ")
    yield ""
    yield from _list_cells(forecast, width)
    for text in _list_legends(forecast):
        yield from wrap_text(text, width, indent="  ")
    yield ""
    for draft, memory in forecast.core_memory.items():
        yield from wrap_text(_describe_memory(draft, memory, forecast.hbm_gib), width, indent="  ")
    yield from wrap_text(_describe_compile(forecast), width, indent="  ")


def _list_cells(forecast: PlanForecast, width: int) -> Iterator[str]:
    """Yield the table of all cells, with speed-ups or the TPOT from which a cell gains."""
    heads = ["draft", "window", "load", "tokens/step"]
    if forecast.has_speed_ups:
        heads += ["speed-up", "range", "break-even"]
    elif forecast.basis.cost is not None:
        heads += ["gains above"]
    rows = []
    for cell in forecast.cells:
        row = [cell.draft, str(cell.window), str(cell.concurrency), f"{cell.tokens:.2f}"]
        if forecast.has_speed_ups:
            row += _format_speed_up(cell)
        elif forecast.basis.cost is not None:
            gain = cell.gain_tpot_ms
            row.append(fmt.ABSENT if gain is None else f"{gain:.1f} ms")
        rows.append(row)
    yield from format_table(heads, rows, numbers=range(1, len(heads)), width=width)


def _format_speed_up(cell: ForecastCell) -> list[str]:
    """Return the speed-up of a cell, its range and break-even, as they are printed."""
    if cell.speed_up is None:
        return [fmt.ABSENT, fmt.ABSENT, fmt.ABSENT]
    break_even = fmt.ABSENT if cell.break_even is None else f"{cell.break_even:.2f}"
    return [f"{cell.speed_up:.2f}{fmt.TIMES}", f"{cell.low:.2f} to {cell.high:.2f}", break_even]


def _list_legends(forecast: PlanForecast) -> Iterator[str]:
    """Yield what the columns of the table mean, and why a figure is missing."""
    cost = forecast.basis.cost
    if forecast.has_speed_ups:
        yield BREAK_EVEN_LEGEND
    elif cost is not None:
        yield GAIN_LEGEND
    if cost is not None and forecast.basis.share is None:
        yield NO_TPOT
    if cost is not None and any(cell.concurrency > cost.concurrency for cell in forecast.cells):
        yield NO_LOAD.format(cost.concurrency)


def list_sources(rows: Sequence[PublishedRow]) -> Iterator[str]:
    """Yield published measurements, each with its source and date."""
    for row in rows:
        source = row.speculative_tpot_ms.source
        is_foreign = row.implementation == "other"
        implementation = "another implementation" if is_foreign else row.implementation
        tokens = "left out" if row.tokens is None else f"{row.tokens:.2f} tokens a step"
        figures = f"window {row.window}, {tokens}, {row.speed_up:.2f}{fmt.TIMES}"
        yield f"  {row.name} ({implementation}): {figures}"
        yield f"    {source.where} ({source.date})"


def _describe_compile(forecast: PlanForecast) -> str:
    """Return what another window costs, or why that is not known."""
    hours = forecast.experiment.compile.deadline_hours
    place = forecast.place
    cost = NO_PRICE
    if place.environment is None:
        cost = NO_ENVIRONMENT.format(place.instance_type)
    elif place.usd_per_hour:
        cost = f"{hours * place.usd_per_hour:,.2f} USD a node"
    return f"each new window compiles an artifact: at most {60 * hours} minutes, {cost}"


def _describe_memory(draft: str, memory: CoreMemory | None, hbm_gib: float | None) -> str:
    """Return what a logical core holds with a draft, and whether that fits."""
    limit = "" if hbm_gib is None else f" of {hbm_gib:g}"
    core = f"memory of a logical core with {draft}"
    if memory is None:
        return f"{core}: unknown{limit}: the model's bytes or heads are not known"
    models = f"target {memory.target_gib:.2f}, draft {memory.draft_gib:.2f}"
    parts = f"{models}, KV cache {memory.kv_gib:.2f}; compiled graphs: no size published"
    fit = "" if hbm_gib is None or memory.total_gib <= hbm_gib else " - IT DOES NOT FIT"
    return f"{core}: {memory.total_gib:.1f} GiB{limit} ({parts}){fit}"


def list_bases(forecast: PlanForecast) -> Iterator[str]:
    """Yield what is planned, and what every figure rests on."""
    experiment = forecast.experiment
    basis = forecast.basis
    servers = ", from simulated servers" if basis.is_simulated else ""
    subject = f"{experiment.name}: {experiment.target} on {experiment.runtime}"
    yield f"{subject}, relative to plain decoding{servers}"

    words = "assumed: pass --acceptance" if basis.words == "assumed" else basis.words
    words += " of simulated servers" if basis.is_simulated else ""
    if basis.position_rates:
        words += f", by position {', '.join(f'{rate:.2f}' for rate in basis.position_rates)}"
    cost = _describe_draft_cost(basis)
    yield f"acceptance {basis.acceptance:.3g} ({words})" + (f"; {cost}" if cost else "")


def _describe_draft_cost(basis: PlanBasis) -> str:
    """Return what a draft forward and a verified token cost; empty where nobody says it."""
    share = basis.share
    cost = basis.cost
    if share is not None and share.basis == "measured":
        source = share.basis + (" on simulated servers" if basis.is_simulated else "")
        span = f"{share.low:.2f} to {share.high:.2f} ({source})"
        return f"a draft forward takes {share.mean:.2f} of a plain step, {span}"
    if cost is None:
        return ""
    share_words = "" if share is None else f", {share.mean:.2f} of a step"
    span = f"({cost.low_ms:.1f} to {cost.high_ms:.1f})"
    draft = f"a draft forward takes {cost.draft_ms:.1f} ms {span}{share_words}"
    token = f"each verified token takes {cost.verified_share:.3f} of a plain step"
    return f"{draft}; {token} (published: --sources)"


def describe_recommendation(forecast: PlanForecast) -> str:
    """Return what to try first and what that rests on, or why there is no forecast."""
    basis = forecast.basis
    if basis.objection:
        experiment = forecast.experiment
        return (
            f"No speed-up can be forecast for {experiment.target}: {basis.objection}. Measure it "
            f"(tandem run {experiment.name} --env NAME --hours 8), then plan with --from DIR."
        )
    least = min(cell.concurrency for cell in forecast.cells)
    best = [choose_window(forecast.cells, draft, least) for draft in forecast.core_memory]
    cell = max(best, key=rank_cell)
    equal_count = sum(rank_cell(rival) == rank_cell(cell) for rival in best)
    if equal_count == 1:
        return f"{_describe_choice(cell, basis, f'{cell.draft} with window {cell.window}')}."
    name = f"window {cell.window} with any of {equal_count} drafts"
    choice = _describe_choice(cell, basis, name)
    return f"{choice}. The forecast does not tell these drafts apart."


def _describe_choice(cell: ForecastCell, basis: PlanBasis, name: str) -> str:
    """Return what to do about the most promising cell and why, without a full stop."""
    article = "an" if basis.words == "assumed" else "a"
    source = "published" if basis.share is None else basis.share.basis
    servers = " of simulated servers" if basis.is_simulated else ""
    ground = f"on {article} {basis.words} acceptance and {source} draft costs{servers}"
    rest = f"at concurrency {cell.concurrency}, {ground}"
    if cell.low is None or cell.high is None:
        return _describe_gain(cell, basis.cost, name, rest)
    if cell.high <= 1:
        return f"Keep plain decoding: no window of these is faster {rest}"
    if cell.low <= 1:
        return f"Measure before you decide: {name} may be slower or faster {rest}"
    return f"Try {name} first: {cell.low:.1f} to {cell.high:.1f} times as fast {rest}"


def _describe_gain(cell: ForecastCell, cost: StepCost | None, name: str, rest: str) -> str:
    """Return what to try first where no cell of its load has a speed-up."""
    if cost is not None and cell.concurrency > cost.concurrency:
        reason = f"none is published above {cost.concurrency}"
        return f"No speed-up can be forecast at concurrency {cell.concurrency}: {reason}"
    if cell.gain_tpot_ms is None:
        reason = "no window of these is sure to be faster, whatever the TPOT"
        return f"Measure before you decide: {reason}, {rest}"
    condition = f"if the plain server's TPOT is above {math.ceil(cell.gain_tpot_ms)} ms"
    return f"Try {name} first: faster than plain decoding {condition}, {rest}"


def forecast_as_dict(forecast: PlanForecast) -> dict[str, object]:
    """Return the forecast as `--json` prints it."""
    basis = forecast.basis
    return {
        "experiment": forecast.experiment.name,
        "environment": forecast.place.environment,
        "instance_type": forecast.place.instance_type,
        "acceptance": {"value": basis.acceptance, "basis": basis.words},
        "draft_share": basis.share and asdict(basis.share),
        "step_cost": basis.cost and asdict(basis.cost),
        "objection": basis.objection or None,
        "simulated": basis.is_simulated,
        "cells": [asdict(cell) for cell in forecast.cells],
        "core_memory": {
            draft: memory and asdict(memory) for draft, memory in forecast.core_memory.items()
        },
        "core_hbm_gib": forecast.hbm_gib,
        "compile_hours_at_most": forecast.experiment.compile.deadline_hours,
        "usd_per_node_hour": forecast.place.usd_per_hour,
        "recommendation": describe_recommendation(forecast),
    }
