# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""EC2 network types that plain MiniStack refuses, or whose describe answers lose what the template said."""

from __future__ import annotations

import json
import secrets
from functools import partial

from ministack.services import ec2
from ministack.services.cloudformation import provisioners

from . import wire
from .handlers import handler, replaced, succeeded, taggable

NEEDS = {
    ec2: (
        "_ACTION_MAP", "_addresses", "_allocate_address", "_create_flow_logs", "_create_nat_gateway",
        "_create_placement_group", "_delete_placement_group", "_error", "_flow_logs", "_nat_gateways", "_p",
        "_parse_filters", "_parse_member_list", "_placement_groups", "_release_address",
        "_resource_matches_tag_filters", "_security_groups",
        "_sg_rule_id", "_subnets", "_tags", "_vpc_fields_xml", "_vpce_fields_xml", "_vpcs", "_xml",
    ),
    provisioners: ("_ec2_apply_tags", "_ec2_sg_permissions", "_physical_name"),
}  # fmt: skip

_NAT = partial(wire.answer_shape, "ec2", "DescribeNatGateways", "NatGateways")
_FLOW_LOG = partial(wire.answer_shape, "ec2", "DescribeFlowLogs", "FlowLogs")
_ENDPOINT = partial(wire.answer_shape, "ec2", "DescribeVpcEndpoints", "VpcEndpoints")
_RANGE = partial(wire.answer_shape, "ec2", "AssociateVpcCidrBlock", "CidrBlockAssociation")


def install(handlers: dict) -> None:
    """Register the missing types and put in describe answers that lose nothing."""
    handlers["AWS::EC2::EIP"] = handler(_address_create, _tags_only, _address_delete)
    handlers["AWS::EC2::NatGateway"] = handler(_nat_create, replaced(_nat_create, _tags_only), _nat_delete)
    handlers["AWS::EC2::FlowLog"] = handler(_flow_log_create, replaced(_flow_log_create, _tags_only), _flow_log_delete)
    handlers["AWS::EC2::PlacementGroup"] = handler(
        _placement_create, replaced(_placement_create, _placement_tags), _placement_delete
    )
    for type_, egress in (("AWS::EC2::SecurityGroupIngress", False), ("AWS::EC2::SecurityGroupEgress", True)):
        create = _rule_create(egress)
        handlers[type_] = handler(create, replaced(create), _rule_delete(egress))
    taggable("AWS::EC2::EIP", "AWS::EC2::NatGateway", "AWS::EC2::FlowLog", "AWS::EC2::PlacementGroup")
    _with_range(handlers["AWS::EC2::VPC"])
    _need_a_vpc(handlers, "AWS::EC2::Subnet")
    _need_a_vpc(handlers, "AWS::EC2::SecurityGroup")
    ec2._vpce_fields_xml = _endpoint_xml
    ec2._ACTION_MAP["DescribeNatGateways"] = _describe_nat_gateways
    ec2._ACTION_MAP["DescribeFlowLogs"] = _describe_flow_logs
    ec2._ACTION_MAP["AssociateVpcCidrBlock"] = _associate_range
    ec2._vpc_fields_xml = partial(_vpc_xml, ec2._vpc_fields_xml)


def _with_range(vpc):
    """`Fn::GetAtt` gives a VPC's range on AWS, which plain MiniStack does not know."""
    create, update = vpc["create"], vpc["update"]

    def created(logical_id, properties, stack):
        identity, attributes = create(logical_id, properties, stack)
        return identity, {**attributes, "CidrBlock": ec2._vpcs[identity]["CidrBlock"]}

    def updated(physical_id, old, new, stack, logical_id=None):
        identity, attributes = update(physical_id, old, new, stack, logical_id)
        return identity, {**attributes, "CidrBlock": ec2._vpcs[identity]["CidrBlock"]}

    vpc.update(create=created, update=updated)


def _associate_range(parameters):
    """Plain MiniStack gives a VPC one range."""
    identity, block = ec2._p(parameters, "VpcId"), ec2._p(parameters, "CidrBlock")
    if identity not in ec2._vpcs:
        return ec2._error("InvalidVpcID.NotFound", f"The vpc ID '{identity}' does not exist", 400)
    association = {
        "AssociationId": f"vpc-cidr-assoc-{secrets.token_hex(9)[:17]}", "CidrBlock": block,
        "CidrBlockState": {"State": "associated"},
    }  # fmt: skip
    ec2._vpcs[identity].setdefault("FurtherRanges", []).append(association)
    body = f"<cidrBlockAssociation>{wire.ec2_xml(_RANGE(), association)}</cidrBlockAssociation>"
    return ec2._xml(200, "AssociateVpcCidrBlockResponse", f"{body}<vpcId>{identity}</vpcId>")


def _vpc_xml(plain, vpc, tag="item"):
    further = "".join(f"<item>{wire.ec2_xml(_RANGE(), each)}</item>" for each in vpc.get("FurtherRanges", []))
    return plain(vpc, tag=tag).replace("</cidrBlockAssociationSet>", f"{further}</cidrBlockAssociationSet>")


def _need_a_vpc(handlers, type_):
    """Plain MiniStack makes a subnet in a VPC that does not exist."""
    create = handlers[type_]["create"]

    def checked(logical_id, properties, stack):
        if properties.get("VpcId") and properties["VpcId"] not in ec2._vpcs:
            raise ValueError(f"The vpc ID '{properties['VpcId']}' does not exist")
        return create(logical_id, properties, stack)

    handlers[type_]["create"] = checked


def _tags_only(physical_id, old, new, _stack, _logical_id=None):
    provisioners._ec2_apply_tags(physical_id, new, old)
    return physical_id, _attributes(physical_id)


def _attributes(physical_id):
    if physical_id in ec2._addresses:
        return {"AllocationId": physical_id, "PublicIp": ec2._addresses[physical_id]["PublicIp"]}
    if physical_id in ec2._nat_gateways:
        return {"NatGatewayId": physical_id}
    return {"Id": physical_id}


def _address_create(_logical_id, properties, _stack):
    before = set(ec2._addresses)
    succeeded(ec2._allocate_address({"Domain": properties.get("Domain", "vpc")}))
    (allocation,) = set(ec2._addresses) - before
    provisioners._ec2_apply_tags(allocation, properties)
    return allocation, _attributes(allocation)


def _address_delete(physical_id, _properties):
    if physical_id in ec2._addresses:
        succeeded(ec2._release_address({"AllocationId": physical_id}))


def _nat_create(_logical_id, properties, _stack):
    allocation = properties.get("AllocationId", "")
    if properties["SubnetId"] not in ec2._subnets:
        raise ValueError(f"The subnet ID '{properties['SubnetId']}' does not exist")
    if properties.get("ConnectivityType", "public") == "public" and allocation not in ec2._addresses:
        raise ValueError(f"The allocation ID '{allocation}' does not exist")
    before = set(ec2._nat_gateways)
    request = {
        name: properties[name] for name in ("SubnetId", "AllocationId", "ConnectivityType") if name in properties
    }
    succeeded(ec2._create_nat_gateway(request))
    (gateway,) = set(ec2._nat_gateways) - before
    provisioners._ec2_apply_tags(gateway, properties)
    return gateway, _attributes(gateway)


def _nat_delete(physical_id, _properties):
    ec2._nat_gateways.pop(physical_id, None)
    ec2._tags.pop(physical_id, None)


def _flow_log_create(_logical_id, properties, _stack):
    before = set(ec2._flow_logs)
    request = {name: properties[name] for name in ("ResourceType", "TrafficType", "LogDestinationType",
                                                   "LogDestination", "LogGroupName") if name in properties}  # fmt: skip
    succeeded(ec2._create_flow_logs({**request, "ResourceId.1": properties["ResourceId"]}))
    (flow_log,) = set(ec2._flow_logs) - before
    said = {name: value for name, value in properties.items() if name in _FLOW_LOG().members and name != "Tags"}
    ec2._flow_logs[flow_log].update(said)
    if "LogDestination" not in properties:
        ec2._flow_logs[flow_log].pop("LogDestination")
    provisioners._ec2_apply_tags(flow_log, properties)
    return flow_log, {"Id": flow_log}


def _flow_log_delete(physical_id, _properties):
    ec2._flow_logs.pop(physical_id, None)
    ec2._tags.pop(physical_id, None)


def _placement_create(logical_id, properties, stack):
    name = properties.get("GroupName") or provisioners._physical_name(stack, logical_id)
    request = {"GroupName": name, "Strategy": properties.get("Strategy", "cluster")}
    if "PartitionCount" in properties:
        request["PartitionCount"] = str(properties["PartitionCount"])
    succeeded(ec2._create_placement_group(request))
    if "SpreadLevel" in properties:
        ec2._placement_groups[name]["SpreadLevel"] = properties["SpreadLevel"]
    provisioners._ec2_apply_tags(ec2._placement_groups[name]["GroupId"], properties)
    return name, {"GroupName": name, "GroupId": ec2._placement_groups[name]["GroupId"]}


def _placement_tags(physical_id, old, new, _stack, _logical_id=None):
    group = ec2._placement_groups[physical_id]
    provisioners._ec2_apply_tags(group["GroupId"], new, old)
    return physical_id, {"GroupName": physical_id, "GroupId": group["GroupId"]}


def _placement_delete(physical_id, _properties):
    if physical_id in ec2._placement_groups:
        succeeded(ec2._delete_placement_group({"GroupName": physical_id}))


def _rule_create(egress):
    def create(_logical_id, properties, _stack):
        group = ec2._security_groups.get(properties["GroupId"])
        if group is None:
            raise ValueError(f"The security group '{properties['GroupId']}' does not exist")
        (permission,) = provisioners._ec2_sg_permissions([properties])
        identity = ec2._sg_rule_id(properties["GroupId"], egress, permission)
        rules = group["IpPermissionsEgress" if egress else "IpPermissions"]
        if identity in {ec2._sg_rule_id(properties["GroupId"], egress, rule) for rule in rules}:
            raise ValueError("the specified rule already exists")
        rules.append(permission)
        return identity, {"Id": identity}

    return create


def _rule_delete(egress):
    def delete(physical_id, properties):
        group = ec2._security_groups.get(properties["GroupId"])
        if group is None:
            return
        rules = group["IpPermissionsEgress" if egress else "IpPermissions"]
        rules[:] = [rule for rule in rules if ec2._sg_rule_id(properties["GroupId"], egress, rule) != physical_id]

    return delete


def _endpoint_xml(endpoint, tag="item"):
    groups = [{"GroupId": group} for group in endpoint.get("SecurityGroupIds", [])]
    said = {**endpoint, "Groups": groups, "Tags": ec2._tags.get(endpoint["VpcEndpointId"], [])}
    policy = endpoint.get("PolicyDocument")
    if isinstance(policy, dict):
        said["PolicyDocument"] = json.dumps(policy)
    return f"<{tag}>{wire.ec2_xml(_ENDPOINT(), {name: said.get(name) for name in _ENDPOINT().members})}</{tag}>"


def _describe_nat_gateways(parameters):
    filters = ec2._parse_filters(parameters)
    asked = ec2._parse_member_list(parameters, "NatGatewayId")
    found = [gateway for gateway in ec2._nat_gateways.values() if _chosen(gateway, "NatGatewayId", asked, filters)]
    items = "".join(f"<item>{wire.ec2_xml(_NAT(), _nat_answer(gateway))}</item>" for gateway in found)
    return ec2._xml(200, "DescribeNatGatewaysResponse", f"<natGatewaySet>{items}</natGatewaySet>")


def _nat_answer(gateway):
    address = ec2._addresses.get(gateway.get("AllocationId"), {})
    place = {"AllocationId": gateway.get("AllocationId"), "PublicIp": address.get("PublicIp"), "IsPrimary": True}
    return {**gateway, "NatGatewayAddresses": [place], "Tags": ec2._tags.get(gateway["NatGatewayId"], [])}


def _describe_flow_logs(parameters):
    filters = ec2._parse_filters(parameters)
    asked = ec2._parse_member_list(parameters, "FlowLogId")
    found = [log for log in ec2._flow_logs.values() if _chosen(log, "FlowLogId", asked, filters)]
    items = "".join(
        f"<item>{wire.ec2_xml(_FLOW_LOG(), {**log, 'Tags': ec2._tags.get(log['FlowLogId'], [])})}</item>"
        for log in found
    )
    return ec2._xml(200, "DescribeFlowLogsResponse", f"<flowLogSet>{items}</flowLogSet>")


_FILTERS = {"resource-id": "ResourceId", "vpc-id": "VpcId", "subnet-id": "SubnetId", "state": "State"}


def _chosen(record, identity, asked, filters):
    if asked and record[identity] not in asked:
        return False
    if not ec2._resource_matches_tag_filters(record[identity], filters):
        return False
    return all(record.get(_FILTERS[name]) in values for name, values in filters.items() if name in _FILTERS)
