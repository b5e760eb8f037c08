"""The third lever: the node group's Auto Scaling group, for when EKS refuses a size.

EKS owns this group, and its user guide asks people to leave it alone. So the lever is used only
when a stop is due and EKS had its grace. Unproven on a real account: nobody has recorded what EKS
does to a group whose launches are suspended and whose size is 0. Invariant: standard library and
boto3 only, because the Lambdas pack this file; nothing raises a size.

Source: Amazon EC2 Auto Scaling API reference, SuspendProcesses, ResumeProcesses,
UpdateAutoScalingGroup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tandem.guard.config import AwsClients

# the process that adds instances; while suspended, none is added for any reason
LAUNCH_PROCESS = "Launch"
SCALING_GROUP_TAG = "aws:autoscaling:groupName"  # Auto Scaling puts it on every instance of a group


@dataclass(frozen=True, kw_only=True)
class ScalingGroup:
    """One Auto Scaling group.

    Args:
        name: by EKS or by the instances' tag.
        desired_size, min_size: its sizes.
        suspended_processes: names of its suspended processes.
    """

    name: str
    desired_size: int
    min_size: int
    suspended_processes: tuple[str, ...] = ()


def read_scaling_groups(clients: AwsClients, names: Sequence[str]) -> tuple[ScalingGroup, ...]:
    """Return the groups of these names; missing ones are left out.

    Raises:
        CALL_ERRORS: Auto Scaling does not answer, or denies the call.
    """
    if not names:
        return ()
    answer = clients.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=list(names))
    return tuple(_build_group(group) for group in answer["AutoScalingGroups"])


def _build_group(group: Mapping[str, Any]) -> ScalingGroup:
    processes = group.get("SuspendedProcesses", [])
    return ScalingGroup(
        name=group["AutoScalingGroupName"],
        desired_size=group["DesiredCapacity"],
        min_size=group["MinSize"],
        suspended_processes=tuple(process["ProcessName"] for process in processes),
    )
