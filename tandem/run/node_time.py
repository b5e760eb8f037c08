"""Time of a lease's nodes by AWS's own times: hours without a runner are neither added nor lost.

EC2 lists a terminated instance for about an hour, with the moment at which its end began; from
there on nobody pays. Auto Scaling lists every launch and every end of its group for six weeks, an
end when it is over, minutes later. So EC2's times count where EC2 still lists the instance, else
Auto Scaling's; without either, the time is the runner's own count, and the lease says so.

Source: EC2 user guide, "Amazon EC2 instance state changes"; EC2 API reference, Instance
(`stateTransitionReason`: "User initiated (2013-10-24 18:11:30 GMT)"); Amazon EC2 Auto Scaling API
reference, DescribeScalingActivities.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from tandem.errors import ExternalError
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fleet_state import FleetState
from tandem.guard.observe import list_instances
from tandem.guard.ownership import is_transient
from tandem.guard.pager import iterate_pages
from tandem.guard.values import CALL_ERRORS, describe_error
from tandem.run.journal import RETRY_ADVICE
from tandem.run.run_values import LeaseSpan

# an instance may be launched so long before the lease, by another clock
CLOCK_SLACK = timedelta(minutes=1)
ENDED_STATES = frozenset({"shutting-down", "terminated"})
_TRANSITION_TIME = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
_ACTIVITY = re.compile(r"(Launching a new|Terminating) EC2 instance: (i-[0-9a-f]+)")


@dataclass(frozen=True, kw_only=True)
class NodeTime:
    """Time of a lease's nodes.

    Args:
        paid_s: seconds of all its nodes.
        ended_at: when the last of them ended; the moment of the look if that is not known.
        doubt: why the time is the runner's own count, in one sentence; empty if AWS's times say all
            of it.
    """

    paid_s: float
    ended_at: datetime
    doubt: str = ""


@dataclass(frozen=True, kw_only=True)
class InstanceTimes:
    """Times of one instance; `ended_at` is None if nobody says when it ended."""

    launched_at: datetime
    ended_at: datetime | None = None


def read_node_time(
    clients: AwsClients, config: GuardConfig, fleet: FleetState, lease: LeaseSpan, *, is_last: bool
) -> NodeTime:
    """Return the time of a lease's nodes, none of which is alive any more.

    Args:
        clients, config: of the environment.
        fleet: as it stands; a node whose end is not known counts until its moment.
        lease: with the moments between which its nodes were launched.
        is_last: whether a fault that may pass is no reason to try again.

    Raises:
        ExternalError: AWS failed for a moment; the next look tries again.
    """
    unknown_group = fleet.unknown.get("node group", "")
    try:
        times = _read_times(clients, config, fleet.scaling_groups, _find_first_launch(lease))
    except CALL_ERRORS as error:
        reason = describe_error(error)
        may_pass = is_transient(error)
    else:
        reason = unknown_group or ("" if fleet.scaling_groups else "the node group is gone")
        may_pass = bool(unknown_group)
    if may_pass and not is_last:
        raise ExternalError(f"the times of the nodes are not read: {reason}", change=RETRY_ADVICE)
    if reason:
        span_s = (fleet.now - datetime.fromisoformat(lease.raised_at)).total_seconds()
        return NodeTime(
            paid_s=lease.nodes * span_s,
            ended_at=fleet.now,
            doubt=f"AWS's times of the nodes are unknown: {reason}",
        )
    own_times = {
        instance: row for instance, row in times.items() if _is_of_lease(row, lease, fleet)
    }
    return _sum_times(own_times, fleet.now)


def _sum_times(times: Mapping[str, InstanceTimes], now: datetime) -> NodeTime:
    """Return the time of some instances; one whose end is not known counts until now."""
    ends = []
    spans_s = []
    for row in times.values():
        end = min(row.ended_at or now, now)
        ends.append(end)
        spans_s.append((end - row.launched_at).total_seconds())
    doubt = ""
    unended = sorted(instance for instance, row in times.items() if row.ended_at is None)
    if unended:
        doubt = f"neither EC2 nor Auto Scaling lists the end of {', '.join(unended)}"
    return NodeTime(paid_s=sum(spans_s), ended_at=max(ends, default=now), doubt=doubt)


def _find_first_launch(lease: LeaseSpan) -> datetime:
    return datetime.fromisoformat(lease.raised_at) - CLOCK_SLACK


def _is_of_lease(row: InstanceTimes, lease: LeaseSpan, fleet: FleetState) -> bool:
    """Tell whether an instance is of a lease: launched before its deadline and the next lease."""
    ends = [datetime.fromisoformat(lease.deadline)]
    if fleet.lease is not None and fleet.lease.run != lease.name:
        ends.append(fleet.lease.created - CLOCK_SLACK)
    return _find_first_launch(lease) <= row.launched_at <= min(ends)


def _read_times(
    clients: AwsClients, config: GuardConfig, groups: Sequence[str], since: datetime
) -> dict[str, InstanceTimes]:
    """Return the times of the node group's instances: EC2's where listed, else Auto Scaling's.

    Raises:
        CALL_ERRORS: AWS does not answer, or denies a call.
    """
    launches = {}
    ends = {}
    for activity in _list_activities(clients, groups, since):
        match = _ACTIVITY.match(activity["Description"])
        if match and match[1] == "Terminating":
            ends[match[2]] = activity.get("EndTime")
        elif match:  # a launch that failed names no instance
            launches[match[2]] = activity["StartTime"]
    for instance in list_instances(clients, config):
        launches[instance["InstanceId"]] = instance["LaunchTime"].astimezone(UTC)
        end = _TRANSITION_TIME.search(instance.get("StateTransitionReason") or "")
        if end and instance["State"]["Name"] in ENDED_STATES:
            ends[instance["InstanceId"]] = datetime.fromisoformat(end[1]).replace(tzinfo=UTC)
    return {
        instance: InstanceTimes(launched_at=time, ended_at=ends.get(instance))
        for instance, time in launches.items()
    }


def _list_activities(
    clients: AwsClients, groups: Sequence[str], since: datetime
) -> Iterator[dict[str, Any]]:
    """Yield Auto Scaling groups' activities begun after a moment; a group lists newest first."""
    for group in groups:
        pages = iterate_pages(
            clients.autoscaling, "describe_scaling_activities", AutoScalingGroupName=group
        )
        for activity in chain.from_iterable(page["Activities"] for page in pages):
            if activity["StartTime"] < since:
                break
            yield activity
