"""Group network: zones and, where they are somebody else's, subnets."""

from __future__ import annotations

from collections.abc import Iterator

from tandem.ops.doctor.account import Account
from tandem.ops.doctor.line import Finding, fail, ok, warn
from tandem.ops.doctor.offering import offered_zones
from tandem.ops.doctor.subject import Subject
from tandem.shell_command import quote_command
from tandem.spec.environment import Environment, ExistingNetwork


def named(environment: Environment) -> list[str]:
    """Return the zone ids of the network, then that of the capacity, each once."""
    network = environment.network
    mine = [one.zone for one in network.subnets] if isinstance(network, ExistingNetwork) else list(network.zones)
    return list(dict.fromkeys([*mine, environment.capacity.zone]))


def zones(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that the region has every zone id, for this account."""
    environment = subject.environment
    found = account.ask("ec2", "DescribeAvailabilityZones", environment.region)
    rows = {row["ZoneId"]: row for row in (found or {})["AvailabilityZones"]}
    missing = [zone for zone in named(environment) if zone not in rows]
    shut = [zone for zone in named(environment) if zone in rows and rows[zone]["State"] != "available"]
    if missing:
        yield fail(
            f"{environment.region} has no {', '.join(missing)} for this account",
            f"write zone ids of {', '.join(sorted(rows))}",
            quote_command("aws", "ec2", "describe-availability-zones", "--region", environment.region,
                          "--query", "AvailabilityZones[].[ZoneName,ZoneId]"),
        )  # fmt: skip
    for zone in shut:
        yield warn(f"{zone} is {rows[zone]['State']}", "look at the AWS Health dashboard before deploying")
    if not missing and not shut:
        yield ok(", ".join(f"{zone} is {rows[zone]['ZoneName']}" for zone in named(environment)))


def subnets(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that the subnets of an existing network are where the file says."""
    network = subject.environment.network
    if not isinstance(network, ExistingNetwork):
        yield ok("made by the Network stack")
        return
    ids = [subnet.id for subnet in network.subnets]
    found = account.ask("ec2", "DescribeSubnets", network.vpc_id, absent={"InvalidSubnetID.NotFound"}, SubnetIds=ids)
    rows = {row["SubnetId"]: row for row in found["Subnets"]} if found else {}
    look = quote_command(
        "aws", "ec2", "describe-subnets", "--region", subject.environment.region,
        "--filters", f"Name=vpc-id,Values={network.vpc_id}",
    )  # fmt: skip
    wrong = False
    for subnet in network.subnets:
        row = rows.get(subnet.id)
        if row is None:
            said = f"{subnet.id} is not found" if found else f"one of {', '.join(ids)} is not found"
        elif row["VpcId"] != network.vpc_id:
            said = f"{subnet.id} lies in {row['VpcId']}, not in {network.vpc_id}"
        elif row["AvailabilityZoneId"] != subnet.zone:
            said = f"{subnet.id} lies in {row['AvailabilityZoneId']}, not in {subnet.zone}"
        else:
            continue
        wrong = True
        yield fail(said, "correct network.subnets", look)
        if not found:
            return
    if not wrong:
        yield ok(f"{len(ids)} subnets of {network.vpc_id} lie where the file says")


def system_nodes(subject: Subject, account: Account) -> Iterator[Finding]:
    """See that the network's zones offer the small nodes' type: EKS places them in every subnet."""
    environment = subject.environment
    kind = environment.cluster.system_nodes.instance_type
    offered = offered_zones(account, kind)
    mine = named(environment)
    lacking = [zone for zone in mine if zone not in offered]
    if len(lacking) == len(mine):
        yield fail(f"no zone of the network offers {kind}", "write another cluster.system_nodes.instance_type")
    elif lacking:
        yield warn(f"{', '.join(lacking)} does not offer {kind}", "expect these nodes in the other zones alone")
    else:
        yield ok(f"{kind} is offered in every zone of the network")
