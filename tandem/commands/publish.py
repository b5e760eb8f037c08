"""`tandem bench publish DIR` and `tandem bench run --publish`: what was measured, to CloudWatch and S3.

Invariant: nothing is asked of AWS before folder, environment, experiment and arms are known to fit; a run that was
measured stays measured whatever becomes of its publishing. boto3 is loaded when something is published.

Exit codes of `publish`: 0 all of it is published, now or before; 2 bad input; 3 AWS failed, or something is left for a
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

from tandem.commands.inputs import legal
from tandem.commands.measured import Ran, dimensions, measured_experiment
from tandem.commands.outcome import Exit, counted, print_json
from tandem.commands.selection import Selection
from tandem.shell_command import quote_command
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

if TYPE_CHECKING:
    from tandem.bench.fault import BenchError
    from tandem.bench.manifest import Manifest
    from tandem.bench.points import RoundPoints
    from tandem.publish import PublishError, Report, Round, Run, Services, Settings

LAST = ("summary.json", "manifest.json")  # what says that a run is there, after all that it names
FILES = ("counters.jsonl", "rounds.jsonl", "warmup.jsonl", *LAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a run is published to."""

    environment: Environment
    experiment: Experiment


def publish(chosen: Selection, options: argparse.Namespace) -> Exit:
    """Publish what of a run's folder is not published yet.

    Args:
        chosen: the folders of declared files.
        options: `folder`, `env`, `experiment` and `simulated`.

    Raises:
        SpecError: a declared file is refused.
        BenchError: the folder holds no run, another environment's, one of another kind of servers, or is written to.
    """
    from tandem.bench import manifest  # noqa: PLC0415 - the bench is loaded when it runs
    from tandem.publish import Limits, PublishError, Settings, connect  # noqa: PLC0415 - boto3

    run = manifest.read(options.folder)
    target = target_of(chosen, options.env, run, options.experiment)
    require_server_kind(run, target, is_simulated=options.simulated)
    with _unwritten(options.folder):
        try:
            where = _where(target, options.folder, run)
            services = connect(target.environment.region, Limits())
            report = _published(where, options.folder, services, Settings(), tell=_say)
        except PublishError as fault:
            return _failed(fault, chosen)
    return _told(where, report, chosen)


def target_of(chosen: Selection, environment: str, run: Ran, experiment: str | None) -> Target:
    """Return where a run is published to.

    Args:
        chosen: the folders of declared files.
        environment: its name.
        run: whose arms were measured, or will be.
        experiment: its name; None for the run's own, or the only one.

    Raises:
        SpecError: a declared file is refused.
        BenchError: the environment hosts no such experiment, or the run is another's.
    """
    if run.environment not in {None, environment} or (run.environment and experiment not in {None, run.experiment}):
        raise refused(
            f"the servers of {run.environment}/{run.experiment} were measured", "--env, --experiment",
            f"publish it there: {quote_command('--env', str(run.environment))}",
        )  # fmt: skip
    inputs = legal(replace(chosen, names=(environment,), strict=False))
    found = inputs.environments()[0]
    return Target(environment=found, experiment=measured_experiment(found, inputs.hosted(found), run, experiment))


def require_server_kind(run: Manifest, target: Target, *, is_simulated: bool) -> None:
    """Make sure that figures of simulated servers and of real ones never meet in one namespace.

    A run of which an older Tandem did not ask goes where real ones go, and that is said.

    Args:
        run: its manifest.
        target: where it is published to.
        is_simulated: whether the user says that an arm is simulated.

    Raises:
        BenchError: the user says the contrary of the manifest.
    """
    apart = names.simulated_namespace(target.environment)
    if run.simulated and not is_simulated:
        raise refused("an arm of this run is a simulated server", "--simulated", f"add it: figures go to {apart}")
    if is_simulated and not run.simulated:
        problem = "no arm of this run is" if run.simulated is False else "this run does not say that an arm is"
        raise refused(f"{problem} a simulated server", "--simulated", "drop it, or measure again")
    if run.simulated is None:
        _say("note: nobody asked these servers whether they are simulated; their figures are published as real ones")


def refused(problem: str, where: str, change: str) -> BenchError:
    """Return a refusal of flags."""
    from tandem.bench.fault import BenchError  # noqa: PLC0415 - the bench is loaded when it runs

    return BenchError(problem, where=where, change=change)


@contextlib.contextmanager
def _unwritten(folder: Path) -> Iterator[None]:
    """Keep runs from writing to the folder meanwhile; who publishes holds the journal besides.

    Raises:
        BenchError: a run is writing to it.
    """
    held = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            from tandem.bench.fault import WorldError  # noqa: PLC0415 - the bench is loaded when it runs

            raise WorldError(
                "a run is writing to it, so its last round is not whole", where=str(folder),
                change="wait for its end; `tandem bench run --publish` publishes each round by itself",
            ) from None  # fmt: skip
        yield
    finally:
        os.close(held)


def _where(target: Target, folder: Path, run: Manifest) -> Run:
    from tandem.bench.manifest import run_id  # noqa: PLC0415 - the bench is loaded when it runs
    from tandem.publish import Run  # noqa: PLC0415 - boto3

    environment, experiment = target.environment, target.experiment
    return Run(
        environment=environment.name, account=environment.account, region=environment.region,
        experiment=experiment.name, variants=tuple(arm.name for arm in run.arms), run_id=run_id(run),
        bucket=names.bucket(environment), simulated=bool(run.simulated),
        command=quote_command("tandem", "bench", "publish", str(folder), "--env", environment.name,
                              "--experiment", experiment.name, *["--simulated"] * bool(run.simulated)),
    )  # fmt: skip


def _published(  # noqa: PLR0913 - what to publish, where to, and how long
    where: Run, folder: Path, services: Services, settings: Settings, *, until_s: float = float("inf"),
    files: Sequence[str] = FILES, tell: Callable[[str], None] = lambda _: None,
) -> Report:  # fmt: skip
    from tandem.bench import points  # noqa: PLC0415 - numpy
    from tandem.publish import Publisher, publish  # noqa: PLC0415 - boto3

    def rounds(without: frozenset[int]) -> Iterable[Round]:
        return (_round(one, folder, where.experiment) for one in points.rounds(folder, without))

    there = [folder / name for name in files if (folder / name).is_file()]
    with Publisher(where, folder, services, settings=settings, tell=tell) as publisher:
        publisher.until_s = until_s
        return publish(publisher, rounds, there)


def _round(one: RoundPoints, folder: Path, experiment: str) -> Round:
    """Return a round as it is published."""
    from tandem.bench.folder import RECORDS  # noqa: PLC0415 - the bench is loaded when it runs
    from tandem.publish import Datum, Round, Slice  # noqa: PLC0415 - boto3

    return Round(
        number=one.number,
        complete=one.complete,
        data=tuple(
            Datum(metric=row.metric, dimensions=tuple(dimensions(experiment, row)), at_s=row.at_s, values=row.values)
            for row in one.rows
        ),
        records=tuple(Slice(path=folder / RECORDS, first=first, end=end) for first, end in one.ranges),
    )


def _failed(fault: PublishError, chosen: Selection) -> Exit:
    if chosen.as_json:
        said = {"problem": fault.problem, "where": fault.where, "change": fault.change}
        print_json({"fault": said, "exit_code": fault.code})
    _say(f"error: {fault}")
    return Exit(fault.code)


def _told(where: Run, report: Report, chosen: Selection) -> Exit:
    code = Exit.DONE if report.whole else Exit.WORLD_FAILED
    if chosen.as_json:
        print_json({
            "namespace": where.namespace, "experiment": where.experiment, "run": where.run_id,
            "results": f"s3://{where.bucket}/{where.prefix}", "rounds": report.rounds, "batches": report.sent,
            "objects": report.stored, "lost": report.lost, "left": report.left, "notes": report.notes,
            "exit_code": int(code),
        })  # fmt: skip
    else:
        print(f"{counted(len(report.rounds), 'round')} in {counted(report.sent, 'request')} to {where.namespace}, "
              f"{counted(report.stored, 'object')} to s3://{where.bucket}/{where.prefix}")  # fmt: skip
    _say_all(report)
    return code


def _say_all(report: Report) -> None:
    for kind, sentences in (("note", report.notes), ("error", report.lost), ("error", report.left)):
        for sentence in sentences:
            _say(f"{kind}: {sentence}")


def _say(line: str) -> None:
    print(line, file=sys.stderr)


@dataclass(slots=True, kw_only=True)
class Publishing:
    """Publishes each round of a run that is going on: what `tandem.bench` calls between rounds.

    Args:
        target: where to.
        folder: of the run.
        simulated: whether the user says that an arm is simulated.
    """

    target: Target
    folder: Path
    simulated: bool = False
    _services: Services | None = field(default=None, init=False)
    _report: Report | None = field(default=None, init=False)
    _fault: Exception | None = field(default=None, init=False)
    _lost: list[str] = field(default_factory=list, init=False)

    def __call__(self, number: int, ends_s: float) -> None:  # noqa: ARG002 - all rounds up to it are looked at
        """Publish what is recorded whole by now; at the end of the run wait for what is in doubt, and store its files.

        Raises:
            PublishError: AWS refused, or is out of reach; the next call goes on.
        """
        from tandem.bench import manifest  # noqa: PLC0415 - the bench is loaded when it runs
        from tandem.publish import Limits, Retries, Settings, connect  # noqa: PLC0415 - boto3

        run = manifest.read(self.folder)
        last, limits = run.ended is not None, Limits(connect_s=3.0, read_s=5.0, attempts=3)
        brief = Settings(retries=Retries(tries=3, first_s=0.2, most_s=1.0), patience_s=0.0, glance_s=0.0)
        try:
            self._services = self._services or connect(self.target.environment.region, limits)
            where = _where(self.target, self.folder, run)
            left_s = Settings(patience_s=ends_s - time.monotonic())
            self._report = _published(
                where, self.folder, self._services, left_s if last else brief, until_s=ends_s,
                files=FILES if last else (),
            )  # fmt: skip
            self._lost += self._report.lost
            self._fault = None
        except Exception as fault:
            self._fault = fault
            raise

    def check(self, run: Manifest) -> None:
        """Refuse servers of another kind than the user says, before anything is measured.

        Raises:
            BenchError: they are.
        """
        require_server_kind(run, self.target, is_simulated=self.simulated)

    def ended(self) -> Exit:
        """Say what is not published after the run; 0 where all is, or nothing was there to be published."""
        if self._fault is not None:
            _say(f"error: not all of the run is published: {self._fault}")
            return Exit.WORLD_FAILED
        if self._report is None:
            return Exit.DONE
        self._report.lost = self._lost  # of all calls
        _say_all(self._report)
        return Exit.DONE if self._report.whole else Exit.WORLD_FAILED


def publishing(chosen: Selection, options: argparse.Namespace, run: Ran, folder: Path) -> Publishing:
    """Return what publishes a run that is about to begin, with --publish.

    Args:
        chosen: the folders of declared files.
        options: `publish`, `env`, `experiment` and `simulated`.
        run: what is measured.
        folder: where it is written.

    Raises:
        SpecError: a declared file is refused.
        BenchError: no environment is named, or the arms are no variants of an experiment that it hosts.
    """
    environment = options.publish or options.env
    if environment is None:
        raise refused("no environment is named", "--publish", "name it: --publish ENV --experiment NAME")
    if options.env not in {None, environment}:
        raise refused(
            f"{environment} is another environment than that of --env, {options.env}", "--publish", "drop its value"
        )
    target = target_of(chosen, environment, run, options.experiment)
    return Publishing(target=target, folder=folder, simulated=options.simulated)
