# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Node groups with machines behind them: an Auto Scaling group each, which starts, stops and replaces instances.

The group's own numbers decide, whoever wrote them last: EKS, CloudFormation, or Auto Scaling's API. A thread looks
twenty times a second, so a fleet follows without being asked.
Invariant: what DescribeInstances lists is what the group did, never what was asked of it.
"""

from __future__ import annotations

import logging
import threading
import time

from ministack.core.responses import new_uuid, set_request_account_id, set_request_region
from ministack.services import autoscaling, ec2, eks

from . import fleet_instances, fleet_knobs, scaling_groups
from .fleet_instances import ALIVE, state

NEEDS = {
    autoscaling: ("_asgs", "_create_asg", "_delete_asg", "_reconcile_instances"),
    ec2: ("_subnets",),
    eks: ("_nodegroups", "_now", "_tags"),
}

TICK_S = 0.05
SETTLED_S = 30.0  # CloudFormation waits so long for a node group; AWS would for an hour
_OF = "_tandem_node_group"  # on an Auto Scaling group's record: `cluster/node group`
_LIFECYCLE = {"pending": "Pending", "running": "InService", "shutting-down": "Terminating"}
_LOG = logging.getLogger("tandem.node_groups")
# called with `cluster/node group` when its instances are as asked for
followed = []


def install(_handlers: dict) -> None:
    """Take the groups of node groups out of MiniStack's hands, and begin to look."""
    reconcile = autoscaling._reconcile_instances

    def reconciled(group):
        if _OF not in group:
            reconcile(group)
            return
        nodegroup = eks._nodegroups.get(group[_OF])
        if nodegroup:
            nodegroup["scalingConfig"] = {
                "minSize": group["MinSize"], "maxSize": group["MaxSize"], "desiredSize": group["DesiredCapacity"],
            }  # fmt: skip
        settle(group)

    autoscaling._reconcile_instances = reconciled
    fleet_knobs.due.append(settle_all)
    threading.Thread(target=_look, daemon=True, name="tandem-node-groups").start()


def _look():
    while True:
        time.sleep(TICK_S)
        try:
            settle_all()
        except Exception:  # noqa: BLE001  # the thread has to live; what was found stands in the endpoint's log
            _LOG.exception("the fleets could not be looked at")


def settle_all() -> None:
    """Do what is due in every node group of every account and region."""
    for (account, region, _name), group in autoscaling._asgs.all_items():
        if _OF in group:
            set_request_account_id(account)
            set_request_region(region)
            settle(group)


def begin(nodegroup: dict) -> None:
    """Make a new node group's Auto Scaling group, with its first instances pending."""
    name = f"eks-{nodegroup['nodegroupName']}-{new_uuid()}"
    cluster = nodegroup["clusterName"]
    zones = [ec2._subnets[one]["AvailabilityZone"] for one in nodegroup["subnets"] if one in ec2._subnets]
    tags = {
        "eks:cluster-name": cluster, "eks:nodegroup-name": nodegroup["nodegroupName"],
        "k8s.io/cluster-autoscaler/enabled": "true", f"k8s.io/cluster-autoscaler/{cluster}": "owned",
        f"kubernetes.io/cluster/{cluster}": "owned",
    }  # fmt: skip
    parameters = {
        "AutoScalingGroupName": name, "DesiredCapacity": "0", "VPCZoneIdentifier": ",".join(nodegroup["subnets"]),
        **{f"AvailabilityZones.member.{place}": zone for place, zone in enumerate(dict.fromkeys(zones), 1)},
    }  # fmt: skip
    for place, (key, value) in enumerate(tags.items(), 1):
        said = {"Key": key, "Value": value, "PropagateAtLaunch": "true"}
        parameters |= {f"Tags.member.{place}.{part}": item for part, item in said.items()}
    autoscaling._create_asg(parameters)
    autoscaling._asgs[name][_OF] = _key(nodegroup)
    nodegroup["resources"]["autoScalingGroups"] = [{"name": name}]
    nodegroup["status"] = "CREATING"
    follow(nodegroup)


def _key(nodegroup):
    return f"{nodegroup['clusterName']}/{nodegroup['nodegroupName']}"


def group_of(nodegroup: dict) -> dict | None:
    """The Auto Scaling group's record."""
    return autoscaling._asgs.get(nodegroup["resources"]["autoScalingGroups"][0]["name"])


def follow(nodegroup: dict) -> None:
    """Take a node group's sizes over, whoever wrote them into it."""
    group, scaling = group_of(nodegroup), nodegroup["scalingConfig"]
    if group is None:
        return
    with fleet_knobs.lock:
        numbers = (("MinSize", "minSize"), ("MaxSize", "maxSize"), ("DesiredCapacity", "desiredSize"))
        group.update({theirs: int(scaling.get(ours, 0)) for theirs, ours in numbers})
        settle(group)


def recycle(nodegroup: dict) -> None:
    """Replace every instance, as a new version of the launch template does; all at once, where EKS goes in steps."""
    group = group_of(nodegroup)
    with fleet_knobs.lock:
        nodegroup["status"] = "UPDATING"
        for instance in _alive(group):
            fleet_instances.terminate(instance)
        settle(group)


def settle(group: dict) -> None:
    """Do all that is due now, until nothing more is: move instances, start and stop, say what became of it."""
    with fleet_knobs.lock:
        nodegroup = eks._nodegroups.get(group[_OF])
        if nodegroup is None:
            return
        while _step(group, nodegroup):
            pass
        _report(group, nodegroup)


def _alive(group):
    return [one for one in fleet_instances.members(group["AutoScalingGroupName"]) if state(one) in ALIVE]


def _step(group, nodegroup):
    """One round; whether another may find something to do."""
    name, knobs = group["AutoScalingGroupName"], fleet_knobs.of(group[_OF])
    members = fleet_instances.members(name)
    changed = fleet_instances.moved(members)
    deleting = nodegroup["status"] == "DELETING"
    wanted = 0 if deleting else group["DesiredCapacity"]
    alive = _alive(group)
    keeps = knobs.keeps_surplus or scaling_groups.is_suspended(group, scaling_groups.TERMINATE)
    surplus = [] if keeps else alive[: max(len(alive) - wanted, 0)]
    broken = [one for one in members if state(one) in ("stopping", "stopped")]  # fails a health check, so is replaced
    for instance in surplus + broken:
        fleet_instances.terminate(instance)
    lacking = 0 if _is_held(group) else max(min(wanted, _startable(wanted, len(alive), knobs)) - len(alive), 0)
    for _ in range(lacking):
        fleet_instances.launch(name, nodegroup, _subnet(group, nodegroup))
    return changed or bool(surplus or broken or lacking)


def _is_held(group):
    return scaling_groups.is_suspended(group, scaling_groups.LAUNCH)


def _startable(wanted, alive, knobs):
    if knobs.no_capacity:
        return alive
    return wanted // 2 if knobs.half else wanted


def _subnet(group, nodegroup):
    """The subnet with the fewest instances, the first of these: Auto Scaling keeps its zones even."""
    taken = [one["SubnetId"] for one in _alive(group)]
    return min(nodegroup["subnets"], key=taken.count) if nodegroup["subnets"] else ""


def _report(group, nodegroup):
    """Say on the records what the instances are: the group's list, the node group's status and health, its updates."""
    members = [one for one in fleet_instances.members(group["AutoScalingGroupName"]) if state(one) in _LIFECYCLE]
    group["Instances"] = [_member(one, nodegroup) for one in members]
    if nodegroup["status"] == "DELETING":
        if not members:
            _end(group, nodegroup)
        return
    alive, wanted = _alive(group), group["DesiredCapacity"]
    as_asked = len(members) == wanted and all(state(one) == "running" for one in members)
    if len(alive) < wanted and not _is_held(group):
        _fail(nodegroup, group)
    elif as_asked and nodegroup["status"] in ("CREATING", "UPDATING"):
        nodegroup["status"] = "ACTIVE"
    elif as_asked and wanted and nodegroup["status"] == "DEGRADED":
        # Only a group that grew is healthy again; one that is set to 0 stays as it is (aws/containers-roadmap 2326).
        nodegroup.update(status="ACTIVE", health={"issues": []})
    if as_asked:
        for told in followed:
            told(group[_OF])


def _member(instance, nodegroup):
    template = fleet_instances.template_version(nodegroup)
    named = {"LaunchTemplateId": template["LaunchTemplateId"], "LaunchTemplateName": template["LaunchTemplateName"],
             "Version": str(template["VersionNumber"])} if template else {}  # fmt: skip
    return {
        "InstanceId": instance["InstanceId"], "LifecycleState": _LIFECYCLE[state(instance)], "HealthStatus": "Healthy",
        "AvailabilityZone": instance["Placement"]["AvailabilityZone"], "ProtectedFromScaleIn": False,
        "LaunchTemplate": named,
    }  # fmt: skip


def _fail(nodegroup, group):
    """What EKS reports when Auto Scaling cannot launch."""
    kind = "Spot" if nodegroup.get("capacityType") == "SPOT" else "On-Demand"
    issue = {
        "code": "AsgInstanceLaunchFailures",
        "message": f"Could not launch {kind} Instances. InsufficientInstanceCapacity - there is no capacity here, as "
        "the endpoint was told. Launching EC2 instance failed.",
        "resourceIds": [group["AutoScalingGroupName"]],
    }
    status = "CREATE_FAILED" if nodegroup["status"] in ("CREATING", "CREATE_FAILED") else "DEGRADED"
    nodegroup.update(status=status, health={"issues": [issue]})


def _end(group, nodegroup):
    autoscaling._delete_asg({"AutoScalingGroupName": group["AutoScalingGroupName"]})
    eks._nodegroups.pop(group[_OF], None)
    eks._tags.pop(nodegroup["nodegroupArn"], None)


def awaited(cluster: str, name: str) -> None:
    """Wait until a node group is ACTIVE, or gone if it is being deleted; for CloudFormation.

    Raises:
        ValueError: it failed, or took longer than SETTLED_S.
    """
    deadline = time.monotonic() + SETTLED_S
    while time.monotonic() < deadline:
        nodegroup = eks._nodegroups.get(f"{cluster}/{name}")
        if nodegroup is None or nodegroup["status"] in ("ACTIVE", "DEGRADED"):
            return
        if nodegroup["status"] == "CREATE_FAILED":
            raise ValueError("; ".join(f"{one['code']}: {one['message']}" for one in nodegroup["health"]["issues"]))
        time.sleep(TICK_S / 2)
    raise ValueError(f"Nodegroup {name} did not stabilize: {nodegroup['status']}")
