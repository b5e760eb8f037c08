# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Node groups with machines: an Auto Scaling group each starts, stops and replaces instances.

The group's own numbers decide, whether EKS, CloudFormation or Auto Scaling's API wrote them last. A
thread looks twenty times a second, so a fleet follows without a call. Invariant: DescribeInstances
lists the group's actions, never the requests to it.
"""

from __future__ import annotations

import logging
import threading
import time

from ministack.core.responses import new_uuid, set_request_account_id, set_request_region
from ministack.services import autoscaling, ec2, eks

from . import fleet_instances, fleet_settings, scaling_groups
from .fleet_instances import ALIVE_STATES, instance_state

TICK_S = 0.2
SETTLE_TIMEOUT_S = 30.0  # CloudFormation waits so long for a node group; AWS would for an hour
_NODE_GROUP_FIELD = "_tandem_node_group"  # on an Auto Scaling group's record: `cluster/node group`
_LIFECYCLE_STATES = {"pending": "Pending", "running": "InService", "shutting-down": "Terminating"}
_LOG = logging.getLogger("tandem.node_groups")
# called with `cluster/node group` when its instances are as requested
settle_callbacks = []
# called with the Auto Scaling group and the node group before the group's instances are looked at
block_callbacks = []
# called with a node group; one that returns true keeps instances from starting, as without capacity
launch_checks = []


def install(_handlers: dict) -> None:
    """Take over the groups of node groups from MiniStack, and start the thread watching them."""
    reconcile_plain = autoscaling._reconcile_instances

    def reconcile_group(group):
        if _NODE_GROUP_FIELD not in group:
            reconcile_plain(group)
            return
        nodegroup = eks._nodegroups.get(group[_NODE_GROUP_FIELD])
        if nodegroup:
            nodegroup["scalingConfig"] = {
                "minSize": group["MinSize"],
                "maxSize": group["MaxSize"],
                "desiredSize": group["DesiredCapacity"],
            }
        settle_group(group)

    autoscaling._reconcile_instances = reconcile_group
    fleet_settings.due_actions.append(settle_all_groups)
    threading.Thread(target=_settle_forever, daemon=True, name="tandem-node-groups").start()


def _settle_forever():
    while True:
        time.sleep(TICK_S)
        try:
            settle_all_groups()
        except Exception:  # noqa: BLE001  # the thread has to live; what was found stands in the endpoint's log
            _LOG.exception("the fleets could not be looked at")


def settle_all_groups() -> None:
    """Do all due work in every node group of every account and region."""
    for (account, region, _name), group in autoscaling._asgs.all_items():
        if _NODE_GROUP_FIELD in group:
            set_request_account_id(account)
            set_request_region(region)
            settle_group(group)


def create_group(nodegroup: dict) -> None:
    """Make a new node group's Auto Scaling group, with its first instances pending."""
    name = f"eks-{nodegroup['nodegroupName']}-{new_uuid()}"
    cluster = nodegroup["clusterName"]
    zones = [
        ec2._subnets[subnet_id]["AvailabilityZone"]
        for subnet_id in nodegroup["subnets"]
        if subnet_id in ec2._subnets
    ]
    tags = {
        "eks:cluster-name": cluster,
        "eks:nodegroup-name": nodegroup["nodegroupName"],
        "k8s.io/cluster-autoscaler/enabled": "true",
        f"k8s.io/cluster-autoscaler/{cluster}": "owned",
        f"kubernetes.io/cluster/{cluster}": "owned",
    }
    parameters = {
        "AutoScalingGroupName": name,
        "DesiredCapacity": "0",
        "VPCZoneIdentifier": ",".join(nodegroup["subnets"]),
        **{
            f"AvailabilityZones.member.{position}": zone
            for position, zone in enumerate(dict.fromkeys(zones), 1)
        },
    }
    for position, (key, value) in enumerate(tags.items(), 1):
        tag = {"Key": key, "Value": value, "PropagateAtLaunch": "true"}
        parameters |= {
            f"Tags.member.{position}.{tag_field}": item for tag_field, item in tag.items()
        }
    autoscaling._create_asg(parameters)
    autoscaling._asgs[name][_NODE_GROUP_FIELD] = _nodegroup_path(nodegroup)
    nodegroup["resources"]["autoScalingGroups"] = [{"name": name}]
    nodegroup["status"] = "CREATING"
    apply_sizes(nodegroup)


def _nodegroup_path(nodegroup):
    return f"{nodegroup['clusterName']}/{nodegroup['nodegroupName']}"


def find_group(nodegroup: dict) -> dict | None:
    """Return the Auto Scaling group's record."""
    return autoscaling._asgs.get(nodegroup["resources"]["autoScalingGroups"][0]["name"])


def apply_sizes(nodegroup: dict) -> None:
    """Copy a node group's sizes to its Auto Scaling group, from any writer."""
    group = find_group(nodegroup)
    scaling = nodegroup["scalingConfig"]
    if group is None:
        return
    with fleet_settings.lock:
        numbers = (
            ("MinSize", "minSize"),
            ("MaxSize", "maxSize"),
            ("DesiredCapacity", "desiredSize"),
        )
        group.update(
            {
                group_field: int(scaling.get(nodegroup_field, 0))
                for group_field, nodegroup_field in numbers
            }
        )
        settle_group(group)


def settle_group(group: dict) -> None:
    """Do work until none is due: move instances, start and stop them, and record the result."""
    with fleet_settings.lock:
        nodegroup = eks._nodegroups.get(group[_NODE_GROUP_FIELD])
        if nodegroup is None:
            return
        for callback in block_callbacks:
            callback(group, nodegroup)
        while _settle_once(group, nodegroup):
            pass
        _update_records(group, nodegroup)


def _alive_instances(group):
    return [
        instance
        for instance in fleet_instances.list_instances(group["AutoScalingGroupName"])
        if instance_state(instance) in ALIVE_STATES
    ]


def _settle_once(group, nodegroup):
    """Do one round of work; return whether another may find more."""
    name = group["AutoScalingGroupName"]
    members = fleet_instances.list_instances(name)
    has_moves = fleet_instances.move_due_instances(members)
    deleting = nodegroup["status"] == "DELETING"
    desired_size = 0 if deleting else group["DesiredCapacity"]
    alive = _alive_instances(group)
    keeps_surplus = fleet_settings.read_settings().keeps_surplus or scaling_groups.is_suspended(
        group, scaling_groups.TERMINATE_PROCESS
    )
    surplus = [] if keeps_surplus else alive[: max(len(alive) - desired_size, 0)]
    broken = [
        member for member in members if instance_state(member) in ("stopping", "stopped")
    ]  # fails a health check, so is replaced
    for instance in surplus + broken:
        fleet_instances.terminate_instance(instance)
    launch_count = 0
    if not _is_launch_suspended(group) and _has_capacity(nodegroup):
        launch_count = max(desired_size - len(alive), 0)
    for _ in range(launch_count):
        fleet_instances.launch_instance(name, nodegroup, _choose_subnet(group, nodegroup))
    return has_moves or bool(surplus or broken or launch_count)


def _is_launch_suspended(group):
    return scaling_groups.is_suspended(group, scaling_groups.LAUNCH_PROCESS)


def _has_capacity(nodegroup):
    is_closed = any(check(nodegroup) for check in launch_checks)
    return not is_closed and not fleet_settings.read_settings().no_capacity


def _choose_subnet(group, nodegroup):
    """Return the first subnet with the fewest instances: Auto Scaling keeps zones even."""
    subnet_ids = [instance["SubnetId"] for instance in _alive_instances(group)]
    return min(nodegroup["subnets"], key=subnet_ids.count) if nodegroup["subnets"] else ""


def _update_records(group, nodegroup):
    """Update from instances: the group's list, the node group's status, health and updates."""
    instances = fleet_instances.list_instances(group["AutoScalingGroupName"])
    activities = {
        instance["InstanceId"]: fleet_instances.list_activities(instance) for instance in instances
    }
    group[scaling_groups.ACTIVITY_FIELD] = group.get(scaling_groups.ACTIVITY_FIELD, {}) | activities
    members = [instance for instance in instances if instance_state(instance) in _LIFECYCLE_STATES]
    group["Instances"] = [_group_member(instance, nodegroup) for instance in members]
    if nodegroup["status"] == "DELETING":
        if not members:
            _remove_group(group, nodegroup)
        return
    alive = _alive_instances(group)
    desired_size = group["DesiredCapacity"]
    is_stable = len(members) == desired_size and all(
        instance_state(instance) == "running" for instance in members
    )
    if len(alive) < desired_size and not _is_launch_suspended(group):
        _set_launch_failure(nodegroup, group)
    elif is_stable and nodegroup["status"] in ("CREATING", "UPDATING"):
        nodegroup["status"] = "ACTIVE"
    elif is_stable and desired_size and nodegroup["status"] == "DEGRADED":
        # Only a group that grew is healthy again; one that is set to 0 stays as it is
        # (aws/containers-roadmap 2326).
        nodegroup.update(status="ACTIVE", health={"issues": []})
    if is_stable:
        for callback in settle_callbacks:
            callback(group[_NODE_GROUP_FIELD])


def _group_member(instance, nodegroup):
    template = fleet_instances.template_version(nodegroup)
    template_reference = (
        {
            "LaunchTemplateId": template["LaunchTemplateId"],
            "LaunchTemplateName": template["LaunchTemplateName"],
            "Version": str(template["VersionNumber"]),
        }
        if template
        else {}
    )
    return {
        "InstanceId": instance["InstanceId"],
        "LifecycleState": _LIFECYCLE_STATES[instance_state(instance)],
        "HealthStatus": "Healthy",
        "AvailabilityZone": instance["Placement"]["AvailabilityZone"],
        "ProtectedFromScaleIn": False,
        "LaunchTemplate": template_reference,
    }


def _set_launch_failure(nodegroup, group):
    """Set the health issue that EKS reports when Auto Scaling cannot launch."""
    kind = "Spot" if nodegroup.get("capacityType") == "SPOT" else "On-Demand"
    issue = {
        "code": "AsgInstanceLaunchFailures",
        "message": (
            f"Could not launch {kind} Instances. InsufficientInstanceCapacity - there is no"
            " capacity here, as the endpoint was told. Launching EC2 instance failed."
        ),
        "resourceIds": [group["AutoScalingGroupName"]],
    }
    status = "CREATE_FAILED" if nodegroup["status"] in ("CREATING", "CREATE_FAILED") else "DEGRADED"
    nodegroup.update(status=status, health={"issues": [issue]})


def _remove_group(group, nodegroup):
    autoscaling._delete_asg({"AutoScalingGroupName": group["AutoScalingGroupName"]})
    eks._nodegroups.pop(group[_NODE_GROUP_FIELD], None)
    eks._tags.pop(nodegroup["nodegroupArn"], None)


def wait_settled(cluster: str, name: str) -> None:
    """Wait until a node group is ACTIVE, or gone if it is being deleted; for CloudFormation.

    Raises:
        ValueError: the node group failed, or took longer than SETTLE_TIMEOUT_S.
    """
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while time.monotonic() < deadline:
        nodegroup = eks._nodegroups.get(f"{cluster}/{name}")
        if nodegroup is None or nodegroup["status"] in ("ACTIVE", "DEGRADED"):
            return
        if nodegroup["status"] == "CREATE_FAILED":
            raise ValueError(
                "; ".join(
                    f"{issue['code']}: {issue['message']}"
                    for issue in nodegroup["health"]["issues"]
                )
            )
        time.sleep(TICK_S / 2)
    raise ValueError(f"Nodegroup {name} did not stabilize: {nodegroup['status']}")
