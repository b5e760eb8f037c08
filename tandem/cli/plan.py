"""`tandem plan`: what each draft and window can give, before anybody pays for a node.

Exit codes: 0 planned; 2 a flag or a file is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tandem.cli.console import count_columns, print_result
from tandem.cli.flags import EnvironmentName, Name, require_range
from tandem.cli.inputs import read_legal_experiment, read_legal_inputs
from tandem.cli.new import INSTANCE_TYPES
from tandem.cli.plan_advice import PlanForecast, PlanPlace, describe_recommendation
from tandem.cli.plan_figures import PlanFigures, build_basis, split_word
from tandem.cli.plan_screen import (
    forecast_as_dict,
    list_bases,
    list_lines,
    list_sources,
)
from tandem.cli.selection import DEFAULTS, Selection
from tandem.declarations.catalogue import Catalogue, load_catalogue
from tandem.declarations.experiment import Experiment
from tandem.errors import ExitCode, InputError
from tandem.plan.forecast import (
    TARGET_KINDS,
    build_load,
    compute_core_memory,
    forecast_cells,
)
from tandem.plan.forecast_cell import ForecastCell
from tandem.plan.measurement_rows import load_published
from tandem.plan.plan_basis import PlanBasis

WINDOWS = (3, 5, 7, 10, 15)  # what the post tried, and 3, the native runtime's
WINDOW_LIMITS = (1, 15)


def plan(
    experiment: Name,
    /,
    *,
    env: EnvironmentName | None = None,
    acceptance: Annotated[
        tuple[str, ...], Parameter(metavar="[DRAFT=]SHARE,...", consume_multiple=1)
    ] = (),
    cost: Annotated[tuple[str, ...], Parameter(metavar="[DRAFT=]C", consume_multiple=1)] = (),
    tpot: Annotated[
        float | None, Parameter(metavar="MS", validator=require_range(0.01, 10_000, "ms"))
    ] = None,
    runs: Annotated[
        tuple[str, ...], Parameter(name="--from", metavar="[DRAFT=]DIR", consume_multiple=1)
    ] = (),
    window: Annotated[str | None, Parameter(metavar="N,...|A..B")] = None,
    concurrency: Annotated[str | None, Parameter(metavar="N,...|A..B")] = None,
    page: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    sources: bool = False,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Say what speculation can give an experiment, by draft, window and load.

    Args:
        experiment: name of the experiment
        env: environment that hosts it (default: none, and no price)
        acceptance: chance that the target accepts a drafted token, or the share accepted at each
            position (default: 0.8, assumed)
        cost: a draft forward in plain steps of the target
        tpot: measured TPOT of the plain server, in ms, for the published cost of a draft forward
        runs: folder of a run that gives acceptance and, if it is of this experiment, cost;
            repeatable
        window: num_speculative_tokens (default: 3,5,7,10,15)
        concurrency: requests at once (default: 1; with --from, also max_num_seqs)
        page: write charts, with the points of the run, to one HTML file
        sources: list the published measurements of this kind of target, with sources and dates

    Raises:
        TandemError: a file, a window or a load is refused, or the experiment drafts nothing.
    """
    place, declared, catalogue = _read_place(selection, env, experiment)
    windows = _read_counts(window, "--window", WINDOW_LIMITS) or WINDOWS
    limit = declared.serving.max_num_seqs
    loads = _read_counts(concurrency, "--concurrency", (1, limit))
    if not loads:
        # nothing was published at higher loads, so a plan without a run starts at 1
        loads = tuple(dict.fromkeys((1, limit))) if runs else (1,)
    figures = PlanFigures(acceptance=acceptance, cost=cost, runs=runs, tpot_ms=tpot)
    basis = build_basis(figures, declared, catalogue)
    forecast = _forecast(place, catalogue, declared, basis, windows=windows, loads=loads)
    lines = list(list_lines(forecast, count_columns()))
    document = forecast_as_dict(forecast)
    if sources:
        kind = TARGET_KINDS.get(catalogue.models[declared.target].family.value)
        rows = [row for row in load_published() if kind in {None, row.target}]
        lines += ["", "published measurements of this kind of target:", *list_sources(rows)]
        document["published"] = [row.model_dump(mode="json") for row in rows]
    if page is not None:
        _write_page(forecast, figures, page)
        lines.append(str(page))
    code = ExitCode.DONE
    if place.environment and not place.usd_per_hour:
        # what can be planned is planned, and the exit code says that an environment lacks its price
        code = ExitCode.BAD_INPUT
    return print_result(document, lines, as_json=selection.as_json, code=code)


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
    place = PlanPlace(
        environment=environment.name,
        instance_type=environment.capacity.instance_type,
        usd_per_hour=environment.capacity.usd_per_hour,
    )
    return place, inputs.find_experiment(environment, experiment_name), inputs.catalogue


def _read_counts(text: str | None, flag: str, limits: tuple[int, int]) -> tuple[int, ...]:
    """Return the numbers of `1,4,16` or `1..15`, each once; empty where nothing is given.

    Raises:
        InputError: one is no whole number or outside the limits, or a range counts down.
    """
    if not text:
        return ()
    low, high = limits
    numbers: dict[int, None] = {}
    parts = [part for part in text.split(",") if part]
    for part in parts or [text]:
        first_text, dots, last_text = part.partition("..")
        try:
            first = int(first_text)
            last = int(last_text) if dots else first
        except ValueError:
            change = "write whole numbers, as 1,4 or 1..15"
            raise InputError(f"got {text}", where=flag, change=change) from None
        if last < first:
            change = f"write the lower number first: {last}..{first}"
            raise InputError(f"got {text}", where=flag, change=change)
        if not low <= first <= last <= high:  # before a long range is made
            change = f"write numbers from {low} to {high}, as {low},{high}"
            raise InputError(f"got {text}", where=flag, change=change)
        numbers |= dict.fromkeys(range(first, last + 1))
    return tuple(numbers)


def _forecast(
    place: PlanPlace,
    catalogue: Catalogue,
    experiment: Experiment,
    basis: PlanBasis,
    *,
    windows: Sequence[int],
    loads: Sequence[int],
) -> PlanForecast:
    """Compute what is printed."""
    cells: list[ForecastCell] = []
    for drafts in basis.list_groups():
        load = build_load(experiment, catalogue, basis.drafts[drafts[0]])
        cells += forecast_cells(load, drafts, windows, loads, cost=basis.cost)
    serving = experiment.serving
    core_memory = {
        draft: compute_core_memory(
            catalogue.models[experiment.target],
            catalogue.models[draft],
            cores=serving.tensor_parallel_size,
            sequences=serving.max_num_seqs,
            max_model_len=serving.max_model_len,
        )
        for draft in basis.drafts
    }
    return PlanForecast(
        experiment=experiment,
        place=place,
        cells=tuple(cells),
        basis=basis,
        core_memory=core_memory,
        hbm_gib=_find_core_hbm(catalogue, place.instance_type, experiment),
    )


def _find_core_hbm(
    catalogue: Catalogue, instance_type: str, experiment: Experiment
) -> float | None:
    """Return GiB of memory that a logical core has; None where the data do not say it."""
    instance = catalogue.instances.instances[instance_type]
    hbm_gib = instance.hbm_gib_per_device.value
    cores = instance.physical_cores_per_device.value
    if hbm_gib is None or cores is None:
        return None
    return hbm_gib * experiment.serving.logical_neuron_core / cores


def _write_page(forecast: PlanForecast, figures: PlanFigures, path: Path) -> None:
    """Write charts of every cell, and of the runs' own points.

    Raises:
        TandemError: the run cannot be judged, or the file cannot be written.
    """
    from tandem.cli.plan_run import read_run_points  # noqa: PLC0415 - numpy, scipy
    from tandem.report.chart_page import PageHeader  # noqa: PLC0415 - vl-convert
    from tandem.report.plan_page import MeasuredPoint, write_plan_page  # noqa: PLC0415

    place = forecast.place.environment or forecast.place.instance_type
    header = PageHeader(
        title=describe_recommendation(forecast),
        eyebrow=f"Tandem plan of {forecast.experiment.name} on {place}",
        sentences=tuple(list_bases(forecast)),
        source="the files of the experiment, published figures and the named run",
        is_simulated=forecast.basis.is_simulated,
        version=version("tandem"),
    )
    points: list[MeasuredPoint] = []
    for word in figures.runs:
        _, folder = split_word(word, list(forecast.basis.drafts))
        points += read_run_points(Path(folder))
    write_plan_page(header, forecast.cells, points, path)
