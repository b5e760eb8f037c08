"""Group network: zones and, where they are somebody else's, subnets."""

from __future__ import annotations

from collections.abc import Iterator

from tandem.ops.doctor.account import AllowlistedAccount
from tandem.ops.doctor.check_result import CheckFinding, fail_finding, ok_finding, warn_finding
from tandem.ops.doctor.context import DoctorContext
from tandem.ops.doctor.offering import list_offer_zones
from tandem.shell_command import quote_command
from tandem.spec.environment import Environment, ExistingNetwork


def list_zone_ids(environment: Environment) -> list[str]:
    """Return the zone ids of the network, then that of the capacity, each once."""
    network = environment.network
    zone_ids = (
        [subnet.zone for subnet in network.subnets] if isinstance(network, ExistingNetwork) else list(network.zones)
    )
    return list(dict.fromkeys([*zone_ids, environment.capacity.zone]))


def check_zones(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that the region has every zone id, for this account."""
    environment = context.environment
    response = account.ask("ec2", "DescribeAvailabilityZones", environment.region)
    rows = {row["ZoneId"]: row for row in (response or {})["AvailabilityZones"]}
    missing_zones = [zone for zone in list_zone_ids(environment) if zone not in rows]
    unavailable_zones = [
        zone for zone in list_zone_ids(environment) if zone in rows and rows[zone]["State"] != "available"
    ]
    if missing_zones:
        yield fail_finding(
            f"{environment.region} has no {', '.join(missing_zones)} for this account",
            f"write zone ids of {', '.join(sorted(rows))}",
            quote_command("aws", "ec2", "describe-availability-zones", "--region", environment.region,
                          "--query", "AvailabilityZones[].[ZoneName,ZoneId]"),
        )  # fmt: skip
    for zone in unavailable_zones:
        yield warn_finding(f"{zone} is {rows[zone]['State']}", "look at the AWS Health dashboard before deploying")
    if not missing_zones and not unavailable_zones:
        yield ok_finding(", ".join(f"{zone} is {rows[zone]['ZoneName']}" for zone in list_zone_ids(environment)))


def check_subnets(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that the subnets of an existing network are where the file says."""
    network = context.environment.network
    if not isinstance(network, ExistingNetwork):
        yield ok_finding("made by the Network stack")
        return
    ids = [subnet.id for subnet in network.subnets]
    response = account.ask("ec2", "DescribeSubnets", network.vpc_id, absent={"InvalidSubnetID.NotFound"}, SubnetIds=ids)
    rows = {row["SubnetId"]: row for row in response["Subnets"]} if response else {}
    command = quote_command(
        "aws", "ec2", "describe-subnets", "--region", context.environment.region,
        "--filters", f"Name=vpc-id,Values={network.vpc_id}",
    )  # fmt: skip
    has_problem = False
    for subnet in network.subnets:
        row = rows.get(subnet.id)
        if row is None:
            message = f"{subnet.id} is not found" if response else f"one of {', '.join(ids)} is not found"
        elif row["VpcId"] != network.vpc_id:
            message = f"{subnet.id} lies in {row['VpcId']}, not in {network.vpc_id}"
        elif row["AvailabilityZoneId"] != subnet.zone:
            message = f"{subnet.id} lies in {row['AvailabilityZoneId']}, not in {subnet.zone}"
        else:
            continue
        has_problem = True
        yield fail_finding(message, "correct network.subnets", command)
        if not response:
            return
    if not has_problem:
        yield ok_finding(f"{len(ids)} subnets of {network.vpc_id} lie where the file says")


def check_system_nodes(context: DoctorContext, account: AllowlistedAccount) -> Iterator[CheckFinding]:
    """See that the network's zones offer the small nodes' type: EKS places them in every subnet."""
    environment = context.environment
    instance_type = environment.cluster.system_nodes.instance_type
    offer_zones = list_offer_zones(account, instance_type)
    zone_ids = list_zone_ids(environment)
    missing_zones = [zone for zone in zone_ids if zone not in offer_zones]
    if len(missing_zones) == len(zone_ids):
        yield fail_finding(
            f"no zone of the network offers {instance_type}", "write another cluster.system_nodes.instance_type"
        )
    elif missing_zones:
        yield warn_finding(
            f"{', '.join(missing_zones)} does not offer {instance_type}", "expect these nodes in the other zones alone"
        )
    else:
        yield ok_finding(f"{instance_type} is offered in every zone of the network")
