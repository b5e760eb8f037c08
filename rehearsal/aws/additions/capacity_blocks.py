# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Capacity Blocks: EC2's description, extension history, and what EKS and EC2 do before the end.

`PUT /_tandem/blocks` takes all blocks at once as JSON, by reservation id;
`rehearsal.aws.capacity_block` explains the fields. A reservation that a launch template names and
nobody set counts as bought: active, without dates. Source: Amazon EC2 user guide, "Capacity Blocks
for ML" and "Extend Capacity Blocks"; Amazon EKS user guide, "Create a managed node group with
Capacity Blocks for ML"; Amazon EC2 Auto Scaling user guide, "Scheduled scaling".
"""

from __future__ import annotations

from datetime import datetime

from ministack.services import autoscaling, ec2

from . import fleet_instances, fleet_settings, node_groups, service_model

PATH = "/_tandem/blocks"
EC2_MARGIN_S = 30 * 60
EKS_MARGIN_S = 40 * 60
EKS_ACTION_NAME = "Amazon EKS Node Group Capacity Scaledown Before Reservation End"
# on an Auto Scaling group's record: the reservation that EKS planned for
_PLANNED_FIELD = "_tandem_scale_down_for"
_BLOCK_FIELDS = {"starts", "ends", "state", "nodes", "extensions"}
_blocks = {}


def install(_handlers: dict) -> None:
    """Add the calls and the route, and look at each node group's block before its instances."""
    ec2._ACTION_MAP["DescribeCapacityReservations"] = _describe_reservations
    ec2._ACTION_MAP["DescribeCapacityBlockExtensionHistory"] = _describe_extensions
    fleet_settings.routes[PATH] = _set_blocks
    fleet_settings.reset_actions.append(_blocks.clear)
    node_groups.block_callbacks.append(_follow_block)
    node_groups.launch_checks.append(_is_closed)


def _set_blocks(values):
    if not isinstance(values, dict):
        raise TypeError(f"{PATH} takes an object of blocks")
    for name, block in values.items():
        if set(block) != _BLOCK_FIELDS:
            raise ValueError(f"{name} wants exactly {', '.join(sorted(_BLOCK_FIELDS))}")
    with fleet_settings.lock:
        _blocks.clear()
        _blocks.update(values)


def _end_s(block):
    """Return when a block ends: a paid extension has moved its end."""
    paid = [row["ends"] for row in block["extensions"] if row["status"] == "payment-succeeded"]
    return datetime.fromisoformat(paid[-1] if paid else block["ends"]).timestamp()


def _state(block):
    now_s = fleet_settings.current_time()
    if block["state"] == "active" and now_s < datetime.fromisoformat(block["starts"]).timestamp():
        return "scheduled"
    if block["state"] == "active" and _end_s(block) <= now_s:
        return "expired"
    return block["state"]


def _describe_reservations(parameters):
    """Answer DescribeCapacityReservations: blocks and what templates name, or those requested."""
    wanted_ids = ec2._parse_member_list(parameters, "CapacityReservationId")
    shape = service_model.answer_shape(
        "ec2", "DescribeCapacityReservations", "CapacityReservations"
    )
    rows = {name: _reservation_row(name, data) for name, data in _named_reservations()}
    for name, block in _blocks.items():
        row = rows.setdefault(name, _reservation_row(name, {}))
        row |= {
            "State": _state(block),
            "ReservationType": "capacity-block",
            "TotalInstanceCount": block["nodes"],
            "AvailableInstanceCount": block["nodes"] - len(_list_users(name)),
            "EndDateType": "limited",
            "StartDate": block["starts"],
            "EndDate": fleet_settings.format_time(_end_s(block)),
        }
    unknown_ids = sorted(set(wanted_ids) - rows.keys())
    if unknown_ids:
        message = f"The capacity reservation ID '{unknown_ids[0]}' does not exist"
        return ec2._error("InvalidCapacityReservationId.NotFound", message, 400)
    kept = [row for name, row in rows.items() if not wanted_ids or name in wanted_ids]
    items = "".join(f"<item>{service_model.format_ec2_xml(shape, row)}</item>" for row in kept)
    body = f"<capacityReservationSet>{items}</capacityReservationSet>"
    return ec2._xml(200, "DescribeCapacityReservationsResponse", body)


def _named_reservations():
    versions = [
        version for template in ec2._launch_templates.values() for version in template["Versions"]
    ]
    for data in (version["LaunchTemplateData"] for version in versions):
        name = fleet_instances.reservation_id(data)
        if name:
            yield name, data


def _reservation_row(name, data):
    is_block = data.get("InstanceMarketOptions", {}).get("MarketType") == "capacity-block"
    return {
        "CapacityReservationId": name,
        "InstanceType": data.get("InstanceType"),
        "State": "active",
        "ReservationType": "capacity-block" if is_block else "default",
        "InstanceMatchCriteria": "targeted",
        "TotalInstanceCount": 1,
        "AvailableInstanceCount": 1,
    }


def _list_users(name):
    groups = [group["AutoScalingGroupName"] for group in autoscaling._asgs.values()]
    members = [instance for group in groups for instance in fleet_instances.list_instances(group)]
    return [
        instance
        for instance in members
        if instance.get(fleet_instances.RESERVATION_FIELD) == name
        and fleet_instances.instance_state(instance) in fleet_instances.ALIVE_STATES
    ]


def _describe_extensions(parameters):
    """Answer DescribeCapacityBlockExtensionHistory, of all blocks or of the requested ones."""
    wanted_ids = ec2._parse_member_list(parameters, "CapacityReservationId")
    shape = service_model.answer_shape(
        "ec2", "DescribeCapacityBlockExtensionHistory", "CapacityBlockExtensions"
    )
    rows = [
        _extension_row(name, block, position)
        for name, block in _blocks.items()
        for position in range(len(block["extensions"]))
        if not wanted_ids or name in wanted_ids
    ]
    items = "".join(f"<item>{service_model.format_ec2_xml(shape, row)}</item>" for row in rows)
    body = f"<capacityBlockExtensionSet>{items}</capacityBlockExtensionSet>"
    return ec2._xml(200, "DescribeCapacityBlockExtensionHistoryResponse", body)


def _extension_row(name, block, position):
    extension = block["extensions"][position]
    return {
        "CapacityReservationId": name,
        "InstanceCount": block["nodes"],
        "CapacityBlockExtensionStatus": extension["status"],
        "CapacityBlockExtensionPurchaseDate": extension["purchased"],
        "CapacityBlockExtensionStartDate": (
            block["extensions"][position - 1]["ends"] if position else block["ends"]
        ),
        "CapacityBlockExtensionEndDate": extension["ends"],
    }


def _find_block(nodegroup):
    """Return the id of a node group's block, and the block; None where nobody set one."""
    name = fleet_instances.reservation_id(
        fleet_instances.template_version(nodegroup).get("LaunchTemplateData", {})
    )
    return name, _blocks.get(name)


def _is_closed(nodegroup):
    """Return whether EC2 launches nothing from the node group's block at this moment."""
    _, block = _find_block(nodegroup)
    if block is None:
        return False
    return (
        _state(block) != "active" or _end_s(block) - EC2_MARGIN_S <= fleet_settings.current_time()
    )


def _follow_block(group, nodegroup):
    """Let EKS make its action for a new block, run what is due, let EC2 take the rest."""
    group_name = group["AutoScalingGroupName"]
    name, block = _find_block(nodegroup)
    if (
        block is not None
        and nodegroup.get("capacityType") == "CAPACITY_BLOCK"
        and group.get(_PLANNED_FIELD) != name
    ):
        group[_PLANNED_FIELD] = name
        moment = fleet_settings.format_time(_end_s(block) - EKS_MARGIN_S)
        key = f"{group_name}/{EKS_ACTION_NAME}"
        arn = f"arn:aws:autoscaling:::scheduledUpdateGroupAction:autoScalingGroupName/{group_name}"
        fields = {"MinSize": 0, "DesiredCapacity": 0, "StartTime": moment}
        record = autoscaling._scheduled_action_record(group_name, EKS_ACTION_NAME, arn, fields)
        autoscaling._scheduled_actions[key] = record
    _run_due_actions(group, nodegroup)
    for reservation, taken_block in _blocks.items():
        if _end_s(taken_block) - EC2_MARGIN_S <= fleet_settings.current_time():
            for instance in _list_users(reservation):
                fleet_instances.terminate_instance(instance)


def _run_due_actions(group, nodegroup):
    """Run and drop each action of a group whose one moment has come; only store recurrences."""
    group_name = group["AutoScalingGroupName"]
    for key, action in list(autoscaling._scheduled_actions.items()):
        is_ours = (
            action["AutoScalingGroupName"] == group_name
            and not action["Recurrence"]
            and action.get("StartTime")
        )
        if not is_ours:
            continue
        if datetime.fromisoformat(action["StartTime"]).timestamp() <= fleet_settings.current_time():
            autoscaling._scheduled_actions.pop(key)
            sizes = {
                size: action[size]
                for size in ("MinSize", "MaxSize", "DesiredCapacity")
                if action[size] >= 0
            }
            group.update(sizes)
            nodegroup["scalingConfig"] = {
                "minSize": group["MinSize"],
                "maxSize": group["MaxSize"],
                "desiredSize": group["DesiredCapacity"],
            }
