"""`tandem bench publish DIR` and `tandem bench run --publish`: what was measured, to CloudWatch and S3.

Invariant: nothing is asked of AWS before folder, environment, experiment and arms are known to fit; a run that was
measured stays measured whatever becomes of its publishing. boto3 is loaded when something is published.

Exit codes of `publish_folder`: 0 all of it is published, now or before; 2 bad input; 3 AWS failed, or something is
left for a later publish, or was given up now (which is told once).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.cli.experiment_match import MeasuredRun, find_measured_experiment, list_dimensions
from tandem.cli.inputs import read_legal_inputs
from tandem.cli.outcome import format_count, print_json
from tandem.cli.selection import Selection
from tandem.errors import ExitCode, ExternalError, InputError
from tandem.shell_command import quote_command
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

if TYPE_CHECKING:
    from tandem.bench.datapoints import RoundDatapoints
    from tandem.bench.manifest import RunManifest
    from tandem.publish.batch import RoundFigures
    from tandem.publish.clients import PublishClients
    from tandem.publish.publisher import PublishReport, RunDestination

FINAL_FILES = ("summary.json", "manifest.json")  # what says that a run is there, after all that it names
RUN_FILES = ("counters.jsonl", "rounds.jsonl", "warmup.jsonl", *FINAL_FILES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishTarget:
    """Where a run is published to."""

    environment: Environment
    experiment: Experiment


def publish_folder(selection: Selection, options: argparse.Namespace) -> ExitCode:
    """Publish what of a run's folder is not published yet.

    Args:
        selection: the folders of declared files.
        options: `folder`, `env`, `experiment` and `simulated`.

    Raises:
        SpecError: a declared file is refused.
        BenchError: the folder holds no run, or another environment's.
        TandemError: the folder is of another kind of servers, or is written to; AWS refused, or is out of reach.
    """
    from tandem.bench import manifest  # noqa: PLC0415 - the bench is loaded when it runs
    from tandem.publish.clients import connect  # noqa: PLC0415 - boto3

    run_manifest = manifest.read_manifest(options.folder)
    target = find_target(selection, options.env, run_manifest, options.experiment)
    require_server_kind(run_manifest, target, is_simulation=options.simulated)
    destination = _build_destination(target, run_manifest)
    with _lock_folder(options.folder):
        report = _publish_rounds(destination, options.folder, connect(target.environment.region), files=RUN_FILES)
    code = ExitCode.DONE if report.is_whole else ExitCode.EXTERNAL_FAILURE
    results_url = f"s3://{destination.bucket}/{destination.prefix}"
    if selection.as_json:
        print_json(
            {
                "namespace": destination.namespace,
                "experiment": destination.experiment,
                "run": destination.run_id,
                "results": results_url,
                "rounds": report.rounds,
                "batches": report.sent,
                "objects": report.stored,
                "lost": report.lost,
                "left": report.left,
                "notes": report.notes,
                "exit_code": int(code),
            }
        )
    else:
        print(
            f"{format_count(len(report.rounds), 'round')} in {format_count(report.sent, 'request')} to "
            f"{destination.namespace}, {format_count(report.stored, 'object')} to {results_url}"
        )
    _print_messages(report)
    return code


def find_target(selection: Selection, environment: str, run: MeasuredRun, experiment: str | None) -> PublishTarget:
    """Return where a run is published to.

    Args:
        selection: the folders of declared files.
        environment: its name.
        run: whose arms were measured, or will be.
        experiment: its name; None for the run's own, or the only one.

    Raises:
        SpecError: a declared file is refused.
        BenchError: the environment hosts no such experiment.
        InputError: the run is another's.
    """
    if run.environment not in {None, environment} or (run.environment and experiment not in {None, run.experiment}):
        raise InputError(
            f"the servers of {run.environment}/{run.experiment} were measured", where="--env, --experiment",
            change=f"publish it there: {quote_command('--env', str(run.environment))}",
        )  # fmt: skip
    inputs = read_legal_inputs(replace(selection, names=(environment,), strict=False))
    hosting_environment = inputs.environments()[0]
    experiments = inputs.list_experiments(hosting_environment)
    return PublishTarget(
        environment=hosting_environment,
        experiment=find_measured_experiment(hosting_environment, experiments, run, experiment),
    )


def require_server_kind(run_manifest: RunManifest, target: PublishTarget, *, is_simulation: bool) -> None:
    """Make sure that figures of simulated servers and of real ones never meet in one namespace.

    A run of which an older Tandem did not ask goes where real ones go, and that is said.

    Args:
        run_manifest: its manifest.
        target: where it is published to.
        is_simulation: whether the user says that an arm is simulated.

    Raises:
        InputError: the user says the contrary of the manifest.
    """
    if run_manifest.simulated and not is_simulation:
        simulated_namespace = names.simulation_namespace(target.environment)
        raise InputError(
            "an arm of this run is a simulated server", where="--simulated",
            change=f"add it: figures go to {simulated_namespace}",
        )  # fmt: skip
    if is_simulation and not run_manifest.simulated:
        problem = "no arm of this run is" if run_manifest.simulated is False else "this run does not say that an arm is"
        raise InputError(f"{problem} a simulated server", where="--simulated", change="drop it, or measure again")
    if run_manifest.simulated is None:
        _print_stderr(
            "note: nobody asked these servers whether they are simulated; their figures are published as real ones"
        )


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Keep runs and other publishes from the folder meanwhile.

    Raises:
        ExternalError: a run is writing to it, or another process publishes it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ExternalError(
                "a run is writing to it, or another process publishes it", where=str(folder),
                change="wait for its end; `tandem bench run --publish` publishes each round by itself",
            ) from None  # fmt: skip
        yield
    finally:
        os.close(descriptor)


def _build_destination(target: PublishTarget, run_manifest: RunManifest) -> RunDestination:
    from tandem.bench.manifest import run_id  # noqa: PLC0415 - the bench is loaded when it runs
    from tandem.publish.publisher import RunDestination  # noqa: PLC0415 - boto3

    return RunDestination(
        environment=target.environment.name,
        account=target.environment.account,
        experiment=target.experiment.name,
        variants=tuple(arm.name for arm in run_manifest.arms),
        run_id=run_id(run_manifest),
        bucket=names.bucket_name(target.environment),
        is_simulated=bool(run_manifest.simulated),
    )


def _publish_rounds(
    destination: RunDestination, folder: Path, clients: PublishClients, *, files: Iterable[str],
    end_s: float = float("inf"),
) -> PublishReport:  # fmt: skip
    from tandem.bench import datapoints  # noqa: PLC0415 - numpy
    from tandem.publish.publisher import RunPublisher  # noqa: PLC0415 - boto3

    publisher = RunPublisher(destination, folder, clients, end_s=end_s)
    rounds = (
        build_figures(points, folder, destination.experiment)
        for points in datapoints.read_rounds(folder, publisher.published_rounds)
    )
    return publisher.publish(rounds, [folder / name for name in files if (folder / name).is_file()])


def build_figures(points: RoundDatapoints, folder: Path, experiment: str) -> RoundFigures:
    """Return a round as it is published.

    Args:
        points: of the bench.
        folder: of the run.
        experiment: the dimension.
    """
    from tandem.bench.folder import RECORDS_FILE  # noqa: PLC0415 - the bench is loaded when it runs
    from tandem.publish.batch import RoundFigures, SeriesValues  # noqa: PLC0415 - numpy

    return RoundFigures(
        number=points.number,
        is_complete=points.is_complete,
        series=tuple(
            SeriesValues(
                metric=row.metric, dimensions=tuple(list_dimensions(experiment, row)), at_s=row.at_s, values=row.values
            )
            for row in points.rows
        ),
        records_file=folder / RECORDS_FILE,
        ranges=points.ranges,
    )


def _print_messages(report: PublishReport) -> None:
    for kind, sentences in (("note", report.notes), ("error", report.lost), ("error", report.left)):
        for sentence in sentences:
            _print_stderr(f"{kind}: {sentence}")


def _print_stderr(line: str) -> None:
    print(line, file=sys.stderr)


@dataclass(slots=True, kw_only=True)
class RoundPublisher:
    """Publishes each round of a run that is going on: what `tandem.bench` calls between rounds.

    Args:
        target: where to.
        folder: of the run.
        is_simulation: whether the user says that an arm is simulated.
    """

    target: PublishTarget
    folder: Path
    is_simulation: bool
    _clients: PublishClients | None = field(default=None, init=False)
    _report: PublishReport | None = field(default=None, init=False)
    _fault: Exception | None = field(default=None, init=False)
    _losses: list[str] = field(default_factory=list, init=False)

    def __call__(self, number: int, end_s: float) -> None:  # noqa: ARG002 - all rounds up to it are looked at
        """Publish what is recorded whole by now; at the end of the run store its files too.

        Raises:
            TandemError: AWS refused, or is out of reach; the next call goes on.
        """
        from tandem.bench import manifest  # noqa: PLC0415 - the bench is loaded when it runs
        from tandem.publish.clients import connect  # noqa: PLC0415 - boto3

        run_manifest = manifest.read_manifest(self.folder)
        try:
            self._clients = self._clients or connect(
                self.target.environment.region, connect_s=3.0, read_s=5.0, attempts=3
            )
            self._report = _publish_rounds(
                _build_destination(self.target, run_manifest), self.folder, self._clients, end_s=end_s,
                files=RUN_FILES if run_manifest.ended is not None else (),
            )  # fmt: skip
            self._losses += self._report.lost
            self._fault = None
        except Exception as fault:
            self._fault = fault
            raise

    def check(self, run_manifest: RunManifest) -> None:
        """Refuse servers of another kind than the user says, before anything is measured.

        Raises:
            InputError: they are.
        """
        require_server_kind(run_manifest, self.target, is_simulation=self.is_simulation)

    def finish(self) -> ExitCode:
        """Say what is not published after the run; 0 where all is, or nothing was there to be published."""
        if self._fault is not None:
            _print_stderr(f"error: not all of the run is published: {self._fault}")
            return ExitCode.EXTERNAL_FAILURE
        if self._report is None:
            return ExitCode.DONE
        self._report.lost = self._losses  # of all calls
        _print_messages(self._report)
        return ExitCode.DONE if self._report.is_whole else ExitCode.EXTERNAL_FAILURE


def build_publisher(
    selection: Selection, options: argparse.Namespace, run: MeasuredRun, folder: Path
) -> RoundPublisher:
    """Return what publishes a run that is about to begin, with --publish.

    Args:
        selection: the folders of declared files.
        options: `publish`, `env`, `experiment` and `simulated`.
        run: what is measured.
        folder: where it is written.

    Raises:
        SpecError: a declared file is refused.
        BenchError: the arms are no variants of an experiment that the environment hosts.
        InputError: no environment is named, or two.
    """
    environment = options.publish or options.env
    if environment is None:
        raise InputError(
            "no environment is named", where="--publish", change="name it: --publish ENV --experiment NAME"
        )
    if options.env not in {None, environment}:
        raise InputError(
            f"{environment} is another environment than that of --env, {options.env}", where="--publish",
            change="drop its value",
        )  # fmt: skip
    target = find_target(selection, environment, run, options.experiment)
    return RoundPublisher(target=target, folder=folder, is_simulation=options.simulated)
