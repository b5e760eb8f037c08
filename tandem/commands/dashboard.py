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

from tandem.commands.inputs import legal
from tandem.commands.measured import dimensions, measured_experiment
from tandem.commands.outcome import Exit, print_json
from tandem.commands.selection import Selection
from tandem.metrics import BENCH
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

if TYPE_CHECKING:
    from tandem.bench.manifest import Manifest
    from tandem.watch.page import About
    from tandem.watch.series import Series

_NOTE = (
    "Drawn from the records of a run, as tandem bench publish sends them: three digits, at the minute in which each "
    "request began. A faint line crosses times without a value."
)
_APART = "Figures of simulated servers are published to {namespace}, which no dashboard of the account reads."
_ELSEWHERE = {"unpublished_rounds": ": it is counted while a run is published"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder that a run wrote")
    parser.add_argument("--env", required=True, metavar="NAME", help="the environment whose dashboards are drawn")
    parser.add_argument("--experiment", metavar="NAME", help="which of its experiments was measured")
    parser.add_argument("--html", required=True, type=Path, metavar="OUT", help="file to write")


def dashboard(chosen: Selection, options: argparse.Namespace) -> Exit:
    """Write the page.

    Args:
        chosen: the folders of declared files.
        options: `folder`, `env`, `experiment` and `html`.

    Raises:
        SpecError: a declared file is refused.
    """
    from tandem.bench.fault import BenchError  # noqa: PLC0415 - numpy comes with the bench

    try:
        return _written(chosen, options)
    except BenchError as fault:
        if chosen.as_json:
            said = {"problem": fault.problem, "where": fault.where, "change": fault.change}
            print_json({"fault": said, "exit_code": fault.code})
        print(f"error: {fault}", file=sys.stderr)
        return Exit(fault.code)


def _written(chosen: Selection, options: argparse.Namespace) -> Exit:
    from tandem.bench import manifest  # noqa: PLC0415 - numpy
    from tandem.commands.watching import scope  # noqa: PLC0415
    from tandem.watch.dashboards import dashboards  # noqa: PLC0415
    from tandem.watch.formula import ExpressionError  # noqa: PLC0415
    from tandem.watch.page import page  # noqa: PLC0415 - the chart library
    from tandem.watch.picture import Held  # noqa: PLC0415

    inputs = legal(replace(chosen, names=(options.env,), strict=False))
    environment = inputs.environments()[0]
    run = manifest.read(options.folder)
    experiment = measured_experiment(environment, inputs.hosted(environment), run, options.experiment)
    _refuse_place(options.html)
    series = _series(options.folder, environment, experiment)
    span = series.span()
    if span is None:
        raise _refused("there is no request in these records", str(options.folder), "measure first: tandem bench run")
    held = Held(series=series, publishers=frozenset({BENCH}), elsewhere=_ELSEWHERE, start_s=span[0], end_s=span[1])
    drawn = dashboards(scope(environment, [experiment]))
    try:
        text = page(drawn, held, _about(environment, experiment, run))
    except ExpressionError as error:  # a class whose name no SEARCH can hold
        raise _refused(f"no graph can be drawn of it: {error}", str(options.folder), "rename the class") from error
    _write(options.html, text)
    if chosen.as_json:
        print_json({"html": str(options.html), "bytes": len(text.encode())})
    else:
        print(options.html)
    return Exit.DONE


def _refused(problem: str, where: str, change: str) -> Exception:
    from tandem.bench.fault import BenchError  # noqa: PLC0415

    return BenchError(problem, where=where, change=change)


def _series(folder: Path, environment: Environment, experiment: Experiment) -> Series:
    """Return what CloudWatch would hold once the folder was published."""
    from tandem.bench.points import rounds  # noqa: PLC0415 - numpy
    from tandem.bench.shown import clean  # noqa: PLC0415
    from tandem.publish.batch import rounded  # noqa: PLC0415
    from tandem.watch.series import Key, Series  # noqa: PLC0415

    series = Series()
    namespace = names.bench_namespace(environment)
    for points in rounds(folder):
        for row in points.rows:
            named = [(name, clean(value)) for name, value in dimensions(experiment.name, row)]
            key = Key.of(namespace, row.metric, named)
            series.add(key, row.at_s, Counter(rounded(row.values).tolist()))
    return series


def _about(environment: Environment, experiment: Experiment, run: Manifest) -> About:
    from tandem.bench.manifest import run_id  # noqa: PLC0415 - numpy
    from tandem.bench.simulation import BAND  # noqa: PLC0415
    from tandem.watch.page import About  # noqa: PLC0415

    return About(
        title=f"{'Simulated: ' if run.simulated else ''}{experiment.name}: what CloudWatch would show",
        place=f"{environment.name} / {experiment.name}",
        facts=(("Run", run_id(run)), ("Arms", ", ".join(arm.name for arm in run.arms))),
        notes=(_NOTE, *([_APART.format(namespace=names.simulated_namespace(environment))] if run.simulated else [])),
        band=BAND if run.simulated else None,
    )


def _refuse_place(out: Path) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    parent = out.absolute().parent
    if out.is_dir():
        raise _refused("this is a folder", str(out), "name a file: --html FILE")
    if not parent.is_dir():
        raise _refused(f"there is no folder {out.parent}", str(out), "make it, or name another: --html FILE")
    if not os.access(out if out.exists() else parent, os.W_OK):
        raise _refused("it may not be written to", str(out), "name a place that you may write to: --html FILE")


def _write(out: Path, text: str) -> None:
    new = out.with_name(f".{out.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(out)
    except OSError as error:
        from tandem.bench.fault import WorldError  # noqa: PLC0415

        new.unlink(missing_ok=True)
        raise WorldError(
            f"the page cannot be written: {error.strerror or error}",
            where=str(out),
            change="make room, or name another",
        ) from error
