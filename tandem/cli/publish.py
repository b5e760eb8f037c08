"""`tandem bench publish DIR` and `tandem bench run --publish`: what was measured, to CloudWatch and S3.

Invariant: nothing is asked of AWS before folder, environment, experiment and arms are known to fit; a run that was
measured stays measured whatever becomes of its publishing. boto3 is loaded when something is published.

Exit codes of `publish_folder`: 0 all of it is published, now or before; 2 bad input; 3 AWS failed, or something is
left for a
later publish, or was given up now (which is told once).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.cli.experiment_match import MeasuredRun, find_measured_experiment, list_dimensions
from tandem.cli.inputs import read_legal_inputs
from tandem.cli.outcome import ExitCode, format_count, print_json
from tandem.cli.selection import Selection
from tandem.shell_command import quote_command
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

if TYPE_CHECKING:
    from tandem.bench.datapoints import RoundDatapoints
    from tandem.bench.fault import BenchError
    from tandem.bench.manifest import RunManifest
    from tandem.publish import PublishError, Report, Round, Run, Services, Settings

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
        BenchError: the folder holds no run, another environment's, one of another kind of servers, or is written to.
    """
    from tandem.bench import manifest  # noqa: PLC0415 - the bench is loaded when it runs
    from tandem.publish import Limits, PublishError, Settings, connect  # noqa: PLC0415 - boto3

    run_manifest = manifest.read_manifest(options.folder)
    target = find_target(selection, options.env, run_manifest, options.experiment)
    require_server_kind(run_manifest, target, is_simulation=options.simulated)
    with _lock_folder(options.folder):
        try:
            destination = _build_destination(target, options.folder, run_manifest)
            services = connect(target.environment.region, Limits())
            report = _publish_rounds(destination, options.folder, services, Settings(), tell=_print_stderr)
        except PublishError as fault:
            return _report_failure(fault, selection)
    return _report_result(destination, report, selection)


def find_target(selection: Selection, environment: str, run: MeasuredRun, experiment: str | None) -> PublishTarget:
    """Return where a run is published to.

    Args:
        selection: the folders of declared files.
        environment: its name.
        run: whose arms were measured, or will be.
        experiment: its name; None for the run's own, or the only one.

    Raises:
        SpecError: a declared file is refused.
        BenchError: the environment hosts no such experiment, or the run is another's.
    """
    if run.environment not in {None, environment} or (run.environment and experiment not in {None, run.experiment}):
        raise build_flag_error(
            f"the servers of {run.environment}/{run.experiment} were measured", "--env, --experiment",
            f"publish it there: {quote_command('--env', str(run.environment))}",
        )  # fmt: skip
    inputs = read_legal_inputs(replace(selection, names=(environment,), strict=False))
    hosting_environment = inputs.environments()[0]
    return PublishTarget(
        environment=hosting_environment,
        experiment=find_measured_experiment(
            hosting_environment, inputs.list_experiments(hosting_environment), run, experiment
        ),
    )


def require_server_kind(run_manifest: RunManifest, target: PublishTarget, *, is_simulation: bool) -> None:
    """Make sure that figures of simulated servers and of real ones never meet in one namespace.

    A run of which an older Tandem did not ask goes where real ones go, and that is said.

    Args:
        run_manifest: its manifest.
        target: where it is published to.
        is_simulation: whether the user says that an arm is simulated.

    Raises:
        BenchError: the user says the contrary of the manifest.
    """
    simulated_namespace = names.simulation_namespace(target.environment)
    if run_manifest.simulated and not is_simulation:
        raise build_flag_error(
            "an arm of this run is a simulated server", "--simulated", f"add it: figures go to {simulated_namespace}"
        )
    if is_simulation and not run_manifest.simulated:
        problem = "no arm of this run is" if run_manifest.simulated is False else "this run does not say that an arm is"
        raise build_flag_error(f"{problem} a simulated server", "--simulated", "drop it, or measure again")
    if run_manifest.simulated is None:
        _print_stderr(
            "note: nobody asked these servers whether they are simulated; their figures are published as real ones"
        )


def build_flag_error(problem: str, location: str, change: str) -> BenchError:
    """Return a refusal of flags."""
    from tandem.bench.fault import BenchError  # noqa: PLC0415 - the bench is loaded when it runs

    return BenchError(problem, where=location, change=change)


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Keep runs from writing to the folder meanwhile; who publishes holds the journal besides.

    Raises:
        BenchError: a run is writing to it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            from tandem.bench.fault import ExternalBenchError  # noqa: PLC0415 - the bench is loaded when it runs

            raise ExternalBenchError(
                "a run is writing to it, so its last round is not whole", where=str(folder),
                change="wait for its end; `tandem bench run --publish` publishes each round by itself",
            ) from None  # fmt: skip
        yield
    finally:
        os.close(descriptor)


def _build_destination(target: PublishTarget, folder: Path, run_manifest: RunManifest) -> Run:
    from tandem.bench.manifest import run_id  # noqa: PLC0415 - the bench is loaded when it runs
    from tandem.publish import Run  # noqa: PLC0415 - boto3

    environment, experiment = target.environment, target.experiment
    return Run(
        environment=environment.name, account=environment.account, region=environment.region,
        experiment=experiment.name, variants=tuple(arm.name for arm in run_manifest.arms), run_id=run_id(run_manifest),
        bucket=names.bucket_name(environment), simulated=bool(run_manifest.simulated),
        command=quote_command("tandem", "bench", "publish", str(folder), "--env", environment.name,
                              "--experiment", experiment.name, *["--simulated"] * bool(run_manifest.simulated)),
    )  # fmt: skip


def _publish_rounds(  # noqa: PLR0913 - what to publish, where to, and how long
    destination: Run, folder: Path, services: Services, settings: Settings, *, until_s: float = float("inf"),
    files: Sequence[str] = RUN_FILES, tell: Callable[[str], None] = lambda _: None,
) -> Report:  # fmt: skip
    from tandem.bench import datapoints  # noqa: PLC0415 - numpy
    from tandem.publish import Publisher, publish  # noqa: PLC0415 - boto3

    def list_rounds(skip_numbers: frozenset[int]) -> Iterable[Round]:
        return (
            _build_round(round_points, folder, destination.experiment)
            for round_points in datapoints.read_rounds(folder, skip_numbers)
        )

    run_files = [folder / name for name in files if (folder / name).is_file()]
    with Publisher(destination, folder, services, settings=settings, tell=tell) as publisher:
        publisher.until_s = until_s
        return publish(publisher, list_rounds, run_files)


def _build_round(round_points: RoundDatapoints, folder: Path, experiment: str) -> Round:
    """Return a round as it is published."""
    from tandem.bench.folder import RECORDS_FILE  # noqa: PLC0415 - the bench is loaded when it runs
    from tandem.publish import Datum, Round, Slice  # noqa: PLC0415 - boto3

    return Round(
        number=round_points.number,
        complete=round_points.is_complete,
        data=tuple(
            Datum(
                metric=row.metric, dimensions=tuple(list_dimensions(experiment, row)), at_s=row.at_s, values=row.values
            )
            for row in round_points.rows
        ),
        records=tuple(Slice(path=folder / RECORDS_FILE, first=first, end=end) for first, end in round_points.ranges),
    )


def _report_failure(fault: PublishError, selection: Selection) -> ExitCode:
    if selection.as_json:
        fields = {"problem": fault.problem, "where": fault.where, "change": fault.change}
        print_json({"fault": fields, "exit_code": fault.code})
    _print_stderr(f"error: {fault}")
    return ExitCode(fault.code)


def _report_result(destination: Run, report: Report, selection: Selection) -> ExitCode:
    code = ExitCode.DONE if report.whole else ExitCode.EXTERNAL_FAILURE
    if selection.as_json:
        print_json(
            {
                "namespace": destination.namespace,
                "experiment": destination.experiment,
                "run": destination.run_id,
                "results": f"s3://{destination.bucket}/{destination.prefix}",
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
            f"{destination.namespace}, "
            f"{format_count(report.stored, 'object')} to s3://{destination.bucket}/{destination.prefix}"
        )
    _print_messages(report)
    return code


def _print_messages(report: Report) -> None:
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
    is_simulation: bool = False
    _services: Services | None = field(default=None, init=False)
    _report: Report | None = field(default=None, init=False)
    _fault: Exception | None = field(default=None, init=False)
    _losses: list[str] = field(default_factory=list, init=False)

    def __call__(self, number: int, ends_s: float) -> None:  # noqa: ARG002 - all rounds up to it are looked at
        """Publish what is recorded whole by now; at the end of the run wait for what is in doubt, and store its files.

        Raises:
            PublishError: AWS refused, or is out of reach; the next call goes on.
        """
        from tandem.bench import manifest  # noqa: PLC0415 - the bench is loaded when it runs
        from tandem.publish import Limits, Retries, Settings, connect  # noqa: PLC0415 - boto3

        run_manifest = manifest.read_manifest(self.folder)
        is_last, limits = run_manifest.ended is not None, Limits(connect_s=3.0, read_s=5.0, attempts=3)
        brief_settings = Settings(retries=Retries(tries=3, first_s=0.2, most_s=1.0), patience_s=0.0, glance_s=0.0)
        try:
            self._services = self._services or connect(self.target.environment.region, limits)
            destination = _build_destination(self.target, self.folder, run_manifest)
            final_settings = Settings(patience_s=ends_s - time.monotonic())
            self._report = _publish_rounds(
                destination, self.folder, self._services, final_settings if is_last else brief_settings, until_s=ends_s,
                files=RUN_FILES if is_last else (),
            )  # fmt: skip
            self._losses += self._report.lost
            self._fault = None
        except Exception as fault:
            self._fault = fault
            raise

    def check(self, run_manifest: RunManifest) -> None:
        """Refuse servers of another kind than the user says, before anything is measured.

        Raises:
            BenchError: they are.
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
        return ExitCode.DONE if self._report.whole else ExitCode.EXTERNAL_FAILURE


def build_publisher(
    selection: Selection, options: argparse.Namespace, run: MeasuredRun, folder: Path
) -> RoundPublisher:
    """Return what publishes a run that is about to begin, with --publish.

    Args:
        selection: the folders of declared files.
        options: `publish_folder`, `env`, `experiment` and `simulated`.
        run: what is measured.
        folder: where it is written.

    Raises:
        SpecError: a declared file is refused.
        BenchError: no environment is named, or the arms are no variants of an experiment that it hosts.
    """
    environment = options.publish or options.env
    if environment is None:
        raise build_flag_error("no environment is named", "--publish", "name it: --publish ENV --experiment NAME")
    if options.env not in {None, environment}:
        raise build_flag_error(
            f"{environment} is another environment than that of --env, {options.env}", "--publish", "drop its value"
        )
    target = find_target(selection, environment, run, options.experiment)
    return RoundPublisher(target=target, folder=folder, is_simulation=options.simulated)
