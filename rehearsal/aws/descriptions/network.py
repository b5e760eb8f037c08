"""EC2 resources as their Describe calls return them."""

from __future__ import annotations

import json
from typing import Any

from rehearsal.aws.descriptions.conversion import (
    ClientFactory,
    DescribeFunction,
    Properties,
    require_single,
)


def _describe_by_id(operation: str, argument: str, response_key: str) -> DescribeFunction:
    """Return the function for most EC2 types: describe a list of one id, in template spelling."""

    def describe(client: ClientFactory, physical_id: str, _properties: Properties) -> Properties:
        return _read_resource(client, physical_id, operation, argument, response_key)

    return describe


def _read_resource(
    client: ClientFactory, resource_id: str, operation: str, argument: str, response_key: str
) -> Properties:
    response = getattr(client("ec2"), operation)(**{argument: [resource_id]})
    resource: Properties = require_single(response[response_key], resource_id)
    return resource


def _describe_vpc(client: ClientFactory, physical_id: str, _properties: Properties) -> Properties:
    ec2 = client("ec2")
    vpc = _read_resource(client, physical_id, "describe_vpcs", "VpcIds", "Vpcs")
    for name, key in (
        ("EnableDnsSupport", "enableDnsSupport"),
        ("EnableDnsHostnames", "enableDnsHostnames"),
    ):
        vpc[name] = ec2.describe_vpc_attribute(VpcId=physical_id, Attribute=key)[name]["Value"]
    vpc_filter = [{"Name": "vpc-id", "Values": [physical_id]}]
    groups = ec2.describe_security_groups(Filters=vpc_filter)["SecurityGroups"]
    acls = ec2.describe_network_acls(Filters=vpc_filter)["NetworkAcls"]
    return {
        **vpc,
        "DefaultSecurityGroup": next(
            group["GroupId"] for group in groups if group["GroupName"] == "default"
        ),
        "DefaultNetworkAcl": next(acl["NetworkAclId"] for acl in acls if acl["IsDefault"]),
    }


def _describe_route(client: ClientFactory, physical_id: str, properties: Properties) -> Properties:
    table_id = properties["RouteTableId"]
    table = _read_resource(
        client, table_id, "describe_route_tables", "RouteTableIds", "RouteTables"
    )
    destination = physical_id.split("|", 1)[1]
    fields = ("DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId")
    routes = [route for route in table["Routes"] if destination in map(route.get, fields)]
    return {"RouteTableId": table_id, **require_single(routes, physical_id)}


def _describe_association(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    tables = client("ec2").describe_route_tables()["RouteTables"]
    associations = [
        item
        for table in tables
        for item in table["Associations"]
        if item["RouteTableAssociationId"] == physical_id
    ]
    return {**require_single(associations, physical_id), "Id": physical_id}


def _describe_attachment(
    client: ClientFactory, physical_id: str, properties: Properties
) -> Properties:
    gateway = _read_resource(
        client,
        properties["InternetGatewayId"],
        "describe_internet_gateways",
        "InternetGatewayIds",
        "InternetGateways",
    )
    return {
        "InternetGatewayId": gateway["InternetGatewayId"],
        **require_single(gateway["Attachments"], physical_id),
    }


def _describe_nat_gateway(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    gateway = _read_resource(
        client, physical_id, "describe_nat_gateways", "NatGatewayIds", "NatGateways"
    )
    return {
        **gateway,
        "AllocationId": (
            require_single(gateway["NatGatewayAddresses"], physical_id).get("AllocationId")
        ),
    }


def _describe_security_group(
    client: ClientFactory, physical_id: str, properties: Properties
) -> Properties:
    """Describe a security group; find each template rule, as others may be rule resources'."""
    ec2 = client("ec2")
    group = _read_resource(
        client, physical_id, "describe_security_groups", "GroupIds", "SecurityGroups"
    )
    rules = ec2.describe_security_group_rules(
        Filters=[{"Name": "group-id", "Values": [physical_id]}]
    )
    description = {
        **group,
        "GroupDescription": group["Description"],
        "Id": physical_id,
    }
    for name, egress in (("SecurityGroupIngress", False), ("SecurityGroupEgress", True)):
        template_rules = properties.get(name, [])
        converted_rules = [
            _convert_rule(rule)
            for rule in rules["SecurityGroupRules"]
            if rule["IsEgress"] == egress
        ]
        description[name] = [
            rule for rule in converted_rules if _is_in_template(rule, template_rules)
        ]
    return description


_RULE_NAMES = {
    "CidrIpv4": "CidrIp",
    "CidrIpv6": "CidrIpv6",
    "IpProtocol": "IpProtocol",
    "FromPort": "FromPort",
    "ToPort": "ToPort",
    "Description": "Description",
    "GroupId": "GroupId",
}


def _convert_rule(rule: Any) -> Properties:
    template_rule = {name: rule[key] for key, name in _RULE_NAMES.items() if key in rule}
    side = "Destination" if rule["IsEgress"] else "Source"
    if "ReferencedGroupInfo" in rule:
        template_rule[f"{side}SecurityGroupId"] = rule["ReferencedGroupInfo"]["GroupId"]
    if "PrefixListId" in rule:
        template_rule[f"{side}PrefixListId"] = rule["PrefixListId"]
    return template_rule


def _is_in_template(rule: Properties, template_rules: list[Properties]) -> bool:
    return any(_is_same_opening(rule, template_rule) for template_rule in template_rules)


def _is_same_opening(rule: Properties, template_rule: Properties) -> bool:
    """Return whether two rules open the same; ports mean nothing if every protocol is open."""
    ports = () if str(template_rule["IpProtocol"]) == "-1" else ("FromPort", "ToPort")
    places = (
        name
        for name in rule.keys() | template_rule.keys()
        if name.startswith(("Cidr", "Source", "Destination"))
    )
    return all(
        str(rule.get(name)) == str(template_rule.get(name))
        for name in ("IpProtocol", *ports, *places)
    )


def _describe_security_group_rule(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    rule = _read_resource(
        client,
        physical_id,
        "describe_security_group_rules",
        "SecurityGroupRuleIds",
        "SecurityGroupRules",
    )
    return {**_convert_rule(rule), "Id": physical_id}


def _describe_flow_log(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    flow_log = _read_resource(client, physical_id, "describe_flow_logs", "FlowLogIds", "FlowLogs")
    kinds = {"vpc": "VPC", "subnet": "Subnet", "eni": "NetworkInterface"}
    return {
        **flow_log,
        "ResourceType": kinds.get(flow_log["ResourceId"].split("-")[0]),
        "Id": physical_id,
    }


def _describe_endpoint(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    endpoint = _read_resource(
        client, physical_id, "describe_vpc_endpoints", "VpcEndpointIds", "VpcEndpoints"
    )
    policy = json.loads(endpoint["PolicyDocument"]) if endpoint.get("PolicyDocument") else {}
    groups = [group["GroupId"] for group in endpoint.get("Groups", [])]
    return {**endpoint, "SecurityGroupIds": groups, "PolicyDocument": policy, "Id": physical_id}


def _describe_launch_template(
    client: ClientFactory, physical_id: str, _properties: Properties
) -> Properties:
    """Describe a launch template in its latest version, which the stack's template wrote."""
    template = _read_resource(
        client, physical_id, "describe_launch_templates", "LaunchTemplateIds", "LaunchTemplates"
    )
    versions = client("ec2").describe_launch_template_versions(
        LaunchTemplateId=physical_id, Versions=["$Latest"]
    )
    latest = require_single(versions["LaunchTemplateVersions"], physical_id)
    tags = template.get("Tags", [])
    return {
        **template,
        **latest,
        "TagSpecifications": [{"ResourceType": "launch-template", "Tags": tags}] if tags else [],
    }


DESCRIBE: dict[str, DescribeFunction] = {
    "AWS::EC2::VPC": _describe_vpc,
    "AWS::EC2::Subnet": _describe_by_id("describe_subnets", "SubnetIds", "Subnets"),
    "AWS::EC2::RouteTable": _describe_by_id(
        "describe_route_tables", "RouteTableIds", "RouteTables"
    ),
    "AWS::EC2::Route": _describe_route,
    "AWS::EC2::SubnetRouteTableAssociation": _describe_association,
    "AWS::EC2::InternetGateway": _describe_by_id(
        "describe_internet_gateways", "InternetGatewayIds", "InternetGateways"
    ),
    "AWS::EC2::VPCGatewayAttachment": _describe_attachment,
    "AWS::EC2::EIP": _describe_by_id("describe_addresses", "AllocationIds", "Addresses"),
    "AWS::EC2::NatGateway": _describe_nat_gateway,
    "AWS::EC2::SecurityGroup": _describe_security_group,
    "AWS::EC2::SecurityGroupIngress": _describe_security_group_rule,
    "AWS::EC2::SecurityGroupEgress": _describe_security_group_rule,
    "AWS::EC2::FlowLog": _describe_flow_log,
    "AWS::EC2::VPCEndpoint": _describe_endpoint,
    "AWS::EC2::LaunchTemplate": _describe_launch_template,
    "AWS::EC2::PlacementGroup": _describe_by_id(
        "describe_placement_groups", "GroupNames", "PlacementGroups"
    ),
}
