"""Group network: zones and, if they are somebody else's, subnets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tandem.declarations.environment import Environment
from tandem.declarations.network_settings import ExistingNetwork, ExistingSubnet, NewNetwork
from tandem.ops.account import AccountClients, build_aws_command
from tandem.ops.doctor.context import DoctorContext, Finding


def list_zone_ids(environment: Environment) -> list[str]:
    """Return the zone ids of the network, then that of the capacity, each once."""
    network = environment.network
    if isinstance(network, NewNetwork):
        zone_ids = list(network.zones)
    else:
        zone_ids = [subnet.zone for subnet in list_subnets(network)]
    return list(dict.fromkeys([*zone_ids, environment.capacity.zone]))


def list_subnets(network: ExistingNetwork) -> list[ExistingSubnet]:
    """Return every subnet that an existing network names, that of nodes first, each once."""
    return list(dict.fromkeys([*network.subnets, *network.cluster_subnets]))


def list_offer_zones(account: AccountClients, instance_type: str) -> set[str]:
    """Return the zone ids of the region that offer a type; types may be hidden from an account.

    Raises:
        ExternalError: EC2 did not answer.
    """
    rows = account.list_rows(
        "ec2",
        "DescribeInstanceTypeOfferings",
        "InstanceTypeOfferings",
        instance_type,
        LocationType="availability-zone-id",
        Filters=[{"Name": "instance-type", "Values": [instance_type]}],
    )
    return {row["Location"] for row in rows}


def check_zones(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Check that the region has every zone id, for this account."""
    region = context.environment.region
    zone_ids = list_zone_ids(context.environment)
    rows = {
        row["ZoneId"]: row
        for row in account.ask("ec2", "DescribeAvailabilityZones", region)["AvailabilityZones"]
    }
    missing = [zone for zone in zone_ids if zone not in rows]
    unavailable = [zone for zone in zone_ids if zone in rows and rows[zone]["State"] != "available"]
    if missing:
        message = f"{region} has no {', '.join(missing)} for this account"
        yield Finding("fail", message, f"write zone ids of {', '.join(sorted(rows))}")
    for zone in unavailable:
        yield Finding(
            "warn",
            f"{zone} is {rows[zone]['State']}",
            "look at the AWS Health dashboard before deploying",
        )
    if not missing and not unavailable:
        yield Finding("ok", ", ".join(f"{zone} is {rows[zone]['ZoneName']}" for zone in zone_ids))


def check_subnets(context: DoctorContext, account: AccountClients) -> Iterator[Finding]:
    """Check that the subnets of an existing network are as in the file."""
    network = context.environment.network
    if not isinstance(network, ExistingNetwork):
        yield Finding("ok", "made by the Network stack")
        return
    vpc = network.vpc_id
    subnets = list_subnets(network)
    problems = _list_subnet_faults(network, account, subnets)
    command = build_aws_command(
        "ec2 describe-subnets",
        region=context.environment.region,
        filters=f"Name=vpc-id,Values={vpc}",
    )
    action = "correct network.subnets"
    if network.control_plane_subnets:
        action += " or network.control_plane_subnets"
    for problem in problems:
        yield Finding("fail", problem, action, command)
    if not problems:
        yield Finding("ok", f"{len(subnets)} subnets of {vpc} lie where the file says")


def _list_subnet_faults(
    network: ExistingNetwork, account: AccountClients, subnets: list[ExistingSubnet]
) -> list[str]:
    ids = [subnet.id for subnet in subnets]
    answer = account.find("ec2", "DescribeSubnets", network.vpc_id, SubnetIds=ids)
    if answer is None:
        return [f"one of {', '.join(ids)} is not found"]
    rows = {row["SubnetId"]: row for row in answer["Subnets"]}
    faults = [_find_subnet_fault(network, subnet, rows.get(subnet.id)) for subnet in subnets]
    return list(filter(None, faults))


def _find_subnet_fault(
    network: ExistingNetwork, subnet: ExistingSubnet, row: dict[str, Any] | None
) -> str:
    """Return how a subnet differs from the file; empty if it does not."""
    if row is None:
        return f"{subnet.id} is not found"
    if row["VpcId"] != network.vpc_id:
        return f"{subnet.id} lies in {row['VpcId']}, not in {network.vpc_id}"
    if row["AvailabilityZoneId"] != subnet.zone:
        return f"{subnet.id} lies in {row['AvailabilityZoneId']}, not in {subnet.zone}"
    return ""


def check_system_nodes(context: DoctorContext, account: AccountClients) -> Finding:
    """Check that the first two zones offer the small nodes' type: EKS uses these subnets."""
    instance_type = context.environment.cluster.system_nodes.instance_type
    offer_zones = list_offer_zones(account, instance_type)
    zone_ids = list(context.environment.network.base_zones)
    missing = [zone for zone in zone_ids if zone not in offer_zones]
    if missing == zone_ids:
        message = (
            f"none of {', '.join(zone_ids)}, the network's first two zones, offers {instance_type}"
        )
        return Finding("fail", message, "write another system_nodes.instance_type")
    if missing:
        message = f"{', '.join(missing)} does not offer {instance_type}"
        return Finding("warn", message, "expect the system nodes in the other zones only")
    return Finding("ok", f"{instance_type} is offered in {', '.join(zone_ids)}")
