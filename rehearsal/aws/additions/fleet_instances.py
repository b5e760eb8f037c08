# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""The EC2 side of a node group: instances that start and stop in their own time, with EKS's tags.

Invariant: an instance passes pending and shutting-down, each for its delay, and takes its root
volume with it.
"""

from __future__ import annotations

import hashlib
import re
import time
from datetime import UTC, datetime

from ministack.services import ec2

from . import fleet_settings
from .handlers import ERROR_STATUS

GROUP_FIELD = "_tandem_group"  # on an instance's record: the Auto Scaling group it belongs to
RESERVATION_FIELD = "_tandem_reservation"  # likewise: the reservation that it was launched from
_DUE_FIELD = "_tandem_due"
_LAUNCH_FIELD = "_tandem_launched"
# when it began to end, and when it had ended
_END_FIELD = "_tandem_ended"
_GONE_FIELD = "_tandem_gone"
_STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}
ALIVE_STATES = ("pending", "running")
_LIFECYCLES = {"SPOT": "spot", "CAPACITY_BLOCK": "capacity-block"}


def install(_handlers: dict) -> None:
    """Let a termination by id take time, and print an instance's kind of capacity and its end."""
    terminate = ec2._terminate_instances
    print_instance = ec2._instance_xml
    ec2._ACTION_MAP["TerminateInstances"] = lambda parameters: _terminate_by_id(
        terminate, parameters
    )
    ec2._instance_xml = lambda instance: _insert_capacity(print_instance(instance), instance)
    fleet_settings.due_actions.append(_set_launch_times)


def list_instances(group: str) -> list[dict]:
    """Return an Auto Scaling group's instances that EC2 still lists, in order of launch."""
    instances = [
        instance for instance in ec2._instances.values() if instance.get(GROUP_FIELD) == group
    ]
    return sorted(instances, key=lambda instance: instance[_LAUNCH_FIELD])


def instance_state(instance: dict) -> str:
    """Return the name of an instance's state."""
    return instance["State"]["Name"]


def move_due_instances(instances: list[dict]) -> bool:
    """Move each instance whose delay is over; return whether there was one."""
    due_instances = [
        candidate
        for candidate in instances
        if candidate.get(_DUE_FIELD) is not None
        and candidate[_DUE_FIELD] <= fleet_settings.current_time()
    ]
    for instance in due_instances:
        instance[_DUE_FIELD] = None
        if instance_state(instance) == "pending":
            _set_state(instance, "running")
        elif instance_state(instance) == "shutting-down":
            _set_state(instance, "terminated")
            # MiniStack forgets it a minute later, by its own clock
            instance["_terminated_at"] = time.time()
            instance[_GONE_FIELD] = fleet_settings.current_time()
            for disk in instance.pop("BlockDeviceMappings", []):
                ec2._volumes.pop(disk["Ebs"]["VolumeId"], None)
    return bool(due_instances)


def _set_state(instance, state_name):
    instance["State"] = {"Code": _STATES[state_name], "Name": state_name}


def launch_instance(group: str, nodegroup: dict, subnet: str) -> None:
    """Start one instance for a node group in a subnet; it is pending first."""
    template = template_version(nodegroup)
    template_data = template.get("LaunchTemplateData", {})
    [instance] = ec2._launch_instances_internal(
        template_data.get("ImageId") or _image_id(nodegroup),
        template_data.get("InstanceType") or (nodegroup.get("instanceTypes") or ["t3.medium"])[0],
        subnet,
        1,
        sg_ids=_security_groups(template_data),
    )
    zone = ec2._subnets.get(subnet, {}).get("AvailabilityZone")
    if zone:
        instance["Placement"]["AvailabilityZone"] = zone
    _set_state(instance, "pending")
    instance.update(
        {
            GROUP_FIELD: group,
            _LAUNCH_FIELD: fleet_settings.current_time(),
            _DUE_FIELD: (
                fleet_settings.current_time() + fleet_settings.read_settings().start_delay_s
            ),
            "_tandem_lifecycle": _LIFECYCLES.get(nodegroup.get("capacityType")),
            RESERVATION_FIELD: reservation_id(template_data),
        }
    )
    _set_launch_time(instance)
    ec2._tags[instance["InstanceId"]] = _instance_tags(group, nodegroup, template)
    _apply_root_volume(instance, template_data)


def _image_id(nodegroup):
    """Return a made-up AMI id, the same for the same type and release."""
    release = (
        f"{nodegroup.get('amiType')} {nodegroup.get('version')} {nodegroup.get('releaseVersion')}"
    )
    return f"ami-{hashlib.sha256(release.encode()).hexdigest()[:17]}"


def _security_groups(data):
    interface_groups = [
        group
        for interface in data.get("NetworkInterfaces", [])[:1]
        for group in interface.get("Groups", [])
    ]
    return interface_groups or data.get("SecurityGroupIds")


def reservation_id(data: dict) -> str | None:
    """Return the reservation that a launch template's data name; None if they name none."""
    target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    return target.get("CapacityReservationId")


def _apply_root_volume(instance, template_data):
    """Give the root volume the zone of its instance and the tags of the launch template."""
    [volume] = [ec2._volumes[disk["Ebs"]["VolumeId"]] for disk in instance["BlockDeviceMappings"]]
    volume["AvailabilityZone"] = instance["Placement"]["AvailabilityZone"]
    tags = _template_tags(template_data, "volume")
    if tags:
        ec2._tags[volume["VolumeId"]] = tags


def template_version(nodegroup: dict) -> dict:
    """Return the version of the launch template that a node group names; empty if it names none."""
    reference = nodegroup.get("launchTemplate") or {}
    for template in ec2._launch_templates.values():
        if template["LaunchTemplateId"] == reference.get("id") or template[
            "LaunchTemplateName"
        ] == reference.get("name"):
            version_number = str(reference.get("version", template["DefaultVersionNumber"]))
            return next(
                (
                    version
                    for version in template["Versions"]
                    if str(version["VersionNumber"]) == version_number
                ),
                {},
            )
    return {}


def _instance_tags(group, nodegroup, template):
    """Return the tags of EKS and the launch template; node-group tags reach no instance in EKS."""
    cluster = nodegroup["clusterName"]
    eks_tags = {
        "aws:autoscaling:groupName": group,
        "aws:eks:cluster-name": cluster,
        "eks:cluster-name": cluster,
        "eks:nodegroup-name": nodegroup["nodegroupName"],
        "k8s.io/cluster-autoscaler/enabled": "true",
        f"k8s.io/cluster-autoscaler/{cluster}": "owned",
        f"kubernetes.io/cluster/{cluster}": "owned",
    }
    if template:
        # EKS launches from its own copy; here the tag names the given template.
        eks_tags["aws:ec2launchtemplate:id"] = template["LaunchTemplateId"]
        eks_tags["aws:ec2launchtemplate:version"] = str(template["VersionNumber"])
    template_tags = [
        tag
        for tag in _template_tags(template.get("LaunchTemplateData", {}), "instance")
        if tag["Key"] not in eks_tags
    ]
    return [{"Key": key, "Value": value} for key, value in eks_tags.items()] + template_tags


def _template_tags(template_data, kind):
    return [
        {"Key": tag["Key"], "Value": tag.get("Value", "")}
        for specification in template_data.get("TagSpecifications", [])
        if specification.get("ResourceType") == kind
        for tag in specification.get("Tags", [])
    ]


def _set_launch_time(instance):
    older_s = fleet_settings.read_settings().older_s
    instance["LaunchTime"] = fleet_settings.format_time(instance[_LAUNCH_FIELD] - older_s)


def _set_launch_times():
    for instance in ec2._instances.all_values():
        if GROUP_FIELD in instance:
            _set_launch_time(instance)


def terminate_instance(instance: dict) -> None:
    """Shut an instance down; the instance is terminated after its delay."""
    _set_state(instance, "shutting-down")
    instance[_END_FIELD] = fleet_settings.current_time()
    instance[_DUE_FIELD] = (
        fleet_settings.current_time() + fleet_settings.read_settings().stop_delay_s
    )


def _terminate_by_id(original, parameters):
    """Answer TerminateInstances: node-group instances go after their delay; MiniStack's at once."""
    with fleet_settings.lock:
        return _terminate_instances(original, parameters)


def _terminate_instances(original, parameters):
    instances = [
        ec2._instances.get(instance_id)
        for instance_id in ec2._parse_member_list(parameters, "InstanceId")
    ]
    group_instances = [
        (candidate, dict(candidate["State"]), candidate.get("_terminated_at"))
        for candidate in instances
        if candidate and GROUP_FIELD in candidate
    ]
    status, head, body = original(parameters)
    if status >= ERROR_STATUS:
        return status, head, body
    for instance, state_before, terminated_at in group_instances:
        if state_before["Name"] == "shutting-down":
            instance["State"] = state_before
        elif state_before["Name"] == "terminated":
            instance["_terminated_at"] = terminated_at
        else:
            terminate_instance(instance)
        body = _insert_state(body, instance)
    return status, head, body


def _insert_state(body, instance):
    state_xml = f"<code>{instance['State']['Code']}</code><name>{instance['State']['Name']}</name>"
    pattern = (
        rf"(<instanceId>{instance['InstanceId']}</instanceId>.*?<currentState>).*?(</currentState>)"
    )
    text = body.decode() if isinstance(body, bytes) else body
    return re.sub(pattern, rf"\g<1>{state_xml}\g<2>", text, flags=re.DOTALL).encode()


def _insert_capacity(text, instance):
    capacity_xml = "".join(
        f"<{tag}>{instance[key]}</{tag}>"
        for tag, key in (
            ("instanceLifecycle", "_tandem_lifecycle"),
            ("capacityReservationId", RESERVATION_FIELD),
        )
        if instance.get(key)
    )
    if _END_FIELD in instance:
        moment = datetime.fromtimestamp(instance[_END_FIELD], UTC)
        capacity_xml += f"<reason>User initiated ({moment:%Y-%m-%d %H:%M:%S} GMT)</reason>"
    head, _, tail = text.rpartition("</item>")
    return f"{head}{capacity_xml}</item>{tail}"


def list_activities(instance: dict) -> list[dict]:
    """Return Auto Scaling's activities of an instance: its launch, and its end once that began.

    Source: Amazon EC2 Auto Scaling API reference, Activity; the descriptions are those of the CLI's
    examples.
    """
    instance_id = instance["InstanceId"]
    launch = {
        "Description": f"Launching a new EC2 instance: {instance_id}",
        "StartTime": instance["LaunchTime"],
    }
    rows = [launch]
    if _END_FIELD in instance:
        start = fleet_settings.format_time(instance[_END_FIELD])
        rows.append({"Description": f"Terminating EC2 instance: {instance_id}", "StartTime": start})
    if _GONE_FIELD in instance:
        rows[-1]["EndTime"] = fleet_settings.format_time(instance[_GONE_FIELD])
    return rows
