"""The start: the only way to raise a fleet, and only with a lease and an armed stop.

Invariant: standard library and boto3 only. If a start ends at any step, each instance has a stop
that will end it. The lease and the one-shot stop exist before the raise, and a stop that came
meanwhile has the last word. However long its machine sleeps, a start raises, deletes and undoes
only under its own lease (tandem/guard/ownership.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from tandem.aws.faults import error_code
from tandem.errors import ExternalError, InputError, TandemError
from tandem.guard import lease as leases
from tandem.guard.apply import scale_to_zero
from tandem.guard.bucket import write_object
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fence import FENCE_KEY, Fence, change_fence
from tandem.guard.fleet_state import FleetState
from tandem.guard.lease import Lease, LeasePointer, lease_key
from tandem.guard.notify import notify_subscribers
from tandem.guard.observe import observe_fleet, read_label_change
from tandem.guard.ownership import LeaseOwner, call_if_allowed
from tandem.guard.scaling_groups import LAUNCH_PROCESS
from tandem.guard.schedules import delete_unreferenced_schedule
from tandem.guard.start_checks import (
    LATE_START_ADVICE,
    MOMENT_FORMAT,
    RETRY_ADVICE,
    build_refusal,
    require_launch_process,
    require_no_foreign_schedules,
    require_no_other_lease,
    require_node_group,
    require_window,
)
from tandem.guard.values import CALL_ERRORS, convert_call_errors, describe_error
from tandem.shell_command import quote_command

MIN_HOURS = 0.25  # a shorter lease could end before its nodes run
# The service's ARN for a call without a Lambda (EventBridge Scheduler user guide, "Using universal
# targets").
SCHEDULE_TARGET_ARN = "arn:aws:scheduler:::aws-sdk:eks:updateNodegroupConfig"
# Scheduler retries for so long; a later stop could meet the fleet of another run.
RETRY_POLICY = {"MaximumEventAgeInSeconds": 3600, "MaximumRetryAttempts": 100}


@dataclass(frozen=True, kw_only=True)
class RaiseRequest:
    """Request of a start.

    Args:
        run: its name, unique in the bucket; letters, digits, `-`, `_`, `.`, at most 59.
        hours: from the start to the deadline.
        nodes: at most the node group's limit.
        node_labels: node labels, as names.raise_label and names.compile_label give them; those of
            another run are removed.
        who: a person's ARN, or the runner.
        beats: whether the run will write `runs/<run>/heartbeat.json`.
        unarmed_paths: unarmed paths that the person accepts; people are notified of them.
    """

    run: str
    hours: float
    nodes: int
    experiment: str | None
    node_labels: Mapping[str, str]
    who: str
    beats: bool = False
    unarmed_paths: tuple[str, ...] = ()

    def build_lease(self, config: GuardConfig, now: datetime) -> Lease:
        """Return the lease for the request; this calls no service.

        Raises:
            InputError: the request allows no lease.
        """
        if not leases.RUN_NAME_PATTERN.fullmatch(self.run):
            raise InputError(
                f"{self.run!r} names no run", change="use 1 to 59 letters, digits, '-', '_' and '.'"
            )
        where = f"environment {config.environment}"
        if not MIN_HOURS <= self.hours <= config.max_hours:
            advice = f"ask for {MIN_HOURS:g} to {config.max_hours:g} (guard.max_hours)"
            raise InputError(f"{self.hours:g} hours are asked for", where=where, change=advice)
        if not 1 <= self.nodes <= config.nodes:
            advice = f"ask for 1 to {config.nodes} (capacity.nodes), or raise it and deploy Fleet"
            raise InputError(f"{self.nodes} nodes are asked for", where=where, change=advice)
        return Lease(
            run=self.run,
            who=self.who,
            experiment=self.experiment,
            nodes=self.nodes,
            node_label=dict(self.node_labels),
            created=now,
            deadline=(now + timedelta(hours=self.hours)).replace(microsecond=0),
            beats=self.beats,
            schedule=f"{leases.STOP_PREFIX}{self.run}",
            unarmed=self.unarmed_paths,
        )


@dataclass(frozen=True, kw_only=True)
class RaiseReport:
    """A fleet that may run until its lease's deadline.

    Args:
        was_present: whether the same run had raised the fleet before.
        schedule_arn: of the one-shot stop, as Scheduler reads it back.
    """

    lease: Lease
    was_present: bool
    schedule_arn: str


def check_start(
    clients: AwsClients, config: GuardConfig, request: RaiseRequest, now: datetime
) -> FleetState:
    """Look at the fleet as a start does before it writes anything; `raise_fleet` looks again.

    Raises:
        InputError: the request, a fence, another lease, a window or the node group forbids a start.
        ExternalError: AWS did not answer.
    """
    fleet_start = _FleetStart(clients, config, request.build_lease(config, now), now)
    fleet_start.check_fleet()
    return fleet_start.fleet


def raise_fleet(
    clients: AwsClients, config: GuardConfig, request: RaiseRequest, now: datetime
) -> RaiseReport:
    """Raise the fleet for a run; a second start of the same run gets the same lease.

    Raises:
        InputError: the request, a fence, another lease, a window or the node group forbids the
            raise; nothing was raised.
        ExternalError: AWS failed; a possible raise was undone, or its stop is armed.
    """
    fleet_start = _FleetStart(clients, config, request.build_lease(config, now), now)
    fleet_start.check_fleet()
    require_launch_process(clients, config, fleet_start.fleet)
    require_no_foreign_schedules(clients, config, fleet_start.lease)
    fleet_start.take_lease()
    try:
        schedule_arn = fleet_start.arm_stop()
        fleet_start.notify_unarmed_paths()
        fleet_start.resume_launches()
    except TandemError:
        fleet_start.give_up_lease()
        raise
    try:
        fleet = fleet_start.fleet  # an earlier start of this run may have succeeded
        was_present = fleet.lease is not None and fleet.desired_size == fleet_start.lease.nodes
        if not was_present:
            fleet_start.raise_nodes()
        fleet_start.require_no_late_stop()
        fleet_start.remove_stray_labels()
    except InputError:
        fleet_start.delete_unused_schedule()
        raise
    return RaiseReport(lease=fleet_start.lease, was_present=was_present, schedule_arn=schedule_arn)


class _FleetStart:
    """One start at work."""

    def __init__(
        self, clients: AwsClients, config: GuardConfig, lease: Lease, now: datetime
    ) -> None:
        self.clients = clients
        self.config = config
        self.now = now
        self.lease = lease
        self.requested_lease = lease
        self.pointer = LeasePointer()
        self.fleet = FleetState(now=now)
        self.start_s = clients.wall_s()
        # whether this start made the schedule, not an earlier one of the same run
        self.has_new_schedule = False
        self.may_have_nodes = False  # whether this start may have caused nodes
        # of the lease, once it is taken
        self.owner = LeaseOwner(clients, config, self.pointer, self.lease)
        self.status_command = f"tandem status --env {config.environment}"
        self.stop_command = f"tandem stop --env {config.environment}"
        self.retry_advice = f"try again with the same run (--run {quote_command(lease.run)})"

    def _refuse(self, problem: str, change: str, where: str = "") -> InputError:
        return build_refusal(self.config, problem, change, where)

    # may it

    def check_fleet(self) -> None:
        """Look at the fleet, and refuse the start unless the fleet is free, ours and available."""
        self.fleet = observe_fleet(self.clients, self.config, self.now)
        self.fleet.require_known(
            "fence",
            "lease",
            "node group",
            "instances",
            where=self.config.environment,
            consequence="nothing is raised",
            change="allow it to this identity where it is denied, else try again",
        )
        fence = self.fleet.fence
        if fence is not None and fence.is_closed:
            problem = f"fenced by {fence.who} at {fence.at:{MOMENT_FORMAT}} UTC: {fence.why}"
            release_command = f"tandem stop --release --env {self.config.environment}"
            advice = f"{self.status_command}; when the reason is gone, {release_command}"
            raise self._refuse(problem, advice, self.config.url(FENCE_KEY))
        self.pointer = self.fleet.pointer or self.pointer  # as it was when the lease was read
        # the first deadline stays where an earlier start of the same run did not finish
        self.lease = require_no_other_lease(self.config, self.fleet, self.requested_lease)
        require_window(self.config, self.fleet, self.lease.deadline)
        require_node_group(self.config, self.fleet, has_lease=self.fleet.lease is not None)
        if self.fleet.max_size < self.lease.nodes:
            problem = f"at most {self.fleet.max_size} nodes; {self.lease.nodes} are asked for"
            raise self._refuse(problem, "capacity.nodes has changed: deploy the Fleet stack")

    # lease and stop

    def take_lease(self) -> None:
        """Write the lease, then the pointer, which decides between two starts of one run."""
        url = self.config.url(lease_key(self.lease.run))
        with convert_call_errors(
            "writing the lease", url, f"{self.retry_advice}; nothing was raised"
        ):
            if self.fleet.lease is None:
                self.lease = leases.write_lease(
                    self.clients, self.config, self.lease
                ) or self._adopt_lease(url)
            elif self.requested_lease.unarmed != self.lease.unarmed:
                new_lease = replace(self.lease, unarmed=self.requested_lease.unarmed)
                self.lease = leases.write_lease(self.clients, self.config, new_lease) or self.lease
            document = {"run": self.lease.run}
            etag = write_object(
                self.clients, self.config, leases.POINTER_KEY, document, etag=self.pointer.etag
            )
        if etag is None:
            where = self.config.url(leases.POINTER_KEY)
            raise self._refuse("another start or stop came first", self.status_command, where)
        self.pointer = LeasePointer(run=self.lease.run, etag=etag)
        self.owner = LeaseOwner(self.clients, self.config, self.pointer, self.lease)

    def _adopt_lease(self, url: str) -> Lease:
        """Adopt the lease of an earlier start of this run that died before the pointer."""
        pointer = LeasePointer(run=self.lease.run)
        lease, fault = leases.read_lease(self.clients, self.config, pointer)
        expected_lease = lease and replace(
            lease, created=self.lease.created, deadline=self.lease.deadline, etag=""
        )
        if lease is None or expected_lease != self.lease or lease.deadline <= self.now:
            problem = fault or f"run {self.lease.run} was started before"
            raise self._refuse(problem, "take another name for this run", url)
        return lease

    def give_up_lease(self) -> None:
        """Give up the lease: no stop could be armed, so nothing was raised."""
        if self.fleet.lease is not None:
            return  # an earlier start of the same run may have raised with it
        with suppress(*CALL_ERRORS):
            if leases.clear_pointer(self.clients, self.config, self.pointer):
                leases.write_lease(self.clients, self.config, replace(self.lease, ending=self.now))
            self.delete_unused_schedule()

    def arm_stop(self) -> str:
        """Create the one-shot stop and read it back."""
        where = f"schedule {self.config.schedule_group}/{self.lease.schedule}"
        advice = "nothing was raised; try again, or deploy the Guard stack"
        request = build_stop_schedule(self.config, self.lease)
        names = ("ScheduleExpression", "State", "Target")
        with convert_call_errors("arming the one-shot stop", where, advice):
            self.owner.call_as_owner(partial(self._create_schedule, request), self._build_refusal)
            schedule = self.clients.scheduler.get_schedule(
                GroupName=request["GroupName"], Name=request["Name"]
            )
            target = {name: schedule["Target"].get(name) for name in request["Target"]}
            stored_values = {
                **schedule,
                "State": schedule.get("State", "ENABLED"),
                "Target": target,
            }
            is_as_requested = all(stored_values[name] == request[name] for name in names)
            arn = str(schedule["Arn"])
        if not is_as_requested:
            advice = (
                "delete it in the console of EventBridge Scheduler and take another name for"
                " this run"
            )
            raise ExternalError("it differs from the request", where=where, change=advice)
        return arn

    def _create_schedule(self, request: Mapping[str, Any]) -> None:
        # also if the answer is lost
        had_new_schedule = self.has_new_schedule
        self.has_new_schedule = True
        try:
            self.clients.scheduler.create_schedule(**request)
        except ClientError as error:
            if error_code(error) != "ConflictException":
                raise
            # an earlier start made it: it is read back like a new one
            self.has_new_schedule = had_new_schedule

    def _build_refusal(self, loss: str) -> InputError:
        return self._refuse(
            f"stopped before the raise: {loss}; nothing was raised", self.status_command
        )

    def notify_unarmed_paths(self) -> None:
        """Notify people of the paths that do not guard this run."""
        if not self.lease.unarmed:
            return
        text = (
            f"{self.config.environment}: run {self.lease.run} starts although these paths would not"
            f" stop its fleet: {', '.join(self.lease.unarmed)}.\n{self.lease.who} accepted that."
            " The others end it, at the latest at its deadline"
            f" {self.lease.deadline:{MOMENT_FORMAT}} UTC.\nLook: {self.status_command};"
            " docs/runbook.md"
        )
        advice = "nothing was raised; mend the topic, or arm the paths"
        with convert_call_errors(
            "telling people that paths are not armed", str(self.config.topic_arn), advice
        ):
            notify_subscribers(self.clients, self.config, "a start accepted unarmed paths", text)

    def resume_launches(self) -> None:
        """Resume launches in the Auto Scaling groups that our stop suspended; clear the record."""
        fence = self.fleet.fence
        group_names = sorted(set(fence.suspended if fence else ()) & set(self.fleet.scaling_groups))
        for name in group_names:
            resume = partial(self.clients.autoscaling.resume_processes, AutoScalingGroupName=name)
            step = f"resuming the launches of Auto Scaling group {name}"
            with convert_call_errors(step, self.config.node_group_description, RETRY_ADVICE):
                self.owner.call_as_owner(
                    partial(resume, ScalingProcesses=[LAUNCH_PROCESS]), self._build_refusal
                )
        if group_names:
            with convert_call_errors(
                "writing what was resumed", self.config.url(FENCE_KEY), RETRY_ADVICE
            ):
                change_fence(self.clients, self.config, fence, _clear_suspended_groups)

    # the raise

    def raise_nodes(self) -> None:
        """Request the nodes from EKS, with the run's labels and without those of another."""
        if self._is_past_deadline():  # the one-shot stop of the lease has fired
            problem = (
                f"the lease's deadline {self.lease.deadline:{MOMENT_FORMAT}} UTC"
                " has passed meanwhile"
            )
            raise self._refuse(problem, LATE_START_ADVICE)
        try:
            label_change = read_label_change(self.clients, self.config, self.lease.node_label)
            self.owner.call_as_owner(
                partial(self._set_group_size, label_change), self._build_refusal
            )
        except CALL_ERRORS as error:  # EKS may have taken the call all the same
            problem = f"raising failed ({describe_error(error)}); {self._undo_raise()}"
            where = self.config.node_group_description
            raise ExternalError(problem, where=where, change=self.retry_advice) from error

    def _set_group_size(self, label_change: Mapping[str, Any]) -> None:
        self.may_have_nodes = True
        self.clients.eks_once.update_nodegroup_config(
            clusterName=self.config.cluster,
            nodegroupName=self.config.node_group,
            scalingConfig={"minSize": 0, "desiredSize": self.lease.nodes},
            **({"labels": label_change} if label_change else {}),
        )

    def remove_stray_labels(self) -> None:
        """Remove labels that a delayed relabel of another run set next to this run's."""
        with suppress(*CALL_ERRORS):  # the reaper sees them too
            label_change = read_label_change(self.clients, self.config, self.lease.node_label)
            if "removeLabels" in label_change:
                update = partial(
                    self.clients.eks_once.update_nodegroup_config,
                    clusterName=self.config.cluster,
                    nodegroupName=self.config.node_group,
                    labels=label_change,
                )
                self.owner.call_as_owner(update, self._build_refusal)

    def delete_unused_schedule(self) -> None:
        """Delete the one-shot stop of a lease that is over, if no node needs the stop."""
        if self.has_new_schedule and not self.may_have_nodes:
            with suppress(*CALL_ERRORS):
                delete_unreferenced_schedule(self.clients, self.config, self.lease.run)

    def require_no_late_stop(self) -> None:
        """Read fence and lease again: a stop that came during the raise has the last word."""
        try:
            loss = self.owner.find_loss()
        except CALL_ERRORS as error:
            problem = (
                f"the fence could not be read after the raise ({describe_error(error)});"
                f" {self._undo_raise()}"
            )
            raise ExternalError(
                problem, where=self.config.bucket, change=self.retry_advice
            ) from error
        if self._is_past_deadline():
            problem = f"the lease's deadline passed while it was being raised; {self._undo_raise()}"
            raise self._refuse(problem, LATE_START_ADVICE)
        if loss:
            raise self._refuse(
                f"stopped while it was being raised ({loss}); {self._undo_raise()}",
                self.status_command,
            )

    def _is_past_deadline(self) -> bool:
        """Whether the deadline passed during this start, e.g. because its machine slept."""
        return (
            self.now + timedelta(seconds=self.clients.wall_s() - self.start_s)
            >= self.lease.deadline
        )

    def _undo_raise(self) -> str:
        try:
            scale_down = partial(scale_to_zero, self.clients, self.config)
            loss = call_if_allowed(self.clients, self.owner.find_other_owner, scale_down)
        except CALL_ERRORS as error:
            problem = f"taking the raise back failed too ({describe_error(error)})"
            return f"{problem}: run {self.stop_command} now; its one-shot stop is armed"
        if loss:
            outcome = "another start has the fleet now, or that cannot be read, so it is left alone"
            return f"{outcome}; the reaper ends what goes beyond its lease: {self.status_command}"
        self.may_have_nodes = False
        return "the node group was set to 0 again"


def _clear_suspended_groups(fence: Fence | None) -> Fence | None:
    if fence and fence.suspended and not fence.is_closed:
        return replace(fence, suspended=())
    return None


def build_stop_schedule(config: GuardConfig, lease: Lease) -> dict[str, Any]:
    """Return the one-shot stop of a lease, as CreateSchedule takes it.

    The names in `Input` begin with a capital as in the CDK's example of a universal target.
    Unverified: nobody has yet seen a schedule call EKS in an account.
    """
    deadline = lease.deadline.astimezone(UTC)
    group = {"ClusterName": config.cluster, "NodegroupName": config.node_group}
    payload = {**group, "ScalingConfig": {"MinSize": 0, "DesiredSize": 0}}
    return {
        "GroupName": config.schedule_group,
        "Name": lease.schedule,
        "ScheduleExpression": f"at({deadline:%Y-%m-%dT%H:%M:%S})",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "State": "ENABLED",
        "Description": f"ends run {lease.run} of {config.environment}",
        "Target": {
            "Arn": SCHEDULE_TARGET_ARN,
            "RoleArn": config.scheduler_role_arn,
            "Input": json.dumps(payload),
            "DeadLetterConfig": {"Arn": config.dead_letter_arn},
            "RetryPolicy": RETRY_POLICY,
        },
    }
