"""World of a run's steps: specs, account, cluster, clock, and the run's journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from tandem.artifacts.store import ObjectStore
from tandem.artifacts.survey import SurveyRow
from tandem.bench.suites.suite import Suite
from tandem.declarations import names
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.errors import TandemError
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fleet_state import FleetState
from tandem.ops.stop_paths import StopPath
from tandem.run.bucket_suites import read_bucket_suite
from tandem.run.cluster import ClusterApi
from tandem.run.journal import RunJournal
from tandem.run.run_keys import lease_run, pair_run
from tandem.run.run_plan import LEASE_MARGIN_MINUTES, BucketGaps, RunPlanInputs
from tandem.run.run_values import (
    LeaseSpan,
    RunRequest,
    RunState,
    StepRecord,
    StepState,
    select_pair,
)

LEASE_MARGIN_S = 60 * LEASE_MARGIN_MINUTES


class RunEndError(Exception):
    """The run cannot go on: its fleet goes to zero, and the run ends in `state` for the reason.

    Args:
        reason: one sentence.
        state: `ended` if the world or the specs forbid the run, `failed` for an external fault,
            `void` if nothing may be concluded, `cancelled` if somebody cancelled it.
    """

    def __init__(self, reason: str, state: RunState = "ended") -> None:
        super().__init__(reason)
        self.reason = reason
        self.state = state


class LeaseEndError(RunEndError):
    """The next step does not fit the lease: the fleet goes to zero, the run waits for another."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "waiting")


@dataclass(frozen=True, kw_only=True)
class RunWorld:
    """One environment with everything that a run needs.

    Args:
        guard: the fleet's limits.
        clients: boto3's.
        cluster: the Kubernetes API.
        survey: returns the bucket's state of an experiment's needs.
        read_paths: returns the state of the stops of a fleet.
        now: the time, UTC.
        pause: waits for so many seconds.
        beat: writes the runner's beat if it is due; called while a step itself waits.
        log: takes a sentence.
        writer: this runner, by its pod's uid.
    """

    environment: Environment
    experiments: Mapping[str, Experiment]
    catalogue: Catalogue
    guard: GuardConfig
    clients: AwsClients
    cluster: ClusterApi
    survey: Callable[[Experiment], Sequence[SurveyRow]]
    read_paths: Callable[[FleetState], Sequence[StopPath]]
    now: Callable[[], datetime]
    pause: Callable[[float], None]
    beat: Callable[[], bool]
    log: Callable[[str], None]
    writer: str

    @property
    def store(self) -> ObjectStore:
        """The environment's bucket."""
        return ObjectStore(self.guard.bucket, self.clients.s3)

    def read_file_suites(self, experiment: Experiment, request: RunRequest) -> dict[str, Suite]:
        """Return the files of prompts that a run sends, by name; none where it does not measure.

        Raises:
            InputError: the bucket lacks a file, or it is not what the experiment states.
            ExternalError: S3 failed.
        """
        if not request.measures:
            return {}
        files = experiment.list_suite_files()
        return {suite_file.name: read_bucket_suite(self.store, suite_file) for suite_file in files}


@dataclass(frozen=True, kw_only=True)
class StepProgress:
    """State of a step after one look at the world.

    Args:
        state: of the step.
        note: one sentence for the timeline.
        result: values that later steps, or the next look at this one, need.
        attempts: Jobs or tries begun; None keeps the number.
    """

    state: StepState = "running"
    note: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    attempts: int | None = None


@dataclass(kw_only=True)
class StepWork:
    """One run at work: its world, its journal, its experiment.

    Args:
        pair: number of the pair that a sweep measures; 0 in an ordinary run and outside of pairs.
        name: of the step at which the engine looks, without the pair.
        result, attempts, jobs: of this step, from the journal.
    """

    world: RunWorld
    journal: RunJournal
    experiment: Experiment
    pair: int = 0
    name: str = ""
    started_at: datetime | None = None
    attempts: int = 0
    result: dict[str, Any] = field(default_factory=dict)
    jobs: tuple[str, ...] = ()

    def add_job(self, name: str) -> None:
        """Note a Job of this step, for whoever asks for the step's logs."""
        if name not in self.jobs:
            self.jobs = (*self.jobs, name)

    @property
    def run(self) -> str:
        """The run's id."""
        return self.journal.run.run

    @property
    def request(self) -> RunRequest:
        """The request that began the run."""
        return self.journal.run.request

    @property
    def leases(self) -> tuple[LeaseSpan, ...]:
        """The run's leases, the oldest first."""
        return self.journal.run.leases

    @property
    def namespace(self) -> str:
        """The experiment's namespace."""
        return names.experiment_namespace(self.experiment)

    @property
    def steps(self) -> dict[str, StepRecord]:
        """The steps of this pair, named without the pair; outside of pairs all of the run's."""
        if self.pair:
            return select_pair(self.journal.steps, self.pair)
        return self.journal.steps

    @property
    def results_run(self) -> str:
        """The run id of the results that the Jobs store."""
        return pair_run(self.run, self.pair)

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of all servers of the run's experiment, those of other pairs included."""
        declared = self.world.experiments.get(self.journal.run.experiment, self.experiment)
        return tuple(variant.name for variant in declared.all_variants())

    @cached_property
    def arms(self) -> tuple[str, ...]:
        """The names of the variants, the baseline first."""
        return tuple(arm.name for arm in self.plan_inputs.arms)

    @cached_property
    def plan_inputs(self) -> RunPlanInputs:
        """Inputs of this run's plan, without its files, as if nothing were missing.

        A resume makes new work.
        """
        world = self.world
        return RunPlanInputs(
            environment=world.environment,
            experiment=self.experiment,
            catalogue=world.catalogue,
            gaps=BucketGaps(),
            request=self.request,
        )

    def count_round_minutes(self) -> float:
        """Return how long a round takes by the plan; only a step that begins one asks the bucket.

        A look at any other step must not need a file: it may be the one that ends the nodes.

        Raises:
            InputError: the bucket lacks a file of prompts, or has other bytes of it.
            ExternalError: S3 failed.
        """
        suites = self.world.read_file_suites(self.experiment, self.request)
        return max(replace(self.plan_inputs, file_suites=suites).round_minutes)

    @property
    def lease_number(self) -> int:
        """Number of the run's lease, from 1; of the next one if the last is over."""
        return len(self.leases) + (not self.has_lease)

    @property
    def lease_name(self) -> str:
        """Name of the run's lease, or of the one that it would request first."""
        if self.has_lease:
            return self.leases[-1].name
        return lease_run(self.run, self.lease_number)

    @property
    def has_lease(self) -> bool:
        """Whether a lease of the run may have nodes."""
        return self.journal.run.has_lease

    def keep_running(self, note: str) -> StepProgress:
        """Return that the step goes on as it is."""
        return StepProgress(note=note, result=self.result)

    def require_seat(self) -> None:
        """Continue only if this runner may still act; called directly before a call of the guard.

        Raises:
            LostRunError: another runner is at work.
            ExternalError: S3 failed.
        """
        self.journal.file.require_seat()

    def restart_clock(self) -> None:
        """Count the step's time from the beginning of its phase, if its result has one."""
        if self.result.get("since"):
            since = datetime.fromisoformat(self.result["since"])
            self.started_at = max(since, self.started_at or since)  # not before this lease

    def count_elapsed_s(self) -> float:
        """Return how long the step, or its phase, has been at work."""
        return (self.world.now() - (self.started_at or self.world.now())).total_seconds()

    def count_lease_s(self) -> float | None:
        """Return the seconds to the lease's deadline; None without a lease."""
        if not self.has_lease:
            return None
        return (datetime.fromisoformat(self.leases[-1].deadline) - self.world.now()).total_seconds()

    def require_lease_s(self, needed_s: float, what: str) -> None:
        """Continue only if the lease lasts so long, plus its reserve for the way to zero.

        Raises:
            LeaseEndError: the lease does not.
        """
        left_s = self.count_lease_s()
        if left_s is not None and left_s < needed_s + LEASE_MARGIN_S:
            raise LeaseEndError(
                f"{left_s // 60:.0f} min of the lease are left,"
                f" {LEASE_MARGIN_MINUTES:.0f} are kept for the way to zero,"
                f" and {what} takes {needed_s // 60:.0f}"
            )


def describe_fault(fault: TandemError) -> str:
    """Return a fault in one sentence, with what to change."""
    place = f"{fault.where}: " if fault.where else ""
    return f"{place}{fault.problem}; {fault.change}"
