"""EC2 as DescribeX tells it."""

from __future__ import annotations

import json
from typing import Any

from tandem.twin.aws.describe.form import Client, Describe, Properties, one


def _described(operation: str, argument: str, answer: str) -> Describe:
    """Most of EC2: describe by a list of one id, and the answer is spelt as the template."""

    def describe(client: Client, physical_id: str, _properties: Properties) -> Properties:
        answered = getattr(client("ec2"), operation)(**{argument: [physical_id]})
        found: Properties = one(answered[answer], physical_id)
        return found

    return describe


def _vpc(client: Client, physical_id: str, _properties: Properties) -> Properties:
    ec2 = client("ec2")
    found = one(ec2.describe_vpcs(VpcIds=[physical_id])["Vpcs"], physical_id)
    for name, key in (("EnableDnsSupport", "enableDnsSupport"), ("EnableDnsHostnames", "enableDnsHostnames")):
        found[name] = ec2.describe_vpc_attribute(VpcId=physical_id, Attribute=key)[name]["Value"]
    of_it = [{"Name": "vpc-id", "Values": [physical_id]}]
    groups = ec2.describe_security_groups(Filters=of_it)["SecurityGroups"]
    acls = ec2.describe_network_acls(Filters=of_it)["NetworkAcls"]
    return {
        **found,
        "DefaultSecurityGroup": next(group["GroupId"] for group in groups if group["GroupName"] == "default"),
        "DefaultNetworkAcl": next(acl["NetworkAclId"] for acl in acls if acl["IsDefault"]),
    }


def _route(client: Client, physical_id: str, properties: Properties) -> Properties:
    table = _route_table(client, properties["RouteTableId"])
    destination = physical_id.split("|", 1)[1]
    fields = ("DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId")
    routes = [route for route in table["Routes"] if destination in {route.get(name) for name in fields}]
    return {"RouteTableId": table["RouteTableId"], **one(routes, physical_id)}


def _route_table(client: Client, physical_id: str) -> Any:
    return one(client("ec2").describe_route_tables(RouteTableIds=[physical_id])["RouteTables"], physical_id)


def _association(client: Client, physical_id: str, _properties: Properties) -> Properties:
    tables = client("ec2").describe_route_tables()["RouteTables"]
    found = [item for table in tables for item in table["Associations"]
             if item["RouteTableAssociationId"] == physical_id]  # fmt: skip
    return {**one(found, physical_id), "Id": physical_id}


def _attachment(client: Client, physical_id: str, properties: Properties) -> Properties:
    gateway = properties["InternetGatewayId"]
    found = one(client("ec2").describe_internet_gateways(InternetGatewayIds=[gateway])["InternetGateways"], physical_id)
    return {"InternetGatewayId": found["InternetGatewayId"], **one(found["Attachments"], physical_id)}


def _nat_gateway(client: Client, physical_id: str, _properties: Properties) -> Properties:
    found = one(client("ec2").describe_nat_gateways(NatGatewayIds=[physical_id])["NatGateways"], physical_id)
    return {**found, "AllocationId": one(found["NatGatewayAddresses"], physical_id).get("AllocationId")}


def _security_group(client: Client, physical_id: str, properties: Properties) -> Properties:
    """The template's rules are a part: others may belong to rule resources, so each is looked for by itself."""
    ec2 = client("ec2")
    found = one(ec2.describe_security_groups(GroupIds=[physical_id])["SecurityGroups"], physical_id)
    rules = ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [physical_id]}])
    described = {
        **found,
        "GroupDescription": found["Description"],
        "Id": physical_id,
    }
    for name, egress in (("SecurityGroupIngress", False), ("SecurityGroupEgress", True)):
        wanted = properties.get(name, [])
        spelt = [_rule(rule) for rule in rules["SecurityGroupRules"] if rule["IsEgress"] == egress]
        described[name] = [rule for rule in spelt if any(_same_place(rule, item) for item in wanted)]
    return described


_RULE = {"CidrIpv4": "CidrIp", "CidrIpv6": "CidrIpv6", "IpProtocol": "IpProtocol", "FromPort": "FromPort",
         "ToPort": "ToPort", "Description": "Description", "GroupId": "GroupId"}  # fmt: skip


def _rule(rule: Any) -> Properties:
    spelt = {name: rule[key] for key, name in _RULE.items() if key in rule}
    side = "Destination" if rule["IsEgress"] else "Source"
    if "ReferencedGroupInfo" in rule:
        spelt[f"{side}SecurityGroupId"] = rule["ReferencedGroupInfo"]["GroupId"]
    if "PrefixListId" in rule:
        spelt[f"{side}PrefixListId"] = rule["PrefixListId"]
    return spelt


def _same_place(described: Properties, wanted: Properties) -> bool:
    """Whether two rules open the same thing; ports mean nothing where every protocol is open."""
    ports = () if str(wanted["IpProtocol"]) == "-1" else ("FromPort", "ToPort")
    places = (name for name in described.keys() | wanted.keys() if name.startswith(("Cidr", "Source", "Destination")))
    return all(str(described.get(name)) == str(wanted.get(name)) for name in ("IpProtocol", *ports, *places))


def _security_group_rule(client: Client, physical_id: str, _properties: Properties) -> Properties:
    found = client("ec2").describe_security_group_rules(SecurityGroupRuleIds=[physical_id])["SecurityGroupRules"]
    return {**_rule(one(found, physical_id)), "Id": physical_id}


def _flow_log(client: Client, physical_id: str, _properties: Properties) -> Properties:
    found = one(client("ec2").describe_flow_logs(FlowLogIds=[physical_id])["FlowLogs"], physical_id)
    kinds = {"vpc": "VPC", "subnet": "Subnet", "eni": "NetworkInterface"}
    return {**found, "ResourceType": kinds.get(found["ResourceId"].split("-")[0]), "Id": physical_id}


def _endpoint(client: Client, physical_id: str, _properties: Properties) -> Properties:
    found = one(client("ec2").describe_vpc_endpoints(VpcEndpointIds=[physical_id])["VpcEndpoints"], physical_id)
    policy = json.loads(found["PolicyDocument"]) if found.get("PolicyDocument") else {}
    groups = [group["GroupId"] for group in found.get("Groups", [])]
    return {**found, "SecurityGroupIds": groups, "PolicyDocument": policy, "Id": physical_id}


def _launch_template(client: Client, physical_id: str, _properties: Properties) -> Properties:
    """Held in its latest version: that is the one which the template of the stack wrote."""
    ec2 = client("ec2")
    found = one(ec2.describe_launch_templates(LaunchTemplateIds=[physical_id])["LaunchTemplates"], physical_id)
    versions = ec2.describe_launch_template_versions(LaunchTemplateId=physical_id, Versions=["$Latest"])
    latest = one(versions["LaunchTemplateVersions"], physical_id)
    tags = found.get("Tags", [])
    return {
        **found,
        **latest,
        "TagSpecifications": [{"ResourceType": "launch-template", "Tags": tags}] if tags else [],
    }


DESCRIBE: dict[str, Describe] = {
    "AWS::EC2::VPC": _vpc,
    "AWS::EC2::Subnet": _described("describe_subnets", "SubnetIds", "Subnets"),
    "AWS::EC2::RouteTable": _described("describe_route_tables", "RouteTableIds", "RouteTables"),
    "AWS::EC2::Route": _route,
    "AWS::EC2::SubnetRouteTableAssociation": _association,
    "AWS::EC2::InternetGateway": _described("describe_internet_gateways", "InternetGatewayIds", "InternetGateways"),
    "AWS::EC2::VPCGatewayAttachment": _attachment,
    "AWS::EC2::EIP": _described("describe_addresses", "AllocationIds", "Addresses"),
    "AWS::EC2::NatGateway": _nat_gateway,
    "AWS::EC2::SecurityGroup": _security_group,
    "AWS::EC2::SecurityGroupIngress": _security_group_rule,
    "AWS::EC2::SecurityGroupEgress": _security_group_rule,
    "AWS::EC2::FlowLog": _flow_log,
    "AWS::EC2::VPCEndpoint": _endpoint,
    "AWS::EC2::LaunchTemplate": _launch_template,
    "AWS::EC2::PlacementGroup": _described("describe_placement_groups", "GroupNames", "PlacementGroups"),
}
