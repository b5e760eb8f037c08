# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""Launch templates with every field of the API, because Fleet needs Capacity Blocks and EFA interfaces.

A Capacity Block or reservation that a template names counts as bought: EC2 describes it as active, without dates.
"""

from __future__ import annotations

from functools import partial

from ministack.services import ec2

from . import service_model

NEEDS = {ec2: ("_ACTION_MAP", "_launch_templates", "_lt_data_xml", "_parse_lt_data", "_parse_member_list", "_xml")}

_REQUEST_SHAPE = partial(service_model.request_shape, "ec2", "CreateLaunchTemplate", "LaunchTemplateData")
_ANSWER_SHAPE = partial(
    service_model.answer_shape, "ec2", "DescribeLaunchTemplateVersions", "LaunchTemplateVersions", "LaunchTemplateData"
)


def install(handlers: dict) -> None:
    """Parse and print launch template data by the service's own model."""
    ec2._parse_lt_data = lambda parameters, prefix="LaunchTemplateData": (
        service_model.parse_ec2_parameters(_REQUEST_SHAPE(), parameters, prefix) or {}
    )
    ec2._lt_data_xml = lambda data: service_model.format_ec2_xml(_ANSWER_SHAPE(), data)
    ec2._ACTION_MAP["DescribeCapacityReservations"] = _describe_reservations
    type_handlers = handlers["AWS::EC2::LaunchTemplate"]
    create, update = type_handlers["create"], type_handlers["update"]
    type_handlers["create"] = lambda logical_id, properties, stack: create(
        logical_id, _convert_types(properties), stack
    )
    type_handlers["update"] = lambda physical_id, old, new, stack, logical_id=None: update(
        physical_id, old, _convert_types(new), stack, logical_id
    )


def _convert_types(properties):
    data = service_model.convert_value(_REQUEST_SHAPE(), properties.get("LaunchTemplateData", {}), "LaunchTemplateData")
    return {**properties, "LaunchTemplateData": data}


def _describe_reservations(parameters):
    """Answer DescribeCapacityReservations: all reservations that launch templates name, or the requested ones."""
    wanted_ids = ec2._parse_member_list(parameters, "CapacityReservationId")
    shape = service_model.answer_shape("ec2", "DescribeCapacityReservations", "CapacityReservations")
    versions = [version for template in ec2._launch_templates.values() for version in template["Versions"]]
    reservations = {}
    for data in (version["LaunchTemplateData"] for version in versions):
        target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
        name = target.get("CapacityReservationId")
        if name and (not wanted_ids or name in wanted_ids):
            is_block = data.get("InstanceMarketOptions", {}).get("MarketType") == "capacity-block"
            reservations[name] = {
                "CapacityReservationId": name, "InstanceType": data.get("InstanceType"), "State": "active",
                "ReservationType": "capacity-block" if is_block else "default", "InstanceMatchCriteria": "targeted",
                "TotalInstanceCount": 1, "AvailableInstanceCount": 1,
            }  # fmt: skip
    items = "".join(f"<item>{service_model.format_ec2_xml(shape, row)}</item>" for row in reservations.values())
    body = f"<capacityReservationSet>{items}</capacityReservationSet>"
    return ec2._xml(200, "DescribeCapacityReservationsResponse", body)
