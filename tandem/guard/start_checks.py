"""What a start needs besides a lease: a settled node group of ours, and capacity.

Nor may another program be about to stop the fleet. Whether a fence is closed is not asked here:
`fleet_start` reads it first.

Invariant: standard library and boto3 only. Each check raises before anything is written.
"""

from __future__ import annotations

from datetime import datetime

from tandem.errors import InputError
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fleet_state import FleetState
from tandem.guard.lease import STOP_PREFIX, Lease, LeasePointer, lease_key, read_pointer
from tandem.guard.observe import BLOCK_MARGIN, OWNER_TAG
from tandem.guard.scaling_groups import LAUNCH_PROCESS, read_scaling_groups
from tandem.guard.schedules import list_foreign_schedules
from tandem.guard.values import convert_call_errors
from tandem.shell_command import build_tandem_command, quote_command

RETRY_ADVICE = "nothing was raised; try again"
MOMENT_FORMAT = "%Y-%m-%d %H:%M"
LATE_START_ADVICE = (
    "the reaper fences it within minutes; then tandem stop --release, and start again"
)


def build_refusal(config: GuardConfig, problem: str, change: str, where: str = "") -> InputError:
    """Return the refusal of a start, by default on account of the node group."""
    return InputError(problem, where=where or config.node_group_description, change=change)


def require_no_other_lease(config: GuardConfig, fleet: FleetState, requested: Lease) -> Lease:
    """Return the lease to start under: the requested one, or one of an unfinished start of its run.

    Raises:
        InputError: another lease has the fleet.
    """
    lease = fleet.lease
    if lease is None:
        return requested
    status_command = f"tandem status --env {config.environment}"
    end_command = build_tandem_command("stop --end", config.environment, "--run", lease.run)
    if lease.beats:  # the runner manages this run
        cancel = f"runs cancel {lease.run.partition('.')[0]}"
        end_command = build_tandem_command(cancel, config.environment)

    advice = ""
    deadline_text = f"{lease.deadline:{MOMENT_FORMAT}} UTC"
    if lease.deadline <= fleet.now:
        problem = f"the lease of run {lease.run} ended at {deadline_text}"
        advice = LATE_START_ADVICE
    elif lease.ending is not None:
        ending_text = f"{lease.ending:{MOMENT_FORMAT}} UTC"
        problem = f"run {lease.run} of {lease.who} has been ending since {ending_text}"
        advice = f"wait until {status_command} shows no lease; to finish it by hand: {end_command}"
    elif lease.run != requested.run:
        problem = f"run {lease.run} of {lease.who} has the fleet until {deadline_text}"
        advice = f"wait, or end it: {end_command}"
    elif (lease.experiment, lease.node_label, lease.nodes) != (
        requested.experiment,
        requested.node_label,
        requested.nodes,
    ):
        problem = (
            f"run {lease.run} was started for {lease.nodes} nodes and"
            f" {lease.experiment or 'no experiment'}"
        )
        advice = "ask for the same, or take another name for this run"
    if advice:
        raise build_refusal(config, problem, advice, config.url(lease_key(lease.run)))
    return lease


def require_window(config: GuardConfig, fleet: FleetState, deadline: datetime) -> None:
    """Check the Capacity Block's hours, for which only EC2's word counts.

    Args:
        deadline: of the lease.

    Raises:
        InputError: the block does not last from now to after the deadline.
        ExternalError: EC2 did not answer.
    """
    if fleet.capacity_kind != "capacity-block":
        return
    fleet.require_known(
        "reservation",
        where=config.environment,
        consequence="nothing is raised: EC2 alone says when the Capacity Block ends",
        change=(
            "allow ec2:DescribeCapacityReservations to this identity where it is denied, else"
            " try again"
        ),
    )
    reservation = fleet.reservation
    if reservation is None:
        raise build_refusal(
            config, "it names no Capacity Block", "write capacity.reservation_id and deploy Fleet"
        )
    if reservation.state != "active":
        state = (
            f"is {reservation.state}" if reservation.state else "is not in this account and region"
        )
        problem = f"the Capacity Block {reservation.id} {state}: nothing can be launched from it"
        advice = "wait for it, or renew it: docs/runbook-guard.md"
        raise build_refusal(config, problem, advice, config.environment)

    starts = reservation.window.starts
    ends = reservation.window.ends
    if starts is None or ends is None:
        problem = f"EC2 does not say when the Capacity Block {reservation.id} starts and ends"
        advice = f"see it: tandem status --env {config.environment}"
        raise build_refusal(config, problem, advice, config.environment)
    if fleet.now < starts or ends - BLOCK_MARGIN < deadline:
        window = f"{starts:{MOMENT_FORMAT}} to {ends:{MOMENT_FORMAT}} UTC"
        problem = (
            f"the Capacity Block lasts from {window}, and a run must end 45 minutes before its"
            f" end; asked: until {deadline:{MOMENT_FORMAT}}"
        )
        advice = "ask for fewer hours, or extend or renew the block: docs/runbook-guard.md"
        raise build_refusal(config, problem, advice, config.environment)


def require_launch_process(clients: AwsClients, config: GuardConfig, fleet: FleetState) -> None:
    """Check that nobody else keeps the Auto Scaling group from launching.

    Raises:
        InputError: somebody does.
        ExternalError: Auto Scaling did not answer.
    """
    suspended_groups = fleet.fence.suspended if fleet.fence else ()
    with convert_call_errors("asking Auto Scaling", config.node_group_description, RETRY_ADVICE):
        groups = read_scaling_groups(clients, fleet.scaling_groups)
    for group in groups:
        if LAUNCH_PROCESS in group.suspended_processes and group.name not in suspended_groups:
            command = quote_command(
                "aws",
                "autoscaling",
                "resume-processes",
                "--auto-scaling-group-name",
                group.name,
                "--scaling-processes",
                LAUNCH_PROCESS,
                "--region",
                config.region,
            )
            raise build_refusal(
                config,
                "its launches are suspended, and no stop of Tandem wrote that it did so",
                f"find out why, then: {command}",
                f"Auto Scaling group {group.name}",
            )


def require_no_foreign_schedules(clients: AwsClients, config: GuardConfig, lease: Lease) -> None:
    """Check that no schedule without a lease is there, which could end this run.

    Raises:
        InputError: there is one.
        ExternalError: Scheduler or S3 did not answer.
    """
    schedule_group = config.schedule_group
    with convert_call_errors(
        "listing the schedules", f"schedule group {schedule_group}", RETRY_ADVICE
    ):
        foreign_schedules = list_foreign_schedules(clients, config, lease)
        pointer = read_pointer(clients, config) if foreign_schedules else LeasePointer()
    if any(schedule.name == f"{STOP_PREFIX}{pointer.run}" for schedule in foreign_schedules):
        raise build_refusal(
            config,
            f"run {pointer.run} has the fleet now",
            f"tandem status --env {config.environment}",
        )
    for schedule in foreign_schedules:
        command = quote_command(
            "aws",
            "scheduler",
            "delete-schedule",
            "--group-name",
            schedule_group,
            "--name",
            schedule.name,
            "--region",
            config.region,
        )
        raise build_refusal(
            config,
            f"no lease owns it, and it calls {schedule.target_arn}",
            f"if no other start is under way: {command}",
            f"schedule {schedule_group}/{schedule.name}",
        )


def require_node_group(config: GuardConfig, fleet: FleetState, *, has_lease: bool) -> None:
    """Check that the node group exists, is ours and settled, and without a lease at 0.

    Raises:
        InputError: the node group does not.
    """
    where = config.node_group_description
    if not fleet.has_node_group:
        raise InputError("not there", where=where, change="deploy the Fleet stack")
    if not fleet.has_owner_tag:
        problem = f"another's: without the tag {OWNER_TAG}={config.environment}"
        raise InputError(
            problem, where=where, change="it is left alone; give one of the two another name"
        )
    if not has_lease and (fleet.desired_size or fleet.instances):
        instance_text = ", ".join(
            f"{instance.id} ({instance.state})" for instance in fleet.instances
        )
        problem = (
            f"already at {fleet.desired_size}, without a lease:"
            f" {instance_text or 'no instance yet'}"
        )
        raise InputError(
            problem,
            where=where,
            change=(
                f"wait until they are gone, or {build_tandem_command('stop', config.environment)}"
            ),
        )
    if not fleet.is_stable:
        raise InputError(
            f"{fleet.status}: EKS takes no update", where=where, change="wait until it is ACTIVE"
        )
