"""The runner: one pod that takes requests from the bucket and looks at one run after the other.

Invariant: the bucket and the cluster hold all of its state, so it may be killed at any moment. Of
two runners the one that wrote `runner.json` first ends at its next beat. A fault of AWS or
Kubernetes ends only the look in which it occurs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from tandem.artifacts.inventory import read_inventory
from tandem.artifacts.needs import list_needs, merge_needs
from tandem.artifacts.store import open_store
from tandem.artifacts.survey import SurveyRow, survey_bucket
from tandem.declarations import names
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.experiment import Experiment
from tandem.declarations.faults import SpecError
from tandem.declarations.spec_digest import compute_spec_digest
from tandem.declarations.workspace import load_workspace
from tandem.errors import ExitCode, ExternalError, InputError
from tandem.guard.fleet_state import FleetState
from tandem.guard.lease import heartbeat_key
from tandem.guard.notify import notify_subscribers
from tandem.guard.values import CALL_ERRORS
from tandem.ops.account import create_guard_clients, create_session
from tandem.ops.guard_config import build_guard_config
from tandem.ops.stop_paths import StopPath, read_stop_paths
from tandem.run.cluster import KubernetesCluster
from tandem.run.engine import RunEngine
from tandem.run.fleet_steps import end_own_lease
from tandem.run.journal import LostRunError, ObjectFile, RunJournal, StoredValueError, list_runs
from tandem.run.leftovers import delete_run_jobs, remove_leftovers
from tandem.run.request_inbox import RequestInbox
from tandem.run.run_keys import RUNNER_KEY, run_record_key
from tandem.run.run_values import LeaseBeat, RunnerBeat, RunRecord
from tandem.run.run_world import RunWorld, StepWork
from tandem.run.runner_seat import SeatedCluster, require_seat

BEAT_SPAN = timedelta(seconds=60)
ABSENCE_LIMIT = timedelta(minutes=5)  # between two beats; then this runner was frozen
# between two looks; a rehearsal shortens this and every other pause
POLL_VARIABLE = "TANDEM_POLL_S"
POLL_S = 5.0


class Runner:
    """One runner at work.

    Args:
        world: of the environment; `build_world` sets its `beat` to that of this runner.
    """

    def __init__(self, world: RunWorld) -> None:
        check_seat = partial(require_seat, world.clients, world.guard, world.writer)
        self.world = world = replace(world, cluster=SeatedCluster(world.cluster, check_seat))
        self.file = ObjectFile(world.clients, world.guard, world.writer, check_seat)
        self.inbox = RequestInbox(world, self.file)
        self.engine: RunEngine | None = None
        self._beaten_at: datetime | None = None
        self._has_started = False
        self._ended_runs = set[str]()
        self._logged = set[str]()
        self._parked_experiments = set[str]()  # whose servers a run set to 0 at its end
        self._delayed_keys = set[str]()
        self._digests = {
            name: compute_spec_digest(world.environment, experiment, world.catalogue)
            for name, experiment in world.experiments.items()
        }

    def look(self) -> None:
        """Beat, take one open request, and take one look at the run at work.

        A folder full of requests thus delays no run; a request that cannot be taken now goes behind
        all others.

        Raises:
            LostRunError: another runner is at work; this one must end.
            ExternalError: AWS failed; the next look goes on.
        """
        if not self._has_started:
            # so that this runner's beat replaces the one before
            self.file.read(RUNNER_KEY, RunnerBeat)
            self._has_started = True
        is_beat = self.beat()
        if is_beat and self.engine is None:
            self._find_active_run()
        self._take_request()
        self._notice_freeze()
        if self.engine is not None and not self.engine.advance():
            self.engine = None
            self.beat(at_once=True)
        if is_beat:
            self._remove_leftovers()

    def _take_request(self) -> None:
        """Take the first open request, if there is one."""
        item = self.inbox.find_next(self._delayed_keys)
        if item is None:
            return
        self.beat(at_once=True)  # of two runners the later one takes the run
        try:
            journal = self.inbox.take(item, self.engine.work.journal if self.engine else None)
        except ExternalError as fault:  # a fault of one request delays nothing else
            self._delayed_keys.add(item.key)
            self._log_once(f"{item.key} is left to a later look: {fault}")
            return
        if journal is not None and self.engine is None:
            self._begin(journal)

    def beat(self, *, at_once: bool = False) -> bool:
        """Write each minute that the runner lives and uses its lease; return whether one was due.

        Raises:
            LostRunError: another runner wrote `runner.json`.
            ExternalError: S3 failed.
        """
        now = self.world.now()
        if self._beaten_at is not None and now - self._beaten_at < BEAT_SPAN and not at_once:
            return False
        work = self.engine.work if self.engine else None
        world = self.world
        beat = RunnerBeat(
            at=now.isoformat(),
            writer=world.writer,
            run=work.run if work else None,
            spec_digests=self._digests,
            step=self.engine.step if self.engine else "",
            note=self.engine.note if self.engine else "",
        )
        self.file.write(RUNNER_KEY, beat)
        if work and work.has_lease:
            key = heartbeat_key(work.leases[-1].name)
            self.file.read(key, LeaseBeat)
            with suppress(LostRunError):  # runner.json identifies another runner
                self.file.write(key, LeaseBeat(at=now.isoformat()))
        self._notice_freeze()
        self._beaten_at = now
        return True

    def _notice_freeze(self) -> None:
        """Let no step be late because this runner was frozen since its last beat."""
        if (
            self.engine
            and self._beaten_at is not None
            and self.world.now() - self._beaten_at > ABSENCE_LIMIT
        ):
            self.engine.watch_anew()

    def _remove_leftovers(self) -> None:
        """Remove what a displaced runner left of ended runs; the next beat tries again."""
        active = self.engine.work.run if self.engine else ""
        try:
            remove_leftovers(self.world, active, self._parked_experiments)
        except ExternalError as fault:
            self._log_once(f"what ended runs may have left is looked at later: {fault.problem}")

    def _find_active_run(self) -> None:
        """Continue a run that was left or whose answer was lost; prefer one that may have nodes."""
        journals = []
        for run in sorted(set(list_runs(self.file)) - self._ended_runs):
            try:
                record = self.file.read(run_record_key(run), RunRecord)
                if record is not None and record.state == "running":
                    journals.append(RunJournal.load(self.file, run))
                    continue
                if record is None:
                    continue
                if record.request.until != "stage":
                    self._parked_experiments.add(record.experiment)
                if record.state != "waiting":
                    self._ended_runs.add(run)
            except StoredValueError as fault:
                self._log_once(f"run {run} is passed over: {fault}")
        journals.sort(key=lambda journal: journal is None or not journal.run.has_lease)
        if journals and journals[0]:
            self._begin(journals[0])

    def _log_once(self, sentence: str) -> None:
        if sentence not in self._logged:
            self._logged.add(sentence)
            self.world.log(sentence)

    def _end_orphan(self, journal: RunJournal) -> None:
        """End a run of an experiment no longer declared: the engine sees only its lease and Jobs.

        Raises:
            ExternalError: AWS or Kubernetes did not answer; the next beat tries again.
        """
        world = self.world
        reason = f"the environment hosts no experiment {journal.run.experiment} any more"
        world.log(f"run {journal.run.run}: {reason}")
        # any one: the engine looks at none of its steps
        experiment = next(iter(world.experiments.values()))
        work = StepWork(world=world, journal=journal, experiment=experiment)
        while work.has_lease:
            end_own_lease(work)
        command = delete_run_jobs(world, journal.run.experiment, journal.run.run)
        if command:
            reason = (
                f"{reason}; if its namespace is still there, an admin deletes the run's Jobs:"
                f" {command}"
            )
        with suppress(*CALL_ERRORS):
            notify_subscribers(world.clients, world.guard, f"run {journal.run.run} ended", reason)
        journal.write_run(state="ended", reason=reason, ended_at=world.now().isoformat())

    def _begin(self, journal: RunJournal) -> None:
        experiment = self.world.experiments.get(journal.run.experiment)
        if experiment is None:
            self._end_orphan(journal)
            return
        self.engine = RunEngine(self.world, journal, experiment)
        self.world.log(f"run {journal.run.run} of {journal.run.who}")


def serve_requests(environment_name: str, specs_folder: Path) -> int:
    """Run until SIGTERM.

    Args:
        environment_name: environment of this cluster.
        specs_folder: holds `environments/` and `experiments/`, as in the manifests.

    Returns:
        0 after SIGTERM; 2 if the specs are refused; 3 if another runner took over, or Kubernetes
            cannot be reached.
    """
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    runners: list[Runner] = []
    try:
        world = build_world(environment_name, specs_folder, stop, lambda: runners[0].beat())  # noqa: PLW0108 - made below
    except (SpecError, InputError) as fault:
        print_log(str(fault))
        return int(ExitCode.BAD_INPUT)
    runners.append(Runner(world))
    while not stop.is_set():
        try:
            runners[0].look()
        except LostRunError as loss:
            print_log(f"another runner is at work ({loss}): this one ends")
            return int(ExitCode.EXTERNAL_FAILURE)
        except ExternalError as fault:
            print_log(f"the next look goes on: {fault}")
        stop.wait(_read_poll_s())
    print_log("SIGTERM: the next runner goes on")
    return int(ExitCode.DONE)


def build_world(
    environment_name: str, specs_folder: Path, stop: threading.Event, beat: Callable[[], bool]
) -> RunWorld:
    """Return the world of a runner in a cluster.

    Raises:
        SpecError: a spec is refused.
        ExternalError: the settings of this pod cannot be used.
    """
    workspace = load_workspace(
        specs_folder / "environments", specs_folder / "experiments", (environment_name,)
    )
    if workspace.faults:
        raise SpecError(list(workspace.faults))
    environment = workspace.environments[environment_name].record
    experiments = {name: file.record for name, file in workspace.experiments.items()}
    catalogue = load_catalogue()
    session = create_session()
    clients = create_guard_clients(environment, session)
    guard = build_guard_config(environment)
    store = open_store(names.bucket_name(environment))

    def survey(experiment: Experiment) -> tuple[SurveyRow, ...]:
        needs = merge_needs(list_needs(environment_name, [experiment], catalogue))
        return tuple(
            row for row in survey_bucket(store.bucket, needs, read_inventory(store)) if row.used_by
        )

    def read_paths(fleet: FleetState) -> tuple[StopPath, ...]:
        return read_stop_paths(clients, session, environment, guard, fleet)[0]

    return RunWorld(
        environment=environment,
        experiments=experiments,
        catalogue=catalogue,
        guard=guard,
        clients=clients,
        cluster=KubernetesCluster(),
        survey=survey,
        read_paths=read_paths,
        now=lambda: datetime.now(tz=UTC),
        pause=lambda seconds: _pause(stop, seconds),
        beat=beat,
        log=print_log,
        writer=os.environ.get("POD_UID") or f"process {os.getpid()} since {time.time():.0f}",
    )


def _read_poll_s() -> float:
    return float(os.environ.get(POLL_VARIABLE, POLL_S))


def _pause(stop: threading.Event, seconds: float) -> None:
    if stop.wait(seconds * _read_poll_s() / POLL_S):
        raise ExternalError("SIGTERM came while a step waited", change="the next runner goes on")


def print_log(sentence: str) -> None:
    """Write a sentence to the pod's log."""
    sys.stdout.write(f"{datetime.now(tz=UTC):%Y-%m-%d %H:%M:%S} {sentence}\n")
    sys.stdout.flush()
