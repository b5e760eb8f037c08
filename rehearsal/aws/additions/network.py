# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""EC2 network types that plain MiniStack refuses, or describes without template properties."""

from __future__ import annotations

import json
import secrets
from functools import partial

from ministack.services import ec2
from ministack.services.cloudformation import provisioners

from . import service_model
from .handlers import (
    add_stack_tags,
    build_handler,
    build_replacing_update,
    require_success,
    wrap_changes,
)

_NAT_SHAPE = partial(service_model.answer_shape, "ec2", "DescribeNatGateways", "NatGateways")
_FLOW_LOG_SHAPE = partial(service_model.answer_shape, "ec2", "DescribeFlowLogs", "FlowLogs")
_ENDPOINT_SHAPE = partial(service_model.answer_shape, "ec2", "DescribeVpcEndpoints", "VpcEndpoints")
_RANGE_SHAPE = partial(
    service_model.answer_shape, "ec2", "AssociateVpcCidrBlock", "CidrBlockAssociation"
)


def install(handlers: dict) -> None:
    """Register the missing types, and install describe answers that lose nothing."""
    handlers["AWS::EC2::EIP"] = build_handler(_create_address, _update_tags, _delete_address)
    handlers["AWS::EC2::NatGateway"] = build_handler(
        _create_nat, build_replacing_update(_create_nat, _update_tags), _delete_nat
    )
    handlers["AWS::EC2::FlowLog"] = build_handler(
        _create_flow_log, build_replacing_update(_create_flow_log, _update_tags), _delete_flow_log
    )
    handlers["AWS::EC2::PlacementGroup"] = build_handler(
        _create_placement,
        build_replacing_update(_create_placement, _update_placement_tags),
        _delete_placement,
    )
    for type_, egress in (
        ("AWS::EC2::SecurityGroupIngress", False),
        ("AWS::EC2::SecurityGroupEgress", True),
    ):
        create = _build_rule_create(egress)
        handlers[type_] = build_handler(
            create, build_replacing_update(create), _build_rule_delete(egress)
        )
    add_stack_tags(
        "AWS::EC2::EIP", "AWS::EC2::NatGateway", "AWS::EC2::FlowLog", "AWS::EC2::PlacementGroup"
    )
    wrap_changes(handlers["AWS::EC2::VPC"], after=_add_range)
    wrap_changes(handlers["AWS::EC2::Subnet"], before=_check_vpc)
    wrap_changes(handlers["AWS::EC2::SecurityGroup"], before=_check_vpc)
    ec2._vpce_fields_xml = _endpoint_xml
    ec2._ACTION_MAP["DescribeNatGateways"] = _describe_nat_gateways
    ec2._ACTION_MAP["DescribeFlowLogs"] = _describe_flow_logs
    ec2._ACTION_MAP["AssociateVpcCidrBlock"] = _associate_range
    ec2._vpc_fields_xml = partial(_vpc_xml, ec2._vpc_fields_xml)


def _add_range(vpc_id, _old, _new, attributes):
    """Add a VPC's range for `Fn::GetAtt`, as on AWS; plain MiniStack does not know it."""
    attributes["CidrBlock"] = ec2._vpcs[vpc_id]["CidrBlock"]


def _associate_range(parameters):
    """Give a VPC a further range; plain MiniStack gives it only one."""
    vpc_id = ec2._p(parameters, "VpcId")
    block = ec2._p(parameters, "CidrBlock")
    if vpc_id not in ec2._vpcs:
        return ec2._error("InvalidVpcID.NotFound", f"The vpc ID '{vpc_id}' does not exist", 400)
    association = {
        "AssociationId": f"vpc-cidr-assoc-{secrets.token_hex(9)[:17]}",
        "CidrBlock": block,
        "CidrBlockState": {"State": "associated"},
    }
    ec2._vpcs[vpc_id].setdefault("FurtherRanges", []).append(association)
    fields = service_model.format_ec2_xml(_RANGE_SHAPE(), association)
    body = f"<cidrBlockAssociation>{fields}</cidrBlockAssociation>"
    return ec2._xml(200, "AssociateVpcCidrBlockResponse", f"{body}<vpcId>{vpc_id}</vpcId>")


def _vpc_xml(print_vpc, vpc, tag="item"):
    ranges_xml = "".join(
        f"<item>{service_model.format_ec2_xml(_RANGE_SHAPE(), association)}</item>"
        for association in vpc.get("FurtherRanges", [])
    )
    return print_vpc(vpc, tag=tag).replace(
        "</cidrBlockAssociationSet>", f"{ranges_xml}</cidrBlockAssociationSet>"
    )


def _check_vpc(properties):
    """Refuse a VPC that does not exist; plain MiniStack makes a subnet in it."""
    if properties.get("VpcId") and properties["VpcId"] not in ec2._vpcs:
        raise ValueError(f"The vpc ID '{properties['VpcId']}' does not exist")
    return properties


def _update_tags(physical_id, old, new, _stack, _logical_id=None):
    provisioners._ec2_apply_tags(physical_id, new, old)
    return physical_id, _resource_attributes(physical_id)


def _resource_attributes(physical_id):
    if physical_id in ec2._addresses:
        return {"AllocationId": physical_id, "PublicIp": ec2._addresses[physical_id]["PublicIp"]}
    if physical_id in ec2._nat_gateways:
        return {"NatGatewayId": physical_id}
    return {"Id": physical_id}


def _call_for_id(store, call, request):
    """Return the id of the one record that a call adds to a store."""
    ids_before = set(store)
    require_success(call(request))
    (new_id,) = set(store) - ids_before
    return new_id


def _create_address(_logical_id, properties, _stack):
    request = {"Domain": properties.get("Domain", "vpc")}
    allocation = _call_for_id(ec2._addresses, ec2._allocate_address, request)
    provisioners._ec2_apply_tags(allocation, properties)
    return allocation, _resource_attributes(allocation)


def _delete_address(physical_id, _properties):
    if physical_id in ec2._addresses:
        require_success(ec2._release_address({"AllocationId": physical_id}))


def _create_nat(_logical_id, properties, _stack):
    allocation = properties.get("AllocationId", "")
    if properties["SubnetId"] not in ec2._subnets:
        raise ValueError(f"The subnet ID '{properties['SubnetId']}' does not exist")
    if (
        properties.get("ConnectivityType", "public") == "public"
        and allocation not in ec2._addresses
    ):
        raise ValueError(f"The allocation ID '{allocation}' does not exist")
    names = ("SubnetId", "AllocationId", "ConnectivityType")
    request = {name: properties[name] for name in names if name in properties}
    gateway = _call_for_id(ec2._nat_gateways, ec2._create_nat_gateway, request)
    provisioners._ec2_apply_tags(gateway, properties)
    return gateway, _resource_attributes(gateway)


def _delete_nat(physical_id, _properties):
    ec2._nat_gateways.pop(physical_id, None)
    ec2._tags.pop(physical_id, None)


def _create_flow_log(_logical_id, properties, _stack):
    request = {"ResourceId.1": properties["ResourceId"], "ResourceType": properties["ResourceType"]}
    flow_log = _call_for_id(ec2._flow_logs, ec2._create_flow_logs, request)
    fields = {
        name: value
        for name, value in properties.items()
        if name in _FLOW_LOG_SHAPE().members and name != "Tags"
    }
    ec2._flow_logs[flow_log].update(fields)
    if "LogDestination" not in properties:
        ec2._flow_logs[flow_log].pop("LogDestination")
    provisioners._ec2_apply_tags(flow_log, properties)
    return flow_log, {"Id": flow_log}


def _delete_flow_log(physical_id, _properties):
    ec2._flow_logs.pop(physical_id, None)
    ec2._tags.pop(physical_id, None)


def _create_placement(logical_id, properties, stack):
    name = properties.get("GroupName") or provisioners._physical_name(stack, logical_id)
    request = {"GroupName": name, "Strategy": properties.get("Strategy", "cluster")}
    if "PartitionCount" in properties:
        request["PartitionCount"] = str(properties["PartitionCount"])
    require_success(ec2._create_placement_group(request))
    if "SpreadLevel" in properties:
        ec2._placement_groups[name]["SpreadLevel"] = properties["SpreadLevel"]
    provisioners._ec2_apply_tags(ec2._placement_groups[name]["GroupId"], properties)
    return name, {"GroupName": name, "GroupId": ec2._placement_groups[name]["GroupId"]}


def _update_placement_tags(physical_id, old, new, _stack, _logical_id=None):
    group = ec2._placement_groups[physical_id]
    provisioners._ec2_apply_tags(group["GroupId"], new, old)
    return physical_id, {"GroupName": physical_id, "GroupId": group["GroupId"]}


def _delete_placement(physical_id, _properties):
    if physical_id in ec2._placement_groups:
        require_success(ec2._delete_placement_group({"GroupName": physical_id}))


def _build_rule_create(egress):
    def create(_logical_id, properties, _stack):
        group = ec2._security_groups.get(properties["GroupId"])
        if group is None:
            raise ValueError(f"The security group '{properties['GroupId']}' does not exist")
        (permission,) = provisioners._ec2_sg_permissions([properties])
        rule_id = ec2._sg_rule_id(properties["GroupId"], egress, permission)
        rules = group["IpPermissionsEgress" if egress else "IpPermissions"]
        if rule_id in {ec2._sg_rule_id(properties["GroupId"], egress, rule) for rule in rules}:
            raise ValueError("the specified rule already exists")
        rules.append(permission)
        return rule_id, {"Id": rule_id}

    return create


def _build_rule_delete(egress):
    def delete(physical_id, properties):
        group = ec2._security_groups.get(properties["GroupId"])
        if group is None:
            return
        rules = group["IpPermissionsEgress" if egress else "IpPermissions"]
        rules[:] = [
            rule
            for rule in rules
            if ec2._sg_rule_id(properties["GroupId"], egress, rule) != physical_id
        ]

    return delete


def _endpoint_xml(endpoint, tag="item"):
    groups = [{"GroupId": group} for group in endpoint.get("SecurityGroupIds", [])]
    fields = {**endpoint, "Groups": groups, "Tags": ec2._tags.get(endpoint["VpcEndpointId"], [])}
    policy = endpoint.get("PolicyDocument")
    if isinstance(policy, dict):
        fields["PolicyDocument"] = json.dumps(policy)
    members = {name: fields.get(name) for name in _ENDPOINT_SHAPE().members}
    return f"<{tag}>{service_model.format_ec2_xml(_ENDPOINT_SHAPE(), members)}</{tag}>"


def _describe_nat_gateways(parameters):
    body = _format_records(
        parameters, "NatGatewayId", ec2._nat_gateways.values(), _NAT_SHAPE(), _nat_answer
    )
    return ec2._xml(200, "DescribeNatGatewaysResponse", f"<natGatewaySet>{body}</natGatewaySet>")


def _describe_flow_logs(parameters):
    body = _format_records(
        parameters, "FlowLogId", ec2._flow_logs.values(), _FLOW_LOG_SHAPE(), _flow_log_answer
    )
    return ec2._xml(200, "DescribeFlowLogsResponse", f"<flowLogSet>{body}</flowLogSet>")


def _format_records(parameters, id_field, records, shape, build_answer):
    """Return the records that a describe call asks for, as EC2 prints a set of them."""
    filters = ec2._parse_filters(parameters)
    wanted_ids = ec2._parse_member_list(parameters, id_field)
    return "".join(
        f"<item>{service_model.format_ec2_xml(shape, build_answer(record))}</item>"
        for record in records
        if _is_match(record, id_field, wanted_ids, filters)
    )


def _flow_log_answer(flow_log):
    return {**flow_log, "Tags": ec2._tags.get(flow_log["FlowLogId"], [])}


def _nat_answer(gateway):
    address = ec2._addresses.get(gateway.get("AllocationId"), {})
    gateway_address = {
        "AllocationId": gateway.get("AllocationId"),
        "PublicIp": address.get("PublicIp"),
        "IsPrimary": True,
    }
    return {
        **gateway,
        "NatGatewayAddresses": [gateway_address],
        "Tags": ec2._tags.get(gateway["NatGatewayId"], []),
    }


_FILTERS = {
    "resource-id": "ResourceId",
    "vpc-id": "VpcId",
    "subnet-id": "SubnetId",
    "state": "State",
}


def _is_match(record, id_field, resource_ids, filters):
    if resource_ids and record[id_field] not in resource_ids:
        return False
    if not ec2._resource_matches_tag_filters(record[id_field], filters):
        return False
    return all(
        record.get(_FILTERS[name]) in values for name, values in filters.items() if name in _FILTERS
    )
