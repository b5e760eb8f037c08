"""The start: the only thing that raises a fleet, and only behind a lease and an armed stop.

Invariant: standard library and boto3 only. Whatever ends it at any step, no instance is left that no stop will end:
the lease and the one-shot stop are there before the raise, and a stop that came meanwhile has the last word. Whatever
keeps it asleep, it raises, deletes and takes back under its own lease alone (tandem/guard/ownership.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from tandem.aws.faults import error_code
from tandem.errors import ExternalError, InputError, TandemError
from tandem.guard import lease as leases
from tandem.guard import observe
from tandem.guard.apply import scale_to_zero
from tandem.guard.bucket import write_object
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fence import FENCE_KEY, Fence, change_fence
from tandem.guard.lease import Lease, LeasePointer, lease_key
from tandem.guard.notify import notify_subscribers
from tandem.guard.observe import FleetState
from tandem.guard.ownership import LeaseOwner, call_if_allowed
from tandem.guard.scaling_groups import LAUNCH_PROCESS, read_scaling_groups
from tandem.guard.schedules import delete_unreferenced_schedule, list_foreign_schedules
from tandem.guard.values import CALL_ERRORS, convert_call_errors, describe_error
from tandem.shell_command import quote_command

MIN_HOURS = 0.25  # a shorter lease could end before its nodes run
# The service's ARN for a call without a Lambda (EventBridge Scheduler user guide, "Using universal targets").
SCHEDULE_TARGET_ARN = "arn:aws:scheduler:::aws-sdk:eks:updateNodegroupConfig"
# Scheduler tries again for so long; a stop that came later could meet the fleet of another run.
RETRY_POLICY = {"MaximumEventAgeInSeconds": 3600, "MaximumRetryAttempts": 100}
RETRY_ADVICE = "nothing was raised; try again"
MOMENT_FORMAT = "%Y-%m-%d %H:%M"
LATE_START_ADVICE = "the reaper fences it within minutes; then tandem stop --release, and start again"


@dataclass(frozen=True, kw_only=True)
class RaiseReport:
    """A fleet that may run until its lease's deadline.

    Args:
        nodes: the desired size that EKS took.
        was_present: whether it had been raised before, by the same run.
        schedule_arn: of the one-shot stop, as Scheduler reads it back.
    """

    lease: Lease
    nodes: int
    was_present: bool
    schedule_arn: str


def raise_fleet(  # noqa: PLR0913 - each is a field of the lease, or a limit of the raise
    clients: AwsClients, config: GuardConfig, *, run: str, hours: float, experiment: str | None, nodes: int,
    node_labels: Mapping[str, str], who: str, beats: bool, now: datetime, unarmed_paths: Sequence[str] = (),
) -> RaiseReport:  # fmt: skip
    """Raise the fleet for a run; the same run may ask again and gets what it has, with its first deadline.

    Args:
        run: its name, unique in the bucket; letters, digits, `-`, `_`, `.`, at most 59.
        hours: from `now` to the deadline.
        nodes: at most the node group's own limit.
        node_labels: node labels, as names.raise_label and names.compile_label give them; those of another run go.
        who: a person's ARN, or the runner.
        beats: whether the run will write `runs/<run>/heartbeat.json`.
        unarmed_paths: paths that are not armed, and that whoever starts accepts; people are told of them.

    Raises:
        InputError: a fence, another lease, a window or the node group forbids it; nothing was raised.
        ExternalError: AWS failed; a raise that may have been taken was taken back, or its stop is armed.
    """
    require_valid_request(config, run=run, hours=hours, nodes=nodes)
    deadline = (now + timedelta(hours=hours)).replace(microsecond=0)
    lease = Lease(
        run=run, who=who, experiment=experiment, nodes=nodes, node_label=dict(node_labels),
        created=now, deadline=deadline, beats=beats, schedule=f"{leases.STOP_PREFIX}{run}",
        unarmed=tuple(unarmed_paths),
    )  # fmt: skip
    fleet_start = _FleetStart(clients, config, lease, now)
    fleet_start.check_preconditions()
    fleet_start.take_lease()
    try:
        schedule_arn = fleet_start.arm_stop()
        fleet_start.notify_unarmed_paths()
        fleet_start.resume_launches()
    except TandemError:
        fleet_start.return_lease()
        raise
    try:
        fleet = fleet_start.fleet  # an earlier start of this run may have been taken
        was_present = fleet.lease is not None and fleet.desired_size == fleet_start.lease.nodes
        if not was_present:
            fleet_start.raise_nodes()
        fleet_start.require_no_late_stop()
        fleet_start.remove_stray_labels()
    except InputError:
        fleet_start.delete_unused_schedule()
        raise
    return RaiseReport(lease=fleet_start.lease, nodes=nodes, was_present=was_present, schedule_arn=schedule_arn)


def require_valid_request(config: GuardConfig, *, run: str, hours: float, nodes: int) -> None:
    """Make sure that what is asked for can be had at all; nobody is asked.

    Args:
        config: whose limits hold.
        run, hours, nodes: as of `raise_fleet`.

    Raises:
        InputError: it cannot.
    """
    if not leases.RUN_NAME_PATTERN.fullmatch(run):
        raise InputError(f"{run!r} names no run", change="use 1 to 59 letters, digits, '-', '_' and '.'")
    if not MIN_HOURS <= hours <= config.max_hours:
        advice = f"ask for {MIN_HOURS:g} to {config.max_hours:g} (guard.max_hours)"
        raise InputError(f"{hours:g} hours are asked for", where=config.environment, change=advice)
    if nodes < 1:
        raise InputError(f"{nodes} nodes are asked for", change="ask for at least 1")
    for name in ("schedule_group", "scheduler_role_arn", "dead_letter_arn"):
        if not getattr(config, name):
            problem = f"{name} is not known, so no stop can be armed"
            raise InputError(problem, where=config.environment, change="deploy the Guard stack")


class _FleetStart:
    """One start at work."""

    def __init__(self, clients: AwsClients, config: GuardConfig, lease: Lease, now: datetime) -> None:
        self.clients, self.config, self.now = clients, config, now
        self.lease, self.requested_lease = lease, lease
        self.pointer = LeasePointer()
        self.fleet = FleetState(now=now)
        self.start_s = clients.wall_s()
        self.has_new_schedule = False  # whether this start made the schedule, not an earlier one of the same run
        self.may_have_nodes = False  # whether nodes may stand for which this start asked
        self.owner = LeaseOwner(clients, config, self.pointer, self.lease)  # of the lease, once it is taken
        self.status_command = f"tandem status --env {config.environment}"
        self.stop_command = f"tandem stop --env {config.environment}"
        self.retry_advice = f"try again with the same run (--run {quote_command(lease.run)})"

    def _refuse(self, problem: str, change: str, where: str = "") -> InputError:
        return InputError(problem, where=where or self.config.node_group_description, change=change)

    def _quote_aws_command(self, service: str, operation: str, flags: Mapping[str, str]) -> str:
        words = (word for flag in (*flags.items(), ("--region", self.config.region)) for word in flag)
        return quote_command("aws", service, operation, *words)

    # may it

    def check_preconditions(self) -> None:
        """Look at everything before anything is written."""
        self.fleet = observe.observe_fleet(self.clients, self.config, self.now)
        self.fleet.require_known(
            "fence", "lease", "node group", "instances", where=self.config.environment,
            consequence="nothing is raised", change="allow it to this identity where it is denied, else try again",
        )  # fmt: skip
        fence = self.fleet.fence
        if fence is not None and fence.is_closed:
            problem = f"fenced by {fence.who} at {fence.at:{MOMENT_FORMAT}} UTC: {fence.why}"
            release = f"tandem stop --release --env {self.config.environment}"
            advice = f"{self.status_command}; when the reason is gone, {release}"
            raise self._refuse(problem, advice, self.config.url(FENCE_KEY))
        self._require_no_other_lease()
        self._require_window()
        self._require_node_group()
        self._require_launch_process()
        self._require_no_foreign_schedules()

    def _require_no_other_lease(self) -> None:
        self.pointer = self.fleet.pointer or self.pointer  # as it was when the lease was read
        lease, now, name = self.fleet.lease, self.now, self.config.environment
        if lease is None:
            return
        new_name, advice = "take another name for this run", ""
        deadline_text = f"{lease.deadline:{MOMENT_FORMAT}} UTC"
        if lease.deadline <= now:
            problem = f"the lease of run {lease.run} ended at {deadline_text}"
            advice = f"the reaper fences it within minutes; then tandem stop --release --env {name}"
        elif lease.ending is not None:
            problem = f"run {lease.run} of {lease.who} ends since {lease.ending:%Y-%m-%d %H:%M} UTC"
            by_hand = f"to finish it by hand: tandem stop --end --env {name}"
            advice = f"wait until {self.status_command} shows no lease; {by_hand}"
        elif lease.run != self.lease.run:
            problem = f"run {lease.run} of {lease.who} has the fleet until {deadline_text}"
            advice = f"wait, or end it: {self.stop_command}"
        elif (lease.experiment, lease.node_label) != (self.lease.experiment, self.lease.node_label):
            problem, advice = f"run {lease.run} was started for {lease.experiment or 'no experiment'}", new_name
        elif lease.nodes != self.lease.nodes:
            problem, advice = f"run {lease.run} was started for {lease.nodes} nodes", f"ask for as many, or {new_name}"
        if advice:
            raise self._refuse(problem, advice, self.config.url(lease_key(lease.run)))
        self.lease = lease  # its own, from a start that did not come to its end; the deadline stays the first

    def _require_window(self) -> None:
        config, deadline = self.config, self.lease.deadline
        if self.fleet.capacity_kind != "capacity-block":
            return
        # as declared or looked up by the caller, and as deployed: what both allow
        starts = max(filter(None, (config.block_starts, self.fleet.block_starts)), default=None)
        ends = min(filter(None, (config.block_ends, self.fleet.block_ends)), default=None)
        if starts is None or ends is None:
            problem = "the Capacity Block's start and end are not said"
            raise self._refuse(problem, "write capacity.block from the offer and deploy Fleet", config.environment)
        if self.now < starts or ends - observe.BLOCK_MARGIN < deadline:
            window = f"{starts:{MOMENT_FORMAT}} to {ends:{MOMENT_FORMAT}} UTC"
            problem = f"the Capacity Block lasts from {window}, and a run must end 45 minutes before its end"
            advice = "ask for fewer hours, or renew the block: docs/runbook.md"
            raise self._refuse(f"{problem}; asked: until {deadline:{MOMENT_FORMAT}}", advice, config.environment)

    def _require_node_group(self) -> None:
        config, fleet = self.config, self.fleet
        if not fleet.has_node_group:
            raise self._refuse("not there", "deploy the Fleet stack")
        if not fleet.has_owner_tag:
            problem = f"another's: without the tag {observe.OWNER_TAG}={config.environment}"
            raise self._refuse(problem, "it is left alone; give one of the two another name")
        if fleet.desired_size != 0 and fleet.lease is None:
            raise self._refuse(f"already at {fleet.desired_size}, without a lease", self.stop_command)
        if fleet.instances and fleet.lease is None:
            instance_text = ", ".join(f"{instance.id} ({instance.state})" for instance in fleet.instances)
            advice = f"wait until they are gone, or {self.stop_command}"
            raise self._refuse(f"instances without a lease: {instance_text}", advice)
        with convert_call_errors("asking EKS", config.node_group_description, RETRY_ADVICE):
            node_group = observe.describe_node_group(self.clients, self.config)
        limit, status = node_group.get("scalingConfig", {}).get("maxSize", 0), node_group.get("status")
        # DEGRADED is what a group stays after a lack of capacity, until it grows (aws/containers-roadmap#2326)
        if status not in {"ACTIVE", "DEGRADED"} or limit < self.lease.nodes:
            problem = f"{status}, at most {limit} nodes; {self.lease.nodes} are asked for"
            raise self._refuse(problem, "wait until it is ACTIVE, and ask for no more than capacity.nodes")

    def _require_launch_process(self) -> None:
        """Refuse where somebody else than a stop of ours keeps the Auto Scaling group from adding instances."""
        suspended_groups = self.fleet.fence.suspended if self.fleet.fence else ()
        with convert_call_errors("asking Auto Scaling", self.config.node_group_description, RETRY_ADVICE):
            groups = read_scaling_groups(self.clients, self.fleet.scaling_groups)
        for group in groups:
            if LAUNCH_PROCESS in group.suspended_processes and group.name not in suspended_groups:
                flags = {"--auto-scaling-group-name": group.name, "--scaling-processes": LAUNCH_PROCESS}
                command = self._quote_aws_command("autoscaling", "resume-processes", flags)
                problem = "its launches are suspended, and no stop of Tandem wrote that it did so"
                raise self._refuse(problem, f"find out why, then: {command}", f"Auto Scaling group {group.name}")

    def _require_no_foreign_schedules(self) -> None:
        """Refuse beside a schedule that no lease owns: it could end this run, or raise behind its end."""
        schedule_group = self.config.schedule_group
        with convert_call_errors("listing the schedules", f"schedule group {schedule_group}", RETRY_ADVICE):
            foreign_schedules = list_foreign_schedules(self.clients, self.config, self.lease)
            fence_run = self.fleet.fence.run if self.fleet.fence else None
            if fence_run and any(schedule.name == f"{leases.STOP_PREFIX}{fence_run}" for schedule in foreign_schedules):
                # a release of an older Tandem, or one that died, left the stop of the run that its fence ended
                delete_unreferenced_schedule(self.clients, self.config, fence_run)
                foreign_schedules = list_foreign_schedules(self.clients, self.config, self.lease)
            pointer = leases.read_pointer(self.clients, self.config) if foreign_schedules else LeasePointer()
        if any(schedule.name == f"{leases.STOP_PREFIX}{pointer.run}" for schedule in foreign_schedules):
            raise self._refuse(f"run {pointer.run} has the fleet now", self.status_command)
        for schedule in foreign_schedules:
            flags = {"--group-name": schedule_group, "--name": schedule.name}
            command = self._quote_aws_command("scheduler", "delete-schedule", flags)
            advice = f"if no other start is under way: {command}"
            where = f"schedule {schedule_group}/{schedule.name}"
            raise self._refuse(f"no lease owns it, and it calls {schedule.target_arn}", advice, where)

    # lease and stop

    def take_lease(self) -> None:
        """Write the lease, then point to it: the pointer decides between two starts, also of the same run."""
        url = self.config.url(lease_key(self.lease.run))
        with convert_call_errors("writing the lease", url, f"{self.retry_advice}; nothing was raised"):
            if self.fleet.lease is None:
                self.lease = leases.write_lease(self.clients, self.config, self.lease) or self._adopt_lease(url)
            elif self.requested_lease.unarmed != self.lease.unarmed:
                new_lease = replace(self.lease, unarmed=self.requested_lease.unarmed)
                self.lease = leases.write_lease(self.clients, self.config, new_lease) or self.lease
            document = {"run": self.lease.run}
            etag = write_object(self.clients, self.config, leases.POINTER_KEY, document, etag=self.pointer.etag)
        if etag is None:
            where = self.config.url(leases.POINTER_KEY)
            raise self._refuse("another start or stop came first", self.status_command, where)
        self.pointer = LeasePointer(run=self.lease.run, etag=etag)
        self.owner = LeaseOwner(self.clients, self.config, self.pointer, self.lease)

    def _adopt_lease(self, url: str) -> Lease:
        """Go on with a lease that a start of the same run wrote and died before it pointed to it."""
        pointer = LeasePointer(run=self.lease.run)
        lease, fault = leases.read_lease(self.clients, self.config, pointer)
        expected_lease = lease and replace(lease, created=self.lease.created, deadline=self.lease.deadline, etag="")
        if lease is None or expected_lease != self.lease or lease.deadline <= self.now:
            problem = fault or f"run {self.lease.run} was started before"
            raise self._refuse(problem, "take another name for this run", url)
        return lease

    def return_lease(self) -> None:
        """Let others start, where no stop could be armed and so nothing was raised."""
        if self.fleet.lease is not None:
            return  # an earlier start of the same run may have raised under it
        with suppress(*CALL_ERRORS):
            if leases.clear_pointer(self.clients, self.config, self.pointer):
                leases.write_lease(self.clients, self.config, replace(self.lease, ending=self.now))
            self.delete_unused_schedule()

    def arm_stop(self) -> str:
        """Create the one-shot stop and read it back."""
        where = f"schedule {self.config.schedule_group}/{self.lease.schedule}"
        advice = "nothing was raised; try again, or deploy the Guard stack"
        request, names = build_stop_schedule(self.config, self.lease), ("ScheduleExpression", "State", "Target")
        with convert_call_errors("arming the one-shot stop", where, advice):
            self.owner.call_as_owner(partial(self._create_schedule, request), self._build_refusal)
            schedule = self.clients.scheduler.get_schedule(GroupName=request["GroupName"], Name=request["Name"])
            target = {name: schedule["Target"].get(name) for name in request["Target"]}
            stored_values = {**schedule, "State": schedule.get("State", "ENABLED"), "Target": target}
            is_as_requested = all(stored_values[name] == request[name] for name in names)
            arn = str(schedule["Arn"])
        if not is_as_requested:
            advice = "delete it in the console of EventBridge Scheduler and take another name for this run"
            raise ExternalError("it is not as it was asked for", where=where, change=advice)
        return arn

    def _create_schedule(self, request: Mapping[str, Any]) -> None:
        had_new_schedule, self.has_new_schedule = self.has_new_schedule, True  # also where the answer is lost
        try:
            self.clients.scheduler.create_schedule(**request)
        except ClientError as error:
            if error_code(error) != "ConflictException":
                raise
            self.has_new_schedule = had_new_schedule  # of an earlier start of the same run: read back like a new one

    def _build_refusal(self, loss: str) -> InputError:
        return self._refuse(f"stopped before the raise: {loss}; nothing was raised", self.status_command)

    def notify_unarmed_paths(self) -> None:
        """Tell people which paths do not guard this run."""
        if not self.lease.unarmed:
            return
        text = (
            f"{self.config.environment}: run {self.lease.run} starts although these paths would not stop its fleet: "
            f"{', '.join(self.lease.unarmed)}.\n{self.lease.who} accepted that. The others end it, at the latest at "
            f"its deadline {self.lease.deadline:%Y-%m-%d %H:%M} UTC.\nLook: {self.status_command}; docs/runbook.md"
        )
        advice = "nothing was raised; mend the topic, or arm the paths"
        with convert_call_errors("telling people that paths are not armed", str(self.config.topic_arn), advice):
            notify_subscribers(self.clients, self.config, "a start accepted unarmed paths", text)

    def resume_launches(self) -> None:
        """Let the Auto Scaling groups add instances again where a stop of ours suspended it, and forget that."""
        fence = self.fleet.fence
        group_names = sorted(set(fence.suspended if fence else ()) & set(self.fleet.scaling_groups))
        for name in group_names:
            resume = partial(self.clients.autoscaling.resume_processes, AutoScalingGroupName=name)
            step = f"resuming the launches of Auto Scaling group {name}"
            with convert_call_errors(step, self.config.node_group_description, RETRY_ADVICE):
                self.owner.call_as_owner(partial(resume, ScalingProcesses=[LAUNCH_PROCESS]), self._build_refusal)
        if group_names:
            with convert_call_errors("writing what was resumed", self.config.url(FENCE_KEY), RETRY_ADVICE):
                change_fence(self.clients, self.config, fence, _clear_suspended_groups)

    # the raise

    def raise_nodes(self) -> None:
        """Ask EKS for the nodes, with the run's labels and without those of another."""
        if self._is_past_deadline():  # its one-shot stop has fired
            problem = f"the lease's deadline {self.lease.deadline:%Y-%m-%d %H:%M} UTC has passed meanwhile"
            raise self._refuse(problem, LATE_START_ADVICE)
        try:
            current_labels = observe.read_own_labels(self.clients, self.config)
            label_change = observe.build_label_change(current_labels, self.lease.node_label)
            self.owner.call_as_owner(partial(self._set_group_size, label_change), self._build_refusal)
        except CALL_ERRORS as error:  # it may have been taken all the same
            problem = f"raising failed ({describe_error(error)}); {self._undo_raise()}"
            where = self.config.node_group_description
            raise ExternalError(problem, where=where, change=self.retry_advice) from error

    def _set_group_size(self, labels: Mapping[str, Any]) -> None:
        self.may_have_nodes = True
        self.clients.eks_once.update_nodegroup_config(
            clusterName=self.config.cluster, nodegroupName=self.config.node_group, labels=labels,
            scalingConfig={"minSize": 0, "desiredSize": self.lease.nodes},
        )  # fmt: skip

    def remove_stray_labels(self) -> None:
        """Take off labels that a relabel of another run, which slept until now, set beside this run's."""
        with suppress(*CALL_ERRORS):  # the reaper sees them too
            labels = observe.read_own_labels(self.clients, self.config)
            stray_labels = [name for name in labels if name not in self.lease.node_label]
            if stray_labels:
                group = {"clusterName": self.config.cluster, "nodegroupName": self.config.node_group}
                update = partial(self.clients.eks_once.update_nodegroup_config, **group)
                removal = partial(update, labels={"removeLabels": stray_labels})
                self.owner.call_as_owner(removal, self._build_refusal)

    def delete_unused_schedule(self) -> None:
        """Delete the one-shot stop of a lease that is over, where nothing stands for which it is needed."""
        if self.has_new_schedule and not self.may_have_nodes:
            with suppress(*CALL_ERRORS):
                delete_unreferenced_schedule(self.clients, self.config, self.lease.run)

    def require_no_late_stop(self) -> None:
        """Read fence and lease again: a stop that came while the raise was under way has the last word."""
        try:
            loss = self.owner.find_loss()
        except CALL_ERRORS as error:
            problem = f"the fence could not be read after the raise ({describe_error(error)}); {self._undo_raise()}"
            raise ExternalError(problem, where=self.config.bucket, change=self.retry_advice) from error
        if self._is_past_deadline():
            problem = f"the lease's deadline passed while it was being raised; {self._undo_raise()}"
            raise self._refuse(problem, LATE_START_ADVICE)
        if loss:
            raise self._refuse(f"stopped while it was being raised ({loss}); {self._undo_raise()}", self.status_command)

    def _is_past_deadline(self) -> bool:
        """Whether the deadline has passed while this start was at work, as where the machine under it slept."""
        return self.now + timedelta(seconds=self.clients.wall_s() - self.start_s) >= self.lease.deadline

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
    return replace(fence, suspended=()) if fence and fence.suspended and not fence.is_closed else None


def build_stop_schedule(config: GuardConfig, lease: Lease) -> dict[str, Any]:
    """Return the one-shot stop of a lease, as CreateSchedule takes it.

    The names in `Input` begin with a capital as in the CDK's own example of a universal target. Unverified: nobody has
    seen one fire with EKS in an account yet.
    """
    deadline = lease.deadline.astimezone(UTC)
    group = {"ClusterName": config.cluster, "NodegroupName": config.node_group}
    payload = {**group, "ScalingConfig": {"MinSize": 0, "DesiredSize": 0}}
    return {
        "GroupName": config.schedule_group, "Name": lease.schedule,
        "ScheduleExpression": f"at({deadline:%Y-%m-%dT%H:%M:%S})", "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"}, "ActionAfterCompletion": "DELETE", "State": "ENABLED",
        "Description": f"ends run {lease.run} of {config.environment}",
        "Target": {
            "Arn": SCHEDULE_TARGET_ARN, "RoleArn": config.scheduler_role_arn, "Input": json.dumps(payload),
            "DeadLetterConfig": {"Arn": config.dead_letter_arn}, "RetryPolicy": RETRY_POLICY,
        },
    }  # fmt: skip
