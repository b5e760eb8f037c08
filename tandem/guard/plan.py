"""Plan from an observation: the reasons for a stop, and its next levers. Pure.

Invariant: standard library and boto3 only, because a Lambda packs this file. Unknown is never taken
for gone, for allowed or for alive, and nothing without the environment's own tag is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tandem.guard import observe, pass_metrics
from tandem.guard.config import GuardConfig
from tandem.guard.fence import FenceState
from tandem.guard.fleet_state import CLOCK_TOLERANCE, NORMAL_END_LIMIT, FleetState
from tandem.guard.lease import Lease
from tandem.guard.values import format_value

REPLACEMENT_GRACES = 2  # a spot node's replacement and the node itself overlap for a while
OVERDUE_GRACES = 3  # a stop that EC2 has not completed after so many graces has failed


@dataclass(frozen=True, kw_only=True)
class StopPlan:
    """Actions that a look requires.

    Args:
        reasons: the reasons for a stop, each a sentence; empty: none is due.
        scale_down: whether EKS must be set to 0.
        hold_scaling_groups: whether the Auto Scaling groups must be held at 0: EKS had its grace.
        terminate_ids: ids of the instances to terminate in EC2.
        fence_state: of the fence after this pass, as far as known; None: there is none to write.
        failures: failures of earlier passes that this look shows, each a sentence.
        metrics: to publish; the pass itself adds STOP_FAILURES.
    """

    reasons: tuple[str, ...] = ()
    scale_down: bool = False
    hold_scaling_groups: bool = False
    terminate_ids: tuple[str, ...] = ()
    fence_state: FenceState | None = None
    failures: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


def plan_stop(fleet: FleetState, config: GuardConfig) -> StopPlan:
    """Return the plan for a look; pure."""
    reasons = sorted(
        reason for reason in _list_stop_reasons(fleet, config) if reason[0] <= fleet.now
    )
    metrics = dict(_compute_metrics(fleet, config))
    if not reasons:
        return StopPlan(metrics=metrics)
    stop_start = _estimate_stop_start(fleet, config, reasons[0][0])
    present = (instance for instance in fleet.own_instances if instance.state != "shutting-down")
    latest_start = fleet.now - config.grace_period
    terminate = tuple(
        item.id for item in present if max(stop_start, item.launched_at) <= latest_start
    )
    fence_state = _next_fence_state(fleet, terminate)
    has_size = (fleet.desired_size, fleet.min_size) != (0, 0) and fleet.has_node_group is not False
    return StopPlan(
        reasons=tuple(sentence for _, sentence in reasons),
        fence_state=fence_state,
        terminate_ids=terminate,
        metrics=metrics,
        scale_down=fleet.can_scale and (has_size or bool(terminate)),
        hold_scaling_groups=_has_overdue_capacity(fleet, config, stop_start, has_size=has_size),
        failures=tuple(_describe_stop_failures(fleet, config, stop_start, has_size=has_size)),
    )


def foretell_stop(fleet: FleetState, config: GuardConfig) -> tuple[datetime, str] | None:
    """Return when the reaper acts next as things stand, and why; None for never.

    A pass may come minutes later.
    """
    if not fleet.own_instances and fleet.live_lease is None:
        return None
    if fleet.fence is not None and fleet.is_fenced:
        last_start = max(
            [fleet.fence.at, *(instance.launched_at for instance in fleet.own_instances)]
        )
        return max(last_start + config.grace_period, fleet.now), "what is left is ended by id"
    at, why = min(_list_stop_reasons(fleet, config), default=(None, ""))
    return (max(at, fleet.now), why) if at else None


def _estimate_stop_start(fleet: FleetState, config: GuardConfig, earliest: datetime) -> datetime:
    """Return the best estimate of the time since which EKS has been set to 0."""
    if fleet.fence is None or not fleet.fence.is_closed:
        return earliest + config.grace_period  # no record of the first try: EKS gets twice as long
    # a fence's time in the future does not count
    if fleet.fence.at <= fleet.now + CLOCK_TOLERANCE:
        return fleet.fence.at
    return fleet.now - config.grace_period


def _has_overdue_capacity(
    fleet: FleetState, config: GuardConfig, stop_start: datetime, *, has_size: bool
) -> bool:
    """Whether EKS had its grace and still wants nodes, or keeps some."""
    latest_start = fleet.now - config.grace_period
    launches = (instance.launched_at for instance in fleet.own_instances if instance.is_up)
    # a fence whose fleet was gone once: a later raise behind it was not yet set to 0
    was_told_zero = fleet.fence is None or fleet.fence.state != "stopped"
    keeps_size = was_told_zero and has_size and stop_start <= latest_start
    return fleet.can_scale and (
        keeps_size or any(max(stop_start, at) <= latest_start for at in launches)
    )


def _next_fence_state(fleet: FleetState, terminate_ids: tuple[str, ...]) -> FenceState:
    """Return `stopped` once EC2 lists no instance of ours and the node group wants none."""
    is_empty = "instances" not in fleet.unknown and not fleet.own_instances
    if is_empty and (
        fleet.has_node_group is False
        or fleet.has_owner_tag is False
        or (fleet.desired_size, fleet.min_size) == (0, 0)
    ):
        return "stopped"
    is_terminating = (
        fleet.fence is not None and fleet.fence.state == "terminating" and bool(fleet.own_instances)
    )
    return "terminating" if terminate_ids or is_terminating else "stopping"


def _describe_stop_failures(
    fleet: FleetState, config: GuardConfig, stop_start: datetime, *, has_size: bool
) -> Iterator[str]:
    """Yield the parts of a stop that failed, or that cannot be seen to have succeeded."""
    overdue_time = OVERDUE_GRACES * config.grace_period
    instances = fleet.own_instances
    late_ids = [
        item.id
        for item in instances
        if max(stop_start, item.launched_at) + overdue_time <= fleet.now
    ]
    if late_ids:
        yield (
            f"{', '.join(late_ids)}: alive {OVERDUE_GRACES * config.grace_minutes:g} minutes after"
            " the stop; terminate by hand in the EC2 console, and look at the node group's health"
            " in EKS"
        )
    new_ids = [
        instance.id for instance in instances if stop_start + overdue_time <= instance.launched_at
    ]
    if new_ids or (has_size and fleet.desired_size and stop_start + overdue_time <= fleet.now):
        yield (
            f"raised again behind the stop of {format_value(stop_start)}, or EKS does not take 0:"
            f" desired {fleet.desired_size}, launched since: {', '.join(new_ids) or 'none'}; find"
            " out who raises: CloudTrail, UpdateNodegroupConfig"
        )
    for source in ("instances", "node group"):
        if source in fleet.unknown:
            yield f"{source} unknown while a stop is due: {fleet.unknown[source]}"
    if fleet.has_owner_tag is False and has_size and not fleet.can_scale:
        tag = f"{observe.OWNER_TAG}={config.environment}"
        yield (
            f"{config.node_group_description} is not set to 0:"
            f" it is another's, without the tag {tag}"
        )


def _list_stop_reasons(fleet: FleetState, config: GuardConfig) -> Iterator[tuple[datetime, str]]:
    """Yield each reason for a stop with the time since which it holds, or will hold."""
    if fleet.fence and fleet.fence.is_closed:
        yield min(fleet.fence.at, fleet.now), f"fenced by {fleet.fence.who}: {fleet.fence.why}"
    elif "lease" not in fleet.unknown:
        if fleet.lease is None:
            yield from _list_missing_lease_reasons(fleet)
        else:
            yield from _list_misuse_reasons(fleet, config, fleet.lease)
            yield from _list_lease_end_reasons(fleet, config, fleet.lease)
    if not fleet.is_ending:
        yield from _list_time_limit_reasons(fleet, config)


def _list_time_limit_reasons(
    fleet: FleetState, config: GuardConfig
) -> Iterator[tuple[datetime, str]]:
    """Yield the reasons that no lease can remove: an age, and a block's end."""
    own_instances = fleet.own_instances
    max_age = timedelta(hours=config.max_hours)
    first_launch = min((instance.launched_at for instance in own_instances), default=None)
    if first_launch:
        yield first_launch + max_age, f"an instance is older than {config.max_hours:g} hours"
    if fleet.alive_since and not (first_launch and first_launch + max_age <= fleet.now):
        # an instance's own age comes first: the series begins before it, and EKS would have no
        # grace left
        text = (
            f"instances have lived for {config.max_hours:g} hours, one after another, and the lease"
            " cannot be read"
        )
        yield fleet.alive_since + max_age, text
    block_end = fleet.block_ends
    is_in_use = bool(own_instances or fleet.desired_size or fleet.live_lease)
    if block_end and is_in_use:
        yield (
            block_end - observe.BLOCK_MARGIN,
            f"the Capacity Block ends at {format_value(block_end)}",
        )
    if fleet.reservation and fleet.reservation.is_over and is_in_use:
        yield fleet.now, f"the Capacity Block {fleet.reservation.id} is {fleet.reservation.state}"


def _list_missing_lease_reasons(fleet: FleetState) -> Iterator[tuple[datetime, str]]:
    """Yield why a fleet without a lease must stop: a start writes its lease before it raises."""
    first_launch = min((instance.launched_at for instance in fleet.own_instances), default=None)
    if first_launch:
        yield min(first_launch, fleet.now), "instances live without a lease"
    elif fleet.can_scale and (fleet.desired_size or fleet.min_size):
        yield fleet.now, f"the node group wants {fleet.desired_size} nodes without a lease"


def count_excess_nodes(fleet: FleetState, config: GuardConfig) -> int:
    """Return how many nodes exceed the number in the lease; 0 without a lease."""
    if fleet.lease is None:
        return 0
    replacement_time = REPLACEMENT_GRACES * config.grace_period
    staying_count = sum(
        instance.is_up and instance.launched_at + replacement_time <= fleet.now
        for instance in fleet.own_instances
    )
    return max(0, staying_count - fleet.lease.nodes, (fleet.desired_size or 0) - fleet.lease.nodes)


def _list_misuse_reasons(
    fleet: FleetState, config: GuardConfig, lease: Lease
) -> Iterator[tuple[datetime, str]]:
    """Yield the excess of the fleet over its lease: more nodes, or nodes for somebody else."""
    own_instances = fleet.own_instances
    last_launch = min(
        max((instance.launched_at for instance in own_instances), default=fleet.now), fleet.now
    )
    if count_excess_nodes(fleet, config) and fleet.can_scale:
        counts = (
            f"wants {fleet.desired_size} nodes and has"
            f" {sum(instance.is_up for instance in own_instances)}"
        )
        yield (
            last_launch,
            f"the node group {counts}, and the lease of run {lease.run} is for {lease.nodes}",
        )
    # while EKS is at work, its description may show the new size and the old labels
    lease_labels = (
        observe.select_own_labels(lease.node_label),
        observe.select_own_labels(lease.former_label),
    )
    if fleet.is_stable and fleet.desired_size and fleet.labels not in lease_labels:
        label_text = ", ".join(sorted(fleet.labels)) or "no label"
        yield (
            last_launch,
            f"the nodes carry {label_text}, which is not what the lease of run {lease.run} says",
        )


def _list_lease_end_reasons(
    fleet: FleetState, config: GuardConfig, lease: Lease
) -> Iterator[tuple[datetime, str]]:
    """Yield the reasons that follow from the lease itself."""
    if lease.ending:
        text = f"run {lease.run} has been ending since {format_value(lease.ending)} and is not gone"
        yield lease.ending + NORMAL_END_LIMIT, text
    if fleet.is_ending:
        return
    yield lease.deadline, f"the lease of run {lease.run} ends at {format_value(lease.deadline)}"
    # the longest of a start; nodes may be replaced
    latest_end = lease.created + timedelta(hours=config.max_hours)
    if latest_end < lease.deadline:
        yield latest_end, f"the lease of run {lease.run} is older than {config.max_hours:g} hours"
    if lease.beats and "heartbeat" not in fleet.unknown:
        last_beat = max(fleet.heartbeat or lease.created, lease.created)
        yield (
            last_beat + config.idle_limit,
            f"run {lease.run} has not beaten since {format_value(last_beat)}",
        )
    is_empty = "instances" not in fleet.unknown and not fleet.own_instances
    is_at_zero = is_empty and (fleet.desired_size == 0 or fleet.has_node_group is False)
    if is_at_zero:
        # a stop that could not write the fence, a Fleet update, or a start that died before its
        # raise
        yield (
            lease.created + config.grace_period,
            f"run {lease.run} has a lease and its fleet is at 0",
        )


def _compute_metrics(fleet: FleetState, config: GuardConfig) -> Iterator[tuple[str, float]]:
    """Yield the known figures; each alarm's settings decide about a missing one."""
    if "instances" in fleet.unknown:
        return
    own_instances = fleet.own_instances
    running_instances = [instance for instance in own_instances if instance.is_up]
    ages_hours = [
        (fleet.now - instance.launched_at) / timedelta(hours=1) for instance in own_instances
    ]
    yield pass_metrics.INSTANCES_ALIVE, float(len(own_instances))
    yield pass_metrics.OLDEST_INSTANCE_HOURS, max([0.0, *ages_hours])
    yield (
        pass_metrics.FLEET_USD,
        len(running_instances) * config.usd_per_hour * pass_metrics.PASS_MINUTES / 60,
    )
    if "lease" not in fleet.unknown:
        yield pass_metrics.EXCESS_NODES, float(count_excess_nodes(fleet, config))
    if not {"lease", "fence"} & fleet.unknown.keys():
        is_idle = fleet.is_block_paid and not (running_instances and fleet.live_lease)
        yield pass_metrics.IDLE_BLOCK_MINUTES, float(pass_metrics.PASS_MINUTES if is_idle else 0)
