"""`tandem plan`: what each draft and window can give, before anybody pays for a node.

Exit codes: 0 planned; 2 a flag or a file is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.bench.records.terminal_text import wrap_text
from tandem.cli.console import count_columns, print_result
from tandem.cli.flags import EnvironmentName, Name, require_range
from tandem.cli.inputs import read_legal_experiment, read_legal_inputs
from tandem.cli.selection import DEFAULTS, Selection
from tandem.cli.starter import INSTANCE_TYPES
from tandem.declarations.catalogue import Catalogue, load_catalogue
from tandem.declarations.experiment import Experiment
from tandem.declarations.model import ModelConfig
from tandem.errors import ExitCode, InputError
from tandem.judge import text_format as fmt
from tandem.plan.forecast import (
    ASSUMED_ACCEPTANCE,
    TARGET_KINDS,
    CoreMemory,
    PlanBasis,
    build_load,
    choose_window,
    compute_core_memory,
    convert_cost,
    fit_published_cost,
    forecast_cells,
    rank_cell,
)
from tandem.plan.forecast_cell import ForecastCell
from tandem.plan.measurement_rows import PublishedRow, load_published
from tandem.plan.step_cost import StepCost
from tandem.report.terminal import format_table

WINDOWS = (3, 5, 7, 10, 15)  # what the post tried, and 3, the native runtime's
WINDOW_LIMITS = (1, 15)
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
    "no figure above concurrency {}, because nobody published one: measure it and plan with"
    " --from DIR"
)
NO_TPOT = (
    "no speed-up without the plain server's TPOT, because a draft forward takes milliseconds "
    "whatever the target: pass --tpot MS, or run the experiment and plan with --from DIR"
)


def plan(
    experiment: Name,
    /,
    *,
    env: EnvironmentName | None = None,
    acceptance: Annotated[
        float | None, Parameter(metavar="SHARE", validator=require_range(0, 1))
    ] = None,
    tpot: Annotated[
        float | None, Parameter(metavar="MS", validator=require_range(0.01, 10_000, "ms"))
    ] = None,
    run: Annotated[Path | None, Parameter(name="--from", metavar="DIR")] = None,
    window: Annotated[str | None, Parameter(metavar="N,...|A..B")] = None,
    concurrency: Annotated[str | None, Parameter(metavar="N,...|A..B")] = None,
    page: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    sources: bool = False,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Say what speculation can give an experiment, by draft, window and load.

    Args:
        experiment: its name
        env: the environment that hosts it (default: none, and no price)
        acceptance: chance that a draft is accepted (default 0.8, assumed)
        tpot: measured TPOT of the plain server, ms; needed for a speed-up unless --from has it
        run: folder of a run of this experiment: its own acceptance and draft cost
        window: num_speculative_tokens (default 3,5,7,10,15)
        concurrency: requests at once (default 1; with --from, max_num_seqs too)
        page: write charts of it, and of the run's own points, as one HTML file
        sources: list the published measurements of this kind of target, each with source and date

    Raises:
        TandemError: a file, a window or a load is refused, or the experiment drafts nothing.
    """
    place, declared, catalogue = _read_place(selection, env, experiment)
    windows = _read_counts(window, "--window", WINDOW_LIMITS) or WINDOWS
    limit = declared.serving.max_num_seqs
    # nothing was published at higher loads, so a plan without a run starts at 1
    usual_loads = (1,) if run is None else tuple(dict.fromkeys((1, limit)))
    loads = _read_counts(concurrency, "--concurrency", (1, limit)) or usual_loads
    if run is not None and (acceptance is not None or tpot is not None):
        change = "drop --acceptance and --tpot, or --from"
        raise InputError("--from has acceptance and cost of its own", where="--from", change=change)
    law = catalogue.runtimes[declared.runtime].counters.tokens_per_step.value
    basis = _assume_basis(acceptance, tpot, catalogue.models[declared.target])
    if run is not None:
        from tandem.cli.plan_run import measure_basis  # noqa: PLC0415 - numpy

        basis = measure_basis(run, declared.name, law)
    forecast = _forecast(place, catalogue, declared, basis, (windows, loads))
    lines = list(_list_lines(forecast, place))
    document = _forecast_as_dict(forecast, place)
    if sources:
        kind = TARGET_KINDS.get(catalogue.models[declared.target].family.value)
        published = [row for row in load_published() if kind in {None, row.target}]
        lines += ["", "published measurements of this kind of target:", *_list_sources(published)]
        document["published"] = [row.model_dump(mode="json") for row in published]
    if page is not None:
        _write_page(forecast, place, run, page)
        lines.append(str(page))
    # what can be planned is planned, and the exit code says that an environment lacks its price
    code = ExitCode.DONE if place.usd_per_hour or place.environment is None else ExitCode.BAD_INPUT
    print_result(document, lines, as_json=selection.as_json, code=code)
    return code


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


def _read_place(
    selection: Selection, environment_name: str | None, experiment_name: str
) -> tuple[PlanPlace, Experiment, Catalogue]:
    """Return where an experiment would run, the experiment, and the data for its rules.

    Raises:
        TandemError: a file is refused, or there is no such experiment.
    """
    if environment_name is None:
        catalogue = load_catalogue()
        experiment = read_legal_experiment(selection, experiment_name, catalogue)
        place = PlanPlace(environment=None, instance_type=INSTANCE_TYPES[0], usd_per_hour=None)
        return place, experiment, catalogue
    inputs = read_legal_inputs(selection.narrow((environment_name,)))
    environment = inputs.environments()[0]
    capacity = environment.capacity
    place = PlanPlace(
        environment=environment.name,
        instance_type=capacity.instance_type,
        usd_per_hour=capacity.usd_per_hour,
    )
    return place, inputs.find_experiment(environment, experiment_name), inputs.catalogue


def _assume_basis(
    acceptance: float | None, tpot_ms: float | None, target: ModelConfig
) -> PlanBasis:
    """Return the user's acceptance or the assumed one, and the published cost of a step."""
    published = fit_published_cost(load_published(), target)
    cost = published if isinstance(published, StepCost) else None
    return PlanBasis(
        acceptance=ASSUMED_ACCEPTANCE if acceptance is None else acceptance,
        words="assumed" if acceptance is None else "given",
        share=None if cost is None or tpot_ms is None else convert_cost(cost, tpot_ms),
        cost=cost,
        objection="" if isinstance(published, StepCost) else published,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanForecast:
    """What is printed.

    Args:
        experiment: as declared.
        cells: each draft, window and load.
        basis: what every cell rests on.
        core_memory: draft to what each logical core holds; None where unknown.
        hbm_gib: of a logical core; None where unknown.
    """

    experiment: Experiment
    cells: tuple[ForecastCell, ...]
    basis: PlanBasis
    core_memory: dict[str, CoreMemory | None]
    hbm_gib: float | None


def _read_counts(text: str | None, flag: str, limits: tuple[int, int]) -> tuple[int, ...]:
    """Return the numbers of `1,4,16` or `1..15`, each once; empty where nothing is given.

    Raises:
        InputError: one is no whole number, or outside the limits.
    """
    numbers: list[int] = []
    try:
        for part in filter(None, (text or "").split(",")):
            first, _, last = part.partition("..")
            numbers += range(int(first), int(last or first) + 1)
    except ValueError:
        raise InputError(
            f"got {text}", where=flag, change="write whole numbers, as 1,4 or 1..15"
        ) from None
    low, high = limits
    wrong = [number for number in numbers if not low <= number <= high]
    if wrong or (text is not None and not numbers):
        raise InputError(
            f"got {text}", where=flag, change=f"write numbers from {low} to {high}, as {low},{high}"
        )
    return tuple(dict.fromkeys(numbers))


def _forecast(
    place: PlanPlace,
    catalogue: Catalogue,
    experiment: Experiment,
    basis: PlanBasis,
    ranges: tuple[Sequence[int], Sequence[int]],
) -> PlanForecast:
    """Compute what is printed.

    Raises:
        InputError: no variant drafts with a model.
    """
    variants = experiment.all_variants()
    drafts = tuple(
        dict.fromkeys(variant.draft for variant in variants if variant.draft is not None)
    )
    if not drafts:
        change = "add a variant with a draft, or name another experiment"
        raise InputError(
            "no variant drafts with a model", where=f"experiment {experiment.name}", change=change
        )
    serving = experiment.serving
    target = catalogue.models[experiment.target]
    load = build_load(experiment, catalogue, basis.acceptance, basis.position_rates)
    size = {"cores": serving.tensor_parallel_size, "sequences": serving.max_num_seqs}
    cores = {
        draft: compute_core_memory(
            target, catalogue.models[draft], max_model_len=serving.max_model_len, **size
        )
        for draft in drafts
    }
    return PlanForecast(
        experiment=experiment,
        cells=tuple(forecast_cells(load, basis.share, drafts, *ranges, cost=basis.cost)),
        basis=basis,
        core_memory=cores,
        hbm_gib=_find_core_hbm(catalogue, place.instance_type, experiment),
    )


def _find_core_hbm(
    catalogue: Catalogue, instance_type: str, experiment: Experiment
) -> float | None:
    """Return GiB of memory that a logical core has; None where the data do not say it."""
    instance = catalogue.instances.instances[instance_type]
    hbm_gib = instance.hbm_gib_per_device.value
    cores = instance.physical_cores_per_device.value
    return (
        None
        if hbm_gib is None or cores is None
        else hbm_gib * experiment.serving.logical_neuron_core / cores
    )


def _list_lines(forecast: PlanForecast, place: PlanPlace) -> Iterator[str]:
    """Yield the recommendation, what rests on what, the table, memory and what trying costs."""
    experiment = forecast.experiment
    basis = forecast.basis
    width = count_columns()
    if basis.is_simulated:
        yield SIMULATED_BAND
    texts = [describe_recommendation(forecast), *_list_bases(forecast)]
    for text in texts:
        yield from wrap_text(text, width, indent="  ")
    yield ""
    yield from _list_cells(forecast, width)
    texts = [*_list_legends(forecast), ""]
    texts += [
        _describe_memory(draft, memory, forecast.hbm_gib)
        for draft, memory in forecast.core_memory.items()
    ]
    hours = experiment.compile.deadline_hours
    cost = _describe_cost(hours, place)
    texts.append(f"each new window compiles an artifact: at most {60 * hours} minutes, {cost}")
    for text in texts:
        yield from wrap_text(text, width, indent="  ") or [""]


def _list_cells(forecast: PlanForecast, width: int) -> Iterator[str]:
    """Yield the table of all cells, with speed-ups or the TPOT from which a cell gains."""
    heads = ["draft", "window", "load", "tokens/step"]
    format_figures = _format_speed_up
    if any(cell.speed_up is not None for cell in forecast.cells):
        heads += ["speed-up", "range", "break-even"]
    elif forecast.basis.cost is not None:
        heads += ["gains above"]
        format_figures = _format_gain
    rows = []
    for cell in forecast.cells:
        place = [cell.draft, str(cell.window), str(cell.concurrency), f"{cell.tokens:.2f}"]
        rows.append([*place, *format_figures(cell)][: len(heads)])
    yield from format_table(heads, rows, numbers=range(1, len(heads)), width=width)


def _format_speed_up(cell: ForecastCell) -> list[str]:
    """Return the speed-up of a cell, its range and break-even, as they are printed."""
    if cell.speed_up is None:
        return [fmt.ABSENT, fmt.ABSENT, fmt.ABSENT]
    break_even = fmt.ABSENT if cell.break_even is None else f"{cell.break_even:.2f}"
    return [f"{cell.speed_up:.2f}{fmt.TIMES}", f"{cell.low:.2f} to {cell.high:.2f}", break_even]


def _format_gain(cell: ForecastCell) -> list[str]:
    """Return the TPOT from which a cell gains, as it is printed."""
    return [fmt.ABSENT if cell.gain_tpot_ms is None else f"{cell.gain_tpot_ms:.1f} ms"]


def _list_legends(forecast: PlanForecast) -> Iterator[str]:
    """Yield what the columns of the table mean, and why a figure is missing."""
    basis = forecast.basis
    cells = forecast.cells
    is_published = basis.cost is not None
    if any(cell.speed_up is not None for cell in cells):
        yield BREAK_EVEN_LEGEND
    elif is_published:
        yield GAIN_LEGEND
    if is_published and basis.share is None:
        yield NO_TPOT
    if basis.cost is not None and any(cell.concurrency > basis.cost.concurrency for cell in cells):
        yield NO_LOAD.format(basis.cost.concurrency)


def _list_sources(rows: Sequence[PublishedRow]) -> Iterator[str]:
    """Yield published measurements, each with its source and date."""
    for row in rows:
        source = row.speculative_tpot_ms.source
        is_other = row.implementation == "other"
        implementation = "another implementation" if is_other else row.implementation
        tokens = "left out" if row.tokens is None else f"{row.tokens:.2f} tokens a step"
        figures = f"window {row.window}, {tokens}, {row.speed_up:.2f}{fmt.TIMES}"
        yield f"  {row.name} ({implementation}): {figures}"
        yield f"    {source.where} ({source.date})"


def _describe_cost(hours: int, place: PlanPlace) -> str:
    """Return what a node costs for so many hours, or why that is not known."""
    if place.environment is None:
        return NO_ENVIRONMENT.format(place.instance_type)
    return f"{hours * place.usd_per_hour:,.2f} USD a node" if place.usd_per_hour else NO_PRICE


def _describe_memory(draft: str, memory: CoreMemory | None, hbm_gib: float | None) -> str:
    """Return what a logical core holds with a draft, and whether that fits."""
    limit = "" if hbm_gib is None else f" of {hbm_gib:g}"
    if memory is None:
        return (
            f"memory of a logical core with {draft}: unknown{limit}: the model's bytes or heads are"
            " not known"
        )
    parts = (
        f"target {memory.target_gib:.2f}, draft {memory.draft_gib:.2f}, KV cache"
        f" {memory.kv_gib:.2f}"
    )
    fit = "" if hbm_gib is None or memory.total_gib <= hbm_gib else " - IT DOES NOT FIT"
    total = f"{memory.total_gib:.1f} GiB{limit}"
    return (
        f"memory of a logical core with {draft}: {total} ({parts}; compiled graphs: no size"
        f" published){fit}"
    )


def _write_page(forecast: PlanForecast, place: PlanPlace, run: Path | None, path: Path) -> None:
    """Write charts of every cell, and of a run's own points.

    Raises:
        TandemError: the run cannot be judged, or the file cannot be written.
    """
    from tandem.cli.plan_run import read_run_points  # noqa: PLC0415 - numpy, scipy
    from tandem.report.chart_page import PageHeader  # noqa: PLC0415 - vl-convert
    from tandem.report.plan_page import write_plan_page  # noqa: PLC0415

    header = PageHeader(
        title=describe_recommendation(forecast),
        eyebrow=(
            f"Tandem plan of {forecast.experiment.name} on"
            f" {place.environment or place.instance_type}"
        ),
        sentences=tuple(_list_bases(forecast)),
        source="the files of the experiment, published figures and the named run",
        is_simulated=forecast.basis.is_simulated,
        version=version("tandem"),
    )
    write_plan_page(header, forecast.cells, read_run_points(run) if run else (), path)


def _list_bases(forecast: PlanForecast) -> Iterator[str]:
    """Yield what is planned, and what every figure rests on."""
    experiment = forecast.experiment
    basis = forecast.basis
    words = "assumed: pass --acceptance" if basis.words == "assumed" else basis.words
    place = (
        f"{experiment.name}: {experiment.target} on {experiment.runtime},"
        " relative to plain decoding"
    )
    yield place + (", from simulated servers" if basis.is_simulated else "")
    simulated = " of simulated servers" if basis.is_simulated else ""
    rates = ", ".join(f"{rate:.2f}" for rate in basis.position_rates)
    words += simulated + (f", by position {rates}" if rates else "")
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
    span_words = f"({cost.low_ms:.1f} to {cost.high_ms:.1f})"
    draft_words = f"a draft forward takes {cost.draft_ms:.1f} ms {span_words}{share_words}"
    verified_words = f"each verified token takes {cost.verified_share:.3f} of a plain step"
    return f"{draft_words}; {verified_words} (published: --sources)"


def describe_recommendation(forecast: PlanForecast) -> str:
    """Return what to try first and what that rests on, or why there is no forecast."""
    basis = forecast.basis
    if basis.objection:
        experiment = forecast.experiment
        return (
            f"No speed-up can be forecast for {experiment.target}: {basis.objection}. Measure it "
            f"(tandem run {experiment.name} --env NAME --hours 8), then plan with --from DIR."
        )
    loads = [cell.concurrency for cell in forecast.cells]
    best = [choose_window(forecast.cells, draft, min(loads)) for draft in forecast.core_memory]
    cell = max(best, key=rank_cell)
    equal_count = sum(rank_cell(entry) == rank_cell(cell) for entry in best)
    name = f"{cell.draft} with window {cell.window}"
    end = "."
    if equal_count > 1:
        name = f"window {cell.window} with any of {equal_count} drafts"
        end = ". The forecast does not tell these drafts apart."
    return _describe_choice(cell, basis, name) + end


def _describe_choice(cell: ForecastCell, basis: PlanBasis, name: str) -> str:
    """Return what to do about the most promising cell and why, without a full stop."""
    article = "an" if basis.words == "assumed" else "a"
    source = "published" if basis.share is None else basis.share.basis
    acceptance_words = f"{article} {basis.words} acceptance"
    rest = f"at concurrency {cell.concurrency}, on {acceptance_words} and {source} draft costs"
    rest += " of simulated servers" if basis.is_simulated else ""
    if cell.low is None or cell.high is None:
        return _describe_gain(cell, basis, name, rest)
    if cell.high <= 1:
        return f"Keep plain decoding: no window of these is faster {rest}"
    if cell.low <= 1:
        return f"Measure before you decide: {name} may be slower or faster {rest}"
    return f"Try {name} first: {cell.low:.1f} to {cell.high:.1f} times as fast {rest}"


def _describe_gain(cell: ForecastCell, basis: PlanBasis, name: str, rest: str) -> str:
    """Return what to try first where no cell of its load has a speed-up."""
    if basis.cost is not None and cell.concurrency > basis.cost.concurrency:
        reason = f"nobody published one above {basis.cost.concurrency}"
        return f"No speed-up can be forecast at concurrency {cell.concurrency}: {reason}"
    if cell.gain_tpot_ms is None:
        reason = "no window of these is sure to be faster, whatever the TPOT"
        return f"Measure before you decide: {reason}, {rest}"
    condition = f"if the plain server's TPOT is above {math.ceil(cell.gain_tpot_ms)} ms"
    return f"Try {name} first: faster than plain decoding {condition}, {rest}"


def _forecast_as_dict(forecast: PlanForecast, place: PlanPlace) -> dict[str, object]:
    return {
        "experiment": forecast.experiment.name,
        "environment": place.environment,
        "instance_type": place.instance_type,
        "acceptance": {"value": forecast.basis.acceptance, "basis": forecast.basis.words},
        "draft_share": forecast.basis.share and asdict(forecast.basis.share),
        "step_cost": forecast.basis.cost and asdict(forecast.basis.cost),
        "objection": forecast.basis.objection or None,
        "simulated": forecast.basis.is_simulated,
        "cells": [asdict(cell) for cell in forecast.cells],
        "core_memory": {
            draft: memory and asdict(memory) for draft, memory in forecast.core_memory.items()
        },
        "core_hbm_gib": forecast.hbm_gib,
        "compile_hours_at_most": forecast.experiment.compile.deadline_hours,
        "usd_per_node_hour": place.usd_per_hour,
        "recommendation": describe_recommendation(forecast),
    }
