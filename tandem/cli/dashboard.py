"""`tandem dashboard DIR`: what CloudWatch would show of a run, as one page that needs no AWS.

Invariant: the page is drawn from what `tandem bench publish` would send of the folder, rounded as it rounds, into the
dashboards that the environment deploys; nothing is asked of any network.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.cli.experiment_match import find_measured_experiment, list_dimensions
from tandem.cli.inputs import read_legal_inputs
from tandem.cli.outcome import ExitCode, print_json
from tandem.cli.selection import Selection
from tandem.metrics import BENCH
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

if TYPE_CHECKING:
    from rehearsal.cloudwatch.page import PageHeader
    from rehearsal.cloudwatch.series_store import SeriesStore
    from tandem.bench.manifest import RunManifest

_DRAWING_NOTE = (
    "Drawn from the records of a run, as tandem bench publish sends them: three digits, at the minute in which each "
    "request began. A faint line crosses times without a value."
)
_SIMULATED_NOTE = "Figures of simulated servers are published to {namespace}, which no dashboard of the account reads."
_ELSEWHERE = {"unpublished_rounds": ": it is counted while a run is published"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder that a run wrote")
    parser.add_argument("--env", required=True, metavar="NAME", help="the environment whose dashboards are drawn")
    parser.add_argument("--experiment", metavar="NAME", help="which of its experiments was measured")
    parser.add_argument("--html", required=True, type=Path, metavar="OUT", help="file to write")


def dashboard(selection: Selection, options: argparse.Namespace) -> ExitCode:
    """Write the page.

    Args:
        selection: the folders of declared files.
        options: `folder`, `env`, `experiment` and `html`.

    Raises:
        SpecError: a declared file is refused.
    """
    from tandem.bench.fault import BenchError  # noqa: PLC0415 - numpy comes with the bench

    try:
        return _write_page(selection, options)
    except BenchError as fault:
        if selection.as_json:
            fields = {"problem": fault.problem, "where": fault.where, "change": fault.change}
            print_json({"fault": fields, "exit_code": fault.exit_code})
        print(f"error: {fault}", file=sys.stderr)
        return ExitCode(fault.exit_code)


def _write_page(selection: Selection, options: argparse.Namespace) -> ExitCode:
    from rehearsal.cloudwatch.formula import ExpressionError  # noqa: PLC0415
    from rehearsal.cloudwatch.page import render_page  # noqa: PLC0415 - the chart library
    from rehearsal.cloudwatch.page_data import PageSource  # noqa: PLC0415
    from tandem.bench import manifest  # noqa: PLC0415 - numpy
    from tandem.cli.monitoring_cost import build_scope  # noqa: PLC0415
    from tandem.monitoring.dashboards import build_dashboards  # noqa: PLC0415

    inputs = read_legal_inputs(replace(selection, names=(options.env,), strict=False))
    environment = inputs.environments()[0]
    run_manifest = manifest.read_manifest(options.folder)
    experiment = find_measured_experiment(
        environment, inputs.list_experiments(environment), run_manifest, options.experiment
    )
    _require_writable(options.html)
    series = _read_series(options.folder, environment, experiment)
    span = series.span()
    if span is None:
        raise _build_error(
            "there is no request in these records", str(options.folder), "measure first: tandem bench run"
        )
    metric_data = PageSource(
        series=series, publishers=frozenset({BENCH}), absence_reasons=_ELSEWHERE, start_s=span[0], end_s=span[1]
    )
    dashboard_bodies = build_dashboards(build_scope(environment, [experiment]))
    try:
        text = render_page(dashboard_bodies, metric_data, _build_about(environment, experiment, run_manifest))
    except ExpressionError as error:  # a class whose name no SEARCH can hold
        raise _build_error(f"no graph can be drawn of it: {error}", str(options.folder), "rename the class") from error
    _write_text(options.html, text)
    if selection.as_json:
        print_json({"html": str(options.html), "bytes": len(text.encode())})
    else:
        print(options.html)
    return ExitCode.DONE


def _build_error(problem: str, location: str, change: str) -> Exception:
    from tandem.bench.fault import BenchError  # noqa: PLC0415

    return BenchError(problem, where=location, change=change)


def _read_series(folder: Path, environment: Environment, experiment: Experiment) -> SeriesStore:
    """Return what CloudWatch would hold once the folder was published."""
    from rehearsal.cloudwatch.series_store import MetricKey, SeriesStore  # noqa: PLC0415
    from tandem.bench.datapoints import read_rounds  # noqa: PLC0415 - numpy
    from tandem.bench.terminal_text import clean_text  # noqa: PLC0415
    from tandem.publish.batch import round_values  # noqa: PLC0415

    series = SeriesStore()
    namespace = names.bench_namespace(environment)
    for points in read_rounds(folder):
        for row in points.rows:
            metric_dimensions = [(name, clean_text(value)) for name, value in list_dimensions(experiment.name, row)]
            key = MetricKey.from_dimensions(namespace, row.metric, metric_dimensions)
            series.add(key, row.at_s, Counter(round_values(row.values).tolist()))
    return series


def _build_about(environment: Environment, experiment: Experiment, run_manifest: RunManifest) -> PageHeader:
    from rehearsal.cloudwatch.page import PageHeader  # noqa: PLC0415
    from tandem.bench.manifest import run_id  # noqa: PLC0415 - numpy
    from tandem.bench.simulation import SIMULATED_BAND  # noqa: PLC0415

    return PageHeader(
        title=f"{'Simulated: ' if run_manifest.simulated else ''}{experiment.name}: what CloudWatch would show",
        place=f"{environment.name} / {experiment.name}",
        facts=(("Run", run_id(run_manifest)), ("Arms", ", ".join(arm.name for arm in run_manifest.arms))),
        notes=(
            _DRAWING_NOTE,
            *(
                [_SIMULATED_NOTE.format(namespace=names.simulation_namespace(environment))]
                if run_manifest.simulated
                else []
            ),
        ),
        band=SIMULATED_BAND if run_manifest.simulated else None,
    )


def _require_writable(out: Path) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    parent = out.absolute().parent
    if out.is_dir():
        raise _build_error("this is a folder", str(out), "name a file: --html FILE")
    if not parent.is_dir():
        raise _build_error(f"there is no folder {out.parent}", str(out), "make it, or name another: --html FILE")
    if not os.access(out if out.exists() else parent, os.W_OK):
        raise _build_error("it may not be written to", str(out), "name a place that you may write to: --html FILE")


def _write_text(out: Path, text: str) -> None:
    new_file = out.with_name(f".{out.name}.new")
    try:
        new_file.write_text(text, encoding="utf-8")
        new_file.replace(out)
    except OSError as error:
        from tandem.bench.fault import ExternalBenchError  # noqa: PLC0415

        new_file.unlink(missing_ok=True)
        raise ExternalBenchError(
            f"the page cannot be written: {error.strerror or error}",
            where=str(out),
            change="make room, or name another",
        ) from error
