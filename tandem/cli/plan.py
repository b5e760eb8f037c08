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
from tandem.cli.plan_screen import (
    PlanForecast,
    PlanPlace,
    describe_recommendation,
    forecast_as_dict,
    list_bases,
    list_lines,
    list_sources,
)
from tandem.cli.selection import DEFAULTS, Selection
from tandem.cli.starter import INSTANCE_TYPES
from tandem.declarations.catalogue import Catalogue, load_catalogue
from tandem.declarations.experiment import Experiment
from tandem.declarations.model import ModelConfig
from tandem.errors import ExitCode, InputError
from tandem.plan.forecast import (
    ASSUMED_ACCEPTANCE,
    TARGET_KINDS,
    PlanBasis,
    build_load,
    compute_core_memory,
    convert_cost,
    fit_published_cost,
    forecast_cells,
)
from tandem.plan.measurement_rows import load_published

WINDOWS = (3, 5, 7, 10, 15)  # what the post tried, and 3, the native runtime's
WINDOW_LIMITS = (1, 15)


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
        experiment: name of the experiment
        env: environment that hosts it (default: none, and no price)
        acceptance: chance that the target accepts a drafted token (default: 0.8, assumed)
        tpot: measured TPOT of the plain server, in ms; a speed-up needs it, unless --from has it
        run: folder of a run of this experiment, for its own acceptance and draft cost
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
        loads = (1,) if run is None else tuple(dict.fromkeys((1, limit)))
    basis = _choose_basis(acceptance, tpot, run, declared, catalogue)
    forecast = _forecast(place, catalogue, declared, basis, windows=windows, loads=loads)
    lines = list(list_lines(forecast, count_columns()))
    document = forecast_as_dict(forecast)
    if sources:
        kind = TARGET_KINDS.get(catalogue.models[declared.target].family.value)
        rows = [row for row in load_published() if kind in {None, row.target}]
        lines += ["", "published measurements of this kind of target:", *list_sources(rows)]
        document["published"] = [row.model_dump(mode="json") for row in rows]
    if page is not None:
        _write_page(forecast, run, page)
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


def _choose_basis(
    acceptance: float | None,
    tpot_ms: float | None,
    run: Path | None,
    experiment: Experiment,
    catalogue: Catalogue,
) -> PlanBasis:
    """Return what a plan rests on: the run of --from, or the user's figures and published ones.

    Raises:
        TandemError: the run cannot be read, or it is given beside figures that it has.
    """
    if run is None:
        return _assume_basis(acceptance, tpot_ms, catalogue.models[experiment.target])
    if acceptance is not None or tpot_ms is not None:
        change = "drop --acceptance and --tpot, or --from"
        raise InputError("--from has acceptance and cost of its own", where="--from", change=change)
    from tandem.cli.plan_run import measure_basis  # noqa: PLC0415 - numpy

    law = catalogue.runtimes[experiment.runtime].counters.tokens_per_step.value
    return measure_basis(run, experiment.name, law)


def _assume_basis(
    acceptance: float | None, tpot_ms: float | None, target: ModelConfig
) -> PlanBasis:
    """Return the user's acceptance or the assumed one, and the published cost of a step."""
    cost = None
    share = None
    objection = ""
    published = fit_published_cost(load_published(), target)
    if isinstance(published, str):
        objection = published
    else:
        cost = published
        if tpot_ms is not None:
            share = convert_cost(cost, tpot_ms)
    return PlanBasis(
        acceptance=ASSUMED_ACCEPTANCE if acceptance is None else acceptance,
        words="assumed" if acceptance is None else "given",
        share=share,
        cost=cost,
        objection=objection,
    )


def _read_counts(text: str | None, flag: str, limits: tuple[int, int]) -> tuple[int, ...]:
    """Return the numbers of `1,4,16` or `1..15`, each once; empty where nothing is given.

    Raises:
        InputError: one is no whole number, or outside the limits.
    """
    if not text:
        return ()
    numbers: list[int] = []
    try:
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("..")
            numbers += range(int(first), int(last or first) + 1)
    except ValueError:
        change = "write whole numbers, as 1,4 or 1..15"
        raise InputError(f"got {text}", where=flag, change=change) from None

    low, high = limits
    if not numbers or min(numbers) < low or max(numbers) > high:
        change = f"write numbers from {low} to {high}, as {low},{high}"
        raise InputError(f"got {text}", where=flag, change=change)
    return tuple(dict.fromkeys(numbers))


def _forecast(
    place: PlanPlace,
    catalogue: Catalogue,
    experiment: Experiment,
    basis: PlanBasis,
    *,
    windows: Sequence[int],
    loads: Sequence[int],
) -> PlanForecast:
    """Compute what is printed.

    Raises:
        InputError: no variant drafts with a model.
    """
    drafts_of_variants = [row.draft for row in experiment.all_variants() if row.draft]
    drafts = tuple(dict.fromkeys(drafts_of_variants))
    if not drafts:
        change = "add a variant with a draft, or name another experiment"
        raise InputError(
            "no variant drafts with a model", where=f"experiment {experiment.name}", change=change
        )
    serving = experiment.serving
    load = build_load(experiment, catalogue, basis.acceptance, basis.position_rates)
    cells = forecast_cells(load, basis.share, drafts, windows, loads, cost=basis.cost)
    core_memory = {
        draft: compute_core_memory(
            catalogue.models[experiment.target],
            catalogue.models[draft],
            cores=serving.tensor_parallel_size,
            sequences=serving.max_num_seqs,
            max_model_len=serving.max_model_len,
        )
        for draft in drafts
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


def _write_page(forecast: PlanForecast, run: Path | None, path: Path) -> None:
    """Write charts of every cell, and of a run's own points.

    Raises:
        TandemError: the run cannot be judged, or the file cannot be written.
    """
    from tandem.cli.plan_run import read_run_points  # noqa: PLC0415 - numpy, scipy
    from tandem.report.chart_page import PageHeader  # noqa: PLC0415 - vl-convert
    from tandem.report.plan_page import write_plan_page  # noqa: PLC0415

    place = forecast.place.environment or forecast.place.instance_type
    header = PageHeader(
        title=describe_recommendation(forecast),
        eyebrow=f"Tandem plan of {forecast.experiment.name} on {place}",
        sentences=tuple(list_bases(forecast)),
        source="the files of the experiment, published figures and the named run",
        is_simulated=forecast.basis.is_simulated,
        version=version("tandem"),
    )
    write_plan_page(header, forecast.cells, read_run_points(run) if run else (), path)
