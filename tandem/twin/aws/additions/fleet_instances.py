# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""The EC2 side of a node group: instances that start and stop in their own time, tagged as EKS tags them.

Invariant: an instance passes pending and shutting-down, each for its delay, and takes its root volume with it.
"""

from __future__ import annotations

import hashlib
import re
import time

from ministack.services import ec2

from . import fleet_knobs
from .handlers import REFUSED

NEEDS = {
    ec2: (
        "_ACTION_MAP", "_instance_xml", "_instances", "_launch_instances_internal", "_launch_templates",
        "_parse_member_list", "_subnets", "_tags", "_terminate_instances", "_volumes",
    ),
}  # fmt: skip

GROUP = "_tandem_group"  # on an instance's record: the Auto Scaling group it belongs to
_DUE, _LAUNCHED = "_tandem_due", "_tandem_launched"
_STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}
ALIVE = ("pending", "running")
_LIFECYCLES = {"SPOT": "spot", "CAPACITY_BLOCK": "capacity-block"}


def install(_handlers: dict) -> None:
    """Let a termination by id take its time, and print what kind of capacity an instance is on."""
    terminate, printed = ec2._terminate_instances, ec2._instance_xml
    ec2._ACTION_MAP["TerminateInstances"] = lambda parameters: _terminated_by_id(terminate, parameters)
    ec2._instance_xml = lambda instance: _with_capacity(printed(instance), instance)
    fleet_knobs.due.append(_restamp)


def members(group: str) -> list[dict]:
    """Every instance of an Auto Scaling group that EC2 still lists, in the order of their launch."""
    found = [instance for instance in ec2._instances.values() if instance.get(GROUP) == group]
    return sorted(found, key=lambda instance: instance[_LAUNCHED])


def state(instance: dict) -> str:
    """The name of its state."""
    return instance["State"]["Name"]


def moved(instances: list[dict]) -> bool:
    """Move each instance whose delay is over; whether any was."""
    arrived = [one for one in instances if one.get(_DUE) is not None and one[_DUE] <= fleet_knobs.now()]
    for instance in arrived:
        instance[_DUE] = None
        if state(instance) == "pending":
            _to(instance, "running")
        elif state(instance) == "shutting-down":
            _to(instance, "terminated")
            instance["_terminated_at"] = time.time()  # MiniStack forgets it a minute later, by its own clock
            for disk in instance.pop("BlockDeviceMappings", []):
                ec2._volumes.pop(disk["Ebs"]["VolumeId"], None)
    return bool(arrived)


def _to(instance, name):
    instance["State"] = {"Code": _STATES[name], "Name": name}


def launch(group: str, nodegroup: dict, subnet: str) -> None:
    """Start one instance for a node group in a subnet; it is pending first."""
    knobs = fleet_knobs.of(f"{nodegroup['clusterName']}/{nodegroup['nodegroupName']}")
    template = template_version(nodegroup)
    data = template.get("LaunchTemplateData", {})
    [instance] = ec2._launch_instances_internal(
        data.get("ImageId") or _image(nodegroup),
        data.get("InstanceType") or (nodegroup.get("instanceTypes") or ["t3.medium"])[0],
        subnet, 1, sg_ids=_security_groups(data),
    )  # fmt: skip
    zone = ec2._subnets.get(subnet, {}).get("AvailabilityZone")
    if zone:
        instance["Placement"]["AvailabilityZone"] = zone
    _to(instance, "pending")
    instance.update({
        GROUP: group, _LAUNCHED: fleet_knobs.now(), _DUE: fleet_knobs.now() + knobs.start_delay_s * knobs.slow_factor,
        "_tandem_lifecycle": _LIFECYCLES.get(nodegroup.get("capacityType")),
        "_tandem_reservation": _reservation(data),
        "_tandem_node_group": f"{nodegroup['clusterName']}/{nodegroup['nodegroupName']}",
    })  # fmt: skip
    _stamp(instance)
    ec2._tags[instance["InstanceId"]] = _tags(group, nodegroup, template)
    _disk(instance, data)


def _image(nodegroup):
    """A made-up AMI id, the same for the same type and release."""
    release = f"{nodegroup.get('amiType')} {nodegroup.get('version')} {nodegroup.get('releaseVersion')}"
    return f"ami-{hashlib.sha256(release.encode()).hexdigest()[:17]}"


def _security_groups(data):
    of_interfaces = [group for one in data.get("NetworkInterfaces", [])[:1] for group in one.get("Groups", [])]
    return of_interfaces or data.get("SecurityGroupIds")


def _reservation(data):
    target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    return target.get("CapacityReservationId")


def _disk(instance, data):
    """The root volume with the size and the tags that the launch template gives it."""
    [volume] = [ec2._volumes[disk["Ebs"]["VolumeId"]] for disk in instance["BlockDeviceMappings"]]
    volume["AvailabilityZone"] = instance["Placement"]["AvailabilityZone"]
    for said in data.get("BlockDeviceMappings", [])[:1]:
        volume["Size"] = said.get("Ebs", {}).get("VolumeSize", volume["Size"])
    tags = _specified(data, "volume")
    if tags:
        ec2._tags[volume["VolumeId"]] = tags


def template_version(nodegroup: dict) -> dict:
    """The version of the launch template that a node group names; empty where it names none."""
    said = nodegroup.get("launchTemplate") or {}
    for template in ec2._launch_templates.values():
        if template["LaunchTemplateId"] == said.get("id") or template["LaunchTemplateName"] == said.get("name"):
            numbers = {"$Latest": template["LatestVersionNumber"], "$Default": template["DefaultVersionNumber"]}
            wanted = str(numbers.get(said.get("version"), said.get("version", template["DefaultVersionNumber"])))
            return next((one for one in template["Versions"] if str(one["VersionNumber"]) == wanted), {})
    return {}


def _tags(group, nodegroup, template):
    """EKS's own tags and the launch template's; the node group's own tags reach no instance, says the EKS API."""
    cluster = nodegroup["clusterName"]
    own = {
        "aws:autoscaling:groupName": group,
        "aws:eks:cluster-name": cluster,
        "eks:cluster-name": cluster,
        "eks:nodegroup-name": nodegroup["nodegroupName"],
        "k8s.io/cluster-autoscaler/enabled": "true",
        f"k8s.io/cluster-autoscaler/{cluster}": "owned",
        f"kubernetes.io/cluster/{cluster}": "owned",
    }
    if template:
        # EKS launches from a copy of its own; here the tag names the template that was given.
        own["aws:ec2launchtemplate:id"] = template["LaunchTemplateId"]
        own["aws:ec2launchtemplate:version"] = str(template["VersionNumber"])
    given = [tag for tag in _specified(template.get("LaunchTemplateData", {}), "instance") if tag["Key"] not in own]
    return [{"Key": key, "Value": value} for key, value in own.items()] + given


def _specified(data, kind):
    return [
        {"Key": tag["Key"], "Value": tag.get("Value", "")}
        for specification in data.get("TagSpecifications", [])
        if specification.get("ResourceType") == kind
        for tag in specification.get("Tags", [])
    ]


def _stamp(instance):
    older_s = fleet_knobs.of(instance["_tandem_node_group"]).older_s
    instance["LaunchTime"] = fleet_knobs.stamp(instance[_LAUNCHED] - older_s)


def _restamp():
    for instance in ec2._instances.all_values():
        if GROUP in instance:
            _stamp(instance)


def terminate(instance: dict) -> None:
    """Shut an instance down; it is terminated after its delay."""
    knobs = fleet_knobs.of(instance["_tandem_node_group"])
    _to(instance, "shutting-down")
    instance[_DUE] = fleet_knobs.now() + knobs.stop_delay_s * knobs.slow_factor


def _terminated_by_id(original, parameters):
    """TerminateInstances: an instance of a node group is not gone at once, as MiniStack would have it."""
    with fleet_knobs.lock:
        return _shut_down(original, parameters)


def _shut_down(original, parameters):
    named = [ec2._instances.get(identity) for identity in ec2._parse_member_list(parameters, "InstanceId")]
    ours = [(one, dict(one["State"]), one.get("_terminated_at")) for one in named if one and GROUP in one]
    status, head, body = original(parameters)
    if status >= REFUSED:
        return status, head, body
    for instance, before, terminated_at in ours:
        if before["Name"] == "shutting-down":
            instance["State"] = before
        elif before["Name"] == "terminated":
            instance["_terminated_at"] = terminated_at
        else:
            terminate(instance)
        body = _with_state(body, instance)
    return status, head, body


def _with_state(body, instance):
    said = f"<code>{instance['State']['Code']}</code><name>{instance['State']['Name']}</name>"
    pattern = rf"(<instanceId>{instance['InstanceId']}</instanceId>.*?<currentState>).*?(</currentState>)"
    text = body.decode() if isinstance(body, bytes) else body
    return re.sub(pattern, rf"\g<1>{said}\g<2>", text, flags=re.DOTALL).encode()


def _with_capacity(text, instance):
    more = "".join(
        f"<{tag}>{instance[key]}</{tag}>"
        for tag, key in (("instanceLifecycle", "_tandem_lifecycle"), ("capacityReservationId", "_tandem_reservation"))
        if instance.get(key)
    )
    head, _, tail = text.rpartition("</item>")
    return f"{head}{more}</item>{tail}"
