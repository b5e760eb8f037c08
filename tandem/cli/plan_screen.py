"""What `tandem plan` prints: a recommendation and its ground, the table, memory and cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.bench.records.terminal_table import format_table
from tandem.bench.records.terminal_text import wrap_text
from tandem.cli.plan_advice import PlanForecast, describe_recommendation, list_deciding_steps
from tandem.judge import text_format as fmt
from tandem.plan.forecast import CoreMemory
from tandem.plan.forecast_cell import ForecastCell
from tandem.plan.measurement_rows import PublishedRow
from tandem.plan.plan_basis import DraftBasis

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


def list_lines(forecast: PlanForecast, width: int) -> Iterator[str]:
    """Yield the recommendation, what rests on what, the table, memory and what trying costs."""
    if forecast.basis.is_simulated:
        yield SIMULATED_BAND
    texts = (
        describe_recommendation(forecast),
        *list_deciding_steps(forecast),
        *list_bases(forecast),
    )
    for text in texts:
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
    return [
        f"{cell.speed_up:.2f}{fmt.TIMES}",
        f"{cell.low:.2f} to {cell.high:.2f}",
        fmt.ABSENT if cell.break_even is None else f"{cell.break_even:.2f}",
    ]


def _list_legends(forecast: PlanForecast) -> Iterator[str]:
    """Yield what the columns of the table mean, and why a figure is missing."""
    cost = forecast.basis.cost
    if forecast.has_speed_ups:
        yield BREAK_EVEN_LEGEND
    elif cost is not None:
        yield GAIN_LEGEND
    if cost is not None and not forecast.has_speed_ups:
        yield NO_TPOT
    if cost is not None and any(cell.concurrency > cost.concurrency for cell in forecast.cells):
        yield NO_LOAD.format(cost.concurrency)


def list_sources(rows: Sequence[PublishedRow]) -> Iterator[str]:
    """Yield published measurements, each with its source and date."""
    for row in rows:
        source = row.speculative_tpot_ms.source
        is_foreign = row.implementation == "other"
        implementation = "another implementation" if is_foreign else row.implementation
        tokens = "left out"
        if row.tokens is not None:
            tokens = f"{row.tokens:.2f} tokens a step"
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
    parts = [
        f"target {memory.target_gib:.2f}",
        f"draft {memory.draft_gib:.2f}",
        f"KV cache {memory.kv_gib:.2f}; compiled graphs: no size published",
    ]
    text = f"{core}: {memory.total_gib:.1f} GiB{limit} ({', '.join(parts)})"
    if hbm_gib is not None and memory.total_gib > hbm_gib:
        text += " - IT DOES NOT FIT"
    return text


def list_bases(forecast: PlanForecast) -> Iterator[str]:
    """Yield what is planned, and what every figure rests on."""
    experiment = forecast.experiment
    basis = forecast.basis
    servers = ", from simulated servers" if basis.is_simulated else ""
    subject = f"{experiment.name}: {experiment.target} on {experiment.runtime}"
    yield f"{subject}, relative to plain decoding{servers}"
    for drafts in basis.list_groups():
        draft_basis = basis.drafts[drafts[0]]
        parts = [_describe_acceptance(draft_basis), _describe_share(draft_basis)]
        yield f"{' or '.join(drafts)}: {'; '.join(filter(None, parts))}"
    if basis.cost is not None:
        span = f"({basis.cost.low_ms:.1f} to {basis.cost.high_ms:.1f})"
        draft = f"a draft forward takes {basis.cost.draft_ms:.1f} ms {span}"
        token = f"each verified token {basis.cost.verified_share:.3f} of a plain step"
        yield f"published: {draft}, {token} (--sources)"


def _describe_acceptance(basis: DraftBasis) -> str:
    words = str(basis.acceptance_basis)
    if not basis.has_acceptance:
        words = "assumed: pass --acceptance"
    if basis.is_simulated and basis.acceptance_basis == "measured":
        words += " of simulated servers"
    if basis.position_rates:
        rates = [f"{rate:.2f}" for rate in basis.position_rates]
        words += f", by position {', '.join(rates)}"
    return f"acceptance {basis.acceptance:.3g} ({words})"


def _describe_share(basis: DraftBasis) -> str:
    """Return what a draft forward takes of a plain step; empty where it is not known."""
    share = basis.share
    if share is None:
        return ""
    source = str(share.basis)
    if share.basis == "measured":
        source = f"{share.low:.2f} to {share.high:.2f}, measured"
        source += " on simulated servers" if basis.is_simulated else ""
    return f"a draft forward takes {share.mean:.2f} of a plain step ({source})"


def forecast_as_dict(forecast: PlanForecast) -> dict[str, object]:
    """Return the forecast as `--json` prints it."""
    basis = forecast.basis
    return {
        "experiment": forecast.experiment.name,
        "environment": forecast.place.environment,
        "instance_type": forecast.place.instance_type,
        "drafts": {draft: asdict(draft_basis) for draft, draft_basis in basis.drafts.items()},
        "indistinguishable": [group for group in basis.list_groups() if len(group) > 1],
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
        "deciding": list(list_deciding_steps(forecast)),
    }
