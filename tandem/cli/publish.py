"""`tandem bench publish DIR`, `bench run --publish`: figures to CloudWatch and S3.

Invariant: the command calls AWS only after folder, environment, experiment and arms are known to
fit; a run is of one experiment alone, whose variants its arms are; a run that was measured stays
measured whatever becomes of its publishing. boto3 is loaded when something is published.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tandem.bench.records.manifest import RunManifest, read_manifest, run_id
from tandem.cli.bench_flags import RunFlags
from tandem.cli.console import format_count, print_result
from tandem.cli.flags import EnvironmentName, Name, RunFolder
from tandem.cli.inputs import read_legal_inputs
from tandem.cli.selection import DEFAULTS, Selection
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.errors import ExitCode, ExternalError, InputError
from tandem.publish.clients import RETRY_ADVICE, PublishClients, connect
from tandem.publish.publisher import PublishReport, RunDestination
from tandem.run.publication import RUN_FILES, publish_rounds
from tandem.shell_command import quote_command

UNPUBLISHED = "not all of the run is published"

PublishTarget = tuple[Environment, Experiment]


def publish(
    folder: RunFolder,
    /,
    *,
    env: EnvironmentName,
    experiment: Name | None = None,
    simulated: bool = False,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Send figures to CloudWatch and records to S3; skip what is there.

    The exit code is that of an external failure if something is left for a later publish, or was
    given up now (reported once).

    Args:
        folder: folder of the run
        env: environment whose account gets them
        experiment: the experiment that was measured
        simulated: the servers are simulated: use a separate namespace

    Raises:
        SpecError: a declared file is refused.
        InputError: the folder holds no run, or another environment's.
        TandemError: the folder is of another kind of servers, or is written to; AWS refused, or is
            out of reach.
    """
    run_manifest = read_manifest(folder)
    if run_manifest.goodput_share is not None:
        change = "publish a run of declared loads; knee.json has this one's answer"
        raise InputError(
            "it searched a knee, which has no metric", where=str(folder), change=change
        )
    target = find_target(selection, env, run_manifest, experiment)
    require_server_kind(run_manifest, target[0], is_simulation=simulated)
    destination = _build_destination(target, run_manifest)
    with _lock_folder(folder):
        report = publish_rounds(destination, folder, connect(target[0].region), files=RUN_FILES)
    code = ExitCode.DONE if report.is_whole else ExitCode.EXTERNAL_FAILURE
    url = f"s3://{destination.bucket}/{destination.prefix}"
    counts = (len(report.rounds), report.sent, report.stored)
    rounds, requests, objects = map(format_count, counts, ("round", "request", "object"))
    text = f"{rounds} in {requests} to {destination.namespace}, {objects} to {url}"
    document = {
        "namespace": destination.namespace,
        "experiment": destination.experiment,
        "run": destination.run_id,
        "results": url,
        "rounds": report.rounds,
        "batches": report.sent,
        "objects": report.stored,
        "lost": report.lost,
        "left": report.left,
        "notes": report.notes,
    }
    print_result(document, [text], as_json=selection.as_json, code=code)
    _print_messages(report)
    return code


def find_target(
    selection: Selection, environment_name: str, run: RunManifest, experiment_name: str | None
) -> PublishTarget:
    """Return where a run is published to.

    Args:
        selection: the folders of declared files.
        environment_name: of the account.
        run: whose arms were measured, or will be.
        experiment_name: None for the run's own, or the only one.

    Raises:
        SpecError: a declared file is refused.
        InputError: none or several experiments fit, an arm is no variant of it, the run is
            another's, or the environment hosts no such experiment.
    """
    is_other_experiment = bool(run.environment) and experiment_name not in {None, run.experiment}
    if run.environment not in {None, environment_name} or is_other_experiment:
        raise InputError(
            f"the servers of {run.environment}/{run.experiment} were measured",
            where="--env, --experiment",
            change=f"publish it there: {quote_command('--env', str(run.environment))}",
        )
    inputs = read_legal_inputs(selection.narrow((environment_name,)))
    environment = inputs.environments()[0]
    arms = {arm.name for arm in run.arms}
    name = experiment_name or run.experiment
    experiments = inputs.list_experiments(environment)
    if name:
        experiments = [inputs.find_experiment(environment, name)]
    matches = [row for row in experiments if arms <= _name_variants(row)]
    if len(matches) != 1:
        texts = [f"{row.name}: {', '.join(sorted(_name_variants(row)))}" for row in experiments]
        count = f"{len(matches)} experiments of {environment_name}"
        raise InputError(
            f"the arms {', '.join(sorted(arms))} are variants of {count}, and must be of one"
            f" ({'; '.join(texts) or 'it hosts none'})",
            where="the run's arms",
            change="name the environment and, by --experiment NAME, what was measured",
        )
    return environment, matches[0]


def _name_variants(experiment: Experiment) -> set[str]:
    return {variant.name for variant in experiment.all_variants()}


def require_server_kind(
    run_manifest: RunManifest, environment: Environment, *, is_simulation: bool
) -> None:
    """Make sure that figures of simulated servers and of real ones never meet in one namespace.

    A run of LLMPerf whose server did not list its models goes where real ones go, and a note says
    so.

    Args:
        run_manifest: its manifest.
        environment: where it is published to.
        is_simulation: whether the user says that an arm is simulated.

    Raises:
        InputError: the user says the contrary of the manifest.
    """
    if run_manifest.simulated and not is_simulation:
        change = f"add it: figures go to {names.simulation_namespace(environment)}"
        raise InputError(
            "an arm of this run is a simulated server", where="--simulated", change=change
        )
    if is_simulation and not run_manifest.simulated:
        problem = "no arm of this run is a simulated server"
        raise InputError(problem, where="--simulated", change="drop it, or measure again")
    if run_manifest.simulated is None:
        note = (
            "a server did not list its models, so it may be simulated; its figures are published as"
            " real ones"
        )
        print(f"note: {note}", file=sys.stderr)


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Keep runs and other publishes from the folder meanwhile.

    Raises:
        ExternalError: a run is writing to it, or another process publishes it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        problem = "a run is writing to it, or another process publishes it"
        change = "wait for its end; `tandem bench run --publish` publishes each round by itself"
        raise ExternalError(problem, where=str(folder), change=change) from None
    finally:
        os.close(descriptor)


def _build_destination(target: PublishTarget, run_manifest: RunManifest) -> RunDestination:
    environment, experiment = target
    return RunDestination(
        environment=environment.name,
        account=environment.account,
        experiment=experiment.name,
        variants=tuple(arm.name for arm in run_manifest.arms),
        run_id=run_id(run_manifest),
        bucket=names.bucket_name(environment),
        is_simulated=bool(run_manifest.simulated),
    )


def _print_messages(report: PublishReport) -> None:
    messages = [f"note: {sentence}" for sentence in report.notes]
    messages += [f"error: {sentence}" for sentence in (*report.lost, *report.left)]
    for message in messages:
        print(message, file=sys.stderr)


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
    _report: PublishReport = field(default_factory=PublishReport, init=False)
    _losses: list[str] = field(default_factory=list, init=False)

    def __call__(self, number: int, end_s: float) -> None:  # noqa: ARG002 - all rounds up to it are looked at
        """Publish what is recorded whole by now; at the end of the run store its files too.

        Raises:
            TandemError: AWS refused, or is out of reach; the next call goes on.
        """
        self._report = PublishReport(
            left=[f"{UNPUBLISHED}: the last call was left alone; {RETRY_ADVICE}"]
        )
        try:
            run_manifest = read_manifest(self.folder)
            files = RUN_FILES if run_manifest.ended is not None else ()
            self._clients = self._clients or connect(
                self.target[0].region, connect_s=3.0, read_s=5.0, attempts=3
            )
            destination = _build_destination(self.target, run_manifest)
            self._report = publish_rounds(
                destination, self.folder, self._clients, end_s=end_s, files=files
            )
            self._losses += self._report.lost
        except Exception as fault:
            self._report = PublishReport(left=[f"{UNPUBLISHED}: {fault}"])
            raise

    def check(self, run_manifest: RunManifest) -> None:
        """Refuse servers of another kind than the user says, before anything is measured.

        Raises:
            InputError: they are.
        """
        require_server_kind(run_manifest, self.target[0], is_simulation=self.is_simulation)

    def finish(self) -> ExitCode:
        """Print what stays unpublished after the run; return 0 if nothing does."""
        self._report.lost = self._losses  # of all calls
        _print_messages(self._report)
        return ExitCode.DONE if self._report.is_whole else ExitCode.EXTERNAL_FAILURE


def build_publisher(
    selection: Selection, flags: RunFlags, run: RunManifest, folder: Path
) -> RoundPublisher:
    """Return what publishes a run that is about to begin, with --publish.

    Args:
        selection: the folders of declared files.
        flags: of the run.
        run: what is measured.
        folder: where it is written.

    Raises:
        SpecError: a declared file is refused.
        InputError: the arms are no variants of an experiment that the environment hosts; no
            environment is named, or two.
    """
    environment = (flags.publish or (None,))[0] or flags.env
    if environment is None:
        change = "name it: --publish ENV --experiment NAME"
        raise InputError("no environment is named", where="--publish", change=change)
    if flags.env not in {None, environment}:
        problem = f"{environment} is another environment than that of --env, {flags.env}"
        raise InputError(problem, where="--publish", change="drop its value")
    target = find_target(selection, environment, run, flags.experiment)
    return RoundPublisher(target=target, folder=folder, is_simulation=flags.simulated)
