"""Rules on address ranges, subnets and ways out, on access to the cluster and on its principals."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterable, Iterator

from tandem.declarations import names
from tandem.declarations.environment import EXAMPLE_ACCOUNTS
from tandem.declarations.network_settings import ExistingNetwork, NewNetwork
from tandem.declarations.record import UnknownValueError
from tandem.rules.contexts import EnvironmentContext
from tandem.rules.rule import RuleFinding, RuleList, index_paths, join_values

# a VPC takes /16 to /28; below /20 a trn2 node's interfaces alone may exhaust a subnet
LARGEST_PREFIX = 16
SMALLEST_PREFIX = 20
# the largest block that a registry gave one organisation; a wider range means everybody
WIDEST_PREFIX = 8
PRIVATE = tuple(
    ipaddress.IPv4Network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
)
# RFC 6598, which EKS admits as a VPC's secondary range
SHARED = ipaddress.IPv4Network("100.64.0.0/10")
# IAM API Reference, CreatePolicy: a name, behind its path; of the path what
# `cdk bootstrap` takes (validatePolicyName)
POLICY_NAME = re.compile(r"([\w+=,.@-]+/)*[\w+=,.@-]{1,128}", re.ASCII)

_EKS = "docs.aws.amazon.com/eks/latest/userguide/network-reqs.html"
_CLOSED = "awsdocs/amazon-eks-user-guide latest/ug/clusters/private-clusters.adoc"
_ENDPOINT = "EKS API Reference, VpcConfigRequest publicAccessCidrs"
_ADMIN = (
    "EKS API Reference, CreateAccessConfigRequest"
    " bootstrapClusterCreatorAdminPermissions, rendered false"
)
_ENTRIES = "docs.aws.amazon.com/eks/latest/userguide/creating-access-entries.html"
_PARTITIONS = (
    "AWS General Reference, ARNs: a principal of another partition cannot exist in the account"
)
_RESERVED_PATH = (
    "IAM Identity Center user guide, IAM roles created by IAM Identity Center;"
    " terraform-aws-eks#2969"
)
SSO_NAME = "AWSReservedSSO_"
SSO_PATH = "aws-reserved/sso.amazonaws.com/"
_FOREIGN = "Tandem's own: an access entry for a principal of another account is unproven"
RULES = RuleList()


def _parse_network(cidr: str) -> ipaddress.IPv4Network:
    """Return the range; unknown if invalid (an octet over 255, bits set after the prefix)."""
    try:
        return ipaddress.IPv4Network(cidr)
    except ValueError:
        raise UnknownValueError(cidr) from None


def _is_inside(cidr: str, blocks: Iterable[ipaddress.IPv4Network]) -> bool:
    """Return whether a range is inside one of the blocks."""
    network = _parse_network(cidr)
    return any(network.subnet_of(block) for block in blocks)


def _new_network(context: EnvironmentContext) -> NewNetwork:
    if not isinstance(context.environment.network, NewNetwork):
        raise UnknownValueError("network")
    return context.environment.network


def _yield_ranges(context: EnvironmentContext) -> Iterator[tuple[str, str]]:
    network = context.environment.network
    endpoint = context.environment.cluster.endpoint
    yield "network.cidr", network.cidr
    secondary = network.secondary_cidrs if isinstance(network, ExistingNetwork) else ()
    yield from index_paths("network.secondary_cidrs", secondary)
    yield from index_paths("cluster.endpoint.cidrs", endpoint.cidrs)
    clients = index_paths("cluster.endpoint.clients", endpoint.clients)
    for path, client in clients:
        if not client.startswith("sg-"):
            yield path, client


@RULES.refuse("range-valid", "RFC 4632", "2006-08-01")
def _find_invalid_ranges(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Every address range is valid, with no bits set after its prefix."""
    for path, cidr in _yield_ranges(context):
        change = "write four numbers up to 255, and a prefix up to /32"
        with contextlib.suppress(ValueError):
            change = f"write {ipaddress.IPv4Network(cidr, strict=False)}"
        if change != f"write {cidr}":
            yield RuleFinding(path, cidr, "the first address of a range, and its prefix", change)


@RULES.refuse("range-size", "EC2 API Reference, CreateVpc", "2026-11-21")
def _find_wrong_range_size(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The range of a new VPC is from /{LARGEST_PREFIX} to /{SMALLEST_PREFIX}."""
    block = _parse_network(_new_network(context).cidr)
    prefix = min(max(block.prefixlen, LARGEST_PREFIX), SMALLEST_PREFIX)
    if prefix != block.prefixlen:
        change = f"write {ipaddress.IPv4Network((block.network_address, prefix), strict=False)}"
        yield RuleFinding(
            "network.cidr",
            str(block),
            f"a prefix from /{LARGEST_PREFIX} to /{SMALLEST_PREFIX}",
            change,
        )


@RULES.refuse("range-private", "RFC 1918", "1996-02-01")
def _find_public_range(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The range of a new VPC is private."""
    cidr = _new_network(context).cidr
    if not _is_inside(cidr, PRIVATE):
        yield RuleFinding(
            "network.cidr", cidr, f"inside {join_values(PRIVATE)}", "write 10.42.0.0/16"
        )


@RULES.refuse("zones-two", _EKS, "2026-11-21")
def _find_single_zone(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The network spans two zones or more."""
    network = context.environment.network
    zones = {zone for _, zone in context.zones()}
    # subnet-once refuses an only subnet that stands twice
    is_repeated = (
        isinstance(network, ExistingNetwork) and len({row.id for row in network.subnets}) == 1
    )
    if len(zones) == 1 and not is_repeated:
        path = "network.zones" if network.kind == "new" else "network.subnets"
        legal = "two zones or more: EKS needs them"
        yield RuleFinding(path, f"only {join_values(zones)}", legal, "add one in another zone")


@RULES.refuse_repeats("subnet-once", "Tandem's own: one subnet per entry", "2026-11-21")
def _list_subnets(context: EnvironmentContext) -> Iterable[tuple[str, str]]:
    """Each zone of a new network, and each subnet of an existing one, stands once."""
    network = context.environment.network
    if isinstance(network, ExistingNetwork):
        return [
            (f"{path}.id", subnet.id)
            for path, subnet in index_paths("network.subnets", network.subnets)
        ]
    return context.zones() if len(set(network.zones)) > 1 else ()  # zones-two refuses a single zone


@RULES.refuse("control-plane-zones", _EKS, "2026-11-28")
def _find_single_control_plane_zone(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The control plane's subnets lie in two zones."""
    zones = [zone for _, zone in context.control_plane_zones()]
    if len(set(zones)) < len(zones):
        got = f"twice {zones[0]}"
        legal = "two subnets in two zones: EKS needs them"
        change = (
            "name one in another zone, or delete the key: then the first two zones of"
            " network.subnets have it"
        )
        yield RuleFinding("network.control_plane_subnets", got, legal, change)


@RULES.refuse("subnet-zone", "EC2 API Reference, Subnet: one AvailabilityZoneId", "2026-11-28")
def _find_moved_subnets(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A subnet of the control plane has the zone that it has in `network.subnets`."""
    network = context.environment.network
    if not isinstance(network, ExistingNetwork):
        return
    known_zones = {subnet.id: subnet.zone for subnet in network.subnets}
    for path, subnet in index_paths(
        "network.control_plane_subnets", network.control_plane_subnets or ()
    ):
        zone = known_zones.setdefault(subnet.id, subnet.zone)
        if subnet.zone != zone:
            got = f"{subnet.zone} of {subnet.id}, which stands above with {zone}"
            change = f"write the id of a subnet in {subnet.zone}, or correct the zone"
            yield RuleFinding(f"{path}.zone", got, f"{zone} with this id", change)


@RULES.refuse("nat-zone", "Tandem's own: a gateway stands in a zone of the network", "2026-11-28")
def _find_foreign_nat_zone(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The zone of the one NAT gateway is a zone of the network."""
    network = _new_network(context)
    if network.nat_zone is None:
        return
    if network.nat != "single":
        got = f"{network.nat_zone} with nat {network.nat}"
        legal = f"null with nat {network.nat}"
        yield RuleFinding("network.nat_zone", got, legal, "delete it, or write nat: single")
    elif network.nat_zone not in network.zones:
        yield RuleFinding(
            "network.nat_zone", network.nat_zone, join_values(network.zones), "write one of them"
        )


@RULES.refuse("ranges-apart", "EC2 API Reference, AssociateVpcCidrBlock", "2026-11-22")
def _find_overlaps(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The ranges of an existing network do not overlap."""
    network = context.environment.network
    if not isinstance(network, ExistingNetwork):
        return
    blocks = [_parse_network(cidr) for cidr in network.cidrs]
    for index, block in enumerate(blocks[1:]):
        overlaps = [first for first in blocks[: index + 1] if first.overlaps(block)]
        if overlaps:
            got = f"{block}, which overlaps {overlaps[0]}"
            legal = "ranges that do not overlap, as EC2 admits them"
            yield RuleFinding(f"network.secondary_cidrs[{index}]", got, legal, "delete one")


@RULES.refuse("closed-needs-endpoints", _CLOSED, "2026-11-21")
def _find_missing_endpoints(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A network without NAT has the interface endpoints."""
    if context.is_closed() and not _new_network(context).has_interface_endpoints:
        change = "delete it, or nat: single: nodes must reach the AWS services to join"
        yield RuleFinding(
            "network.interface_endpoints",
            "false with nat none",
            "true or null with nat none",
            change,
        )


@RULES.refuse("endpoint-named", _ENDPOINT, "2026-11-21")
def _find_missing_cidrs(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A public endpoint names the ranges it admits."""
    endpoint = context.environment.cluster.endpoint
    if endpoint.access == "public" and not endpoint.cidrs:
        got = "none with a public endpoint"
        legal = "the ranges your people come from"
        yield RuleFinding(
            "cluster.endpoint.cidrs", got, legal, "name them, or write access: private"
        )


@RULES.refuse("endpoint-open", f"{_ENDPOINT}; cdk-nag AwsSolutions-EKS1", "2026-11-21")
def _find_wide_cidrs(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """No admitted range is wider than /{WIDEST_PREFIX}."""
    for path, cidr in index_paths(
        "cluster.endpoint.cidrs", context.environment.cluster.endpoint.cidrs
    ):
        if _parse_network(cidr).prefixlen < WIDEST_PREFIX:
            change = "name the ranges your people come from, or write access: private"
            yield RuleFinding(path, cidr, f"a prefix of /{WIDEST_PREFIX} or longer", change)


@RULES.refuse("endpoint-routed", "RFC 1918", "1996-02-01")
def _find_private_cidrs(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A public endpoint admits public ranges only."""
    endpoint = context.environment.cluster.endpoint
    for path, cidr in index_paths("cluster.endpoint.cidrs", endpoint.cidrs):
        if endpoint.access == "public" and _is_inside(cidr, PRIVATE):
            change = "delete it: the VPC itself always reaches the endpoint"
            yield RuleFinding(path, cidr, "public ranges: no private address arrives there", change)


@RULES.refuse("endpoint-unused", _ENDPOINT, "2026-11-21")
def _find_unused_cidrs(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A private endpoint names no ranges."""
    endpoint = context.environment.cluster.endpoint
    if endpoint.access == "private" and endpoint.cidrs:
        got = f"{join_values(endpoint.cidrs)} with a private endpoint"
        change = "delete them, or write access: public"
        yield RuleFinding("cluster.endpoint.cidrs", got, "none with a private endpoint", change)


@RULES.refuse("clients-private", "RFC 1918, RFC 6598", "2026-11-22")
def _find_public_clients(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Clients of the API's private address are private ranges or security groups."""
    private = (*PRIVATE, SHARED)
    for path, client in index_paths(
        "cluster.endpoint.clients", context.environment.cluster.endpoint.clients
    ):
        if not client.startswith("sg-") and not _is_inside(client, private):
            legal = (
                f"inside {join_values(private)}: no other address arrives at the API's private one"
            )
            change = "delete it, or with access: public write it into cluster.endpoint.cidrs"
            yield RuleFinding(path, client, legal, change)


@RULES.refuse("admin-named", _ADMIN, "2026-11-21")
def _find_missing_admin(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Somebody is admin of the cluster."""
    if not context.environment.cluster.access.admin:
        change = "name a role: whoever creates the cluster gets no rights in it"
        yield RuleFinding("cluster.access.admin", "nobody", "at least one IAM role or user", change)


@RULES.refuse_repeats("principal-once", _ENTRIES, "2026-11-21")
def _list_principals(context: EnvironmentContext) -> list[tuple[str, str]]:
    """Each principal has one kind only."""
    entries = []
    for kind, arns in context.environment.cluster.access:
        entries += index_paths(f"cluster.access.{kind}", arns)
    return entries


@RULES.refuse("principal-partition", _PARTITIONS, "2026-11-28")
def _find_foreign_partitions(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Everybody named in `cluster.access` belongs to the region's partition."""
    region = context.environment.region
    own_partition = names.aws_partition(region)
    for path, arn in _list_principals(context):
        partition, _, rest = arn.removeprefix("arn:").partition(":")
        if partition != own_partition:
            got = f"{arn} in {region}"
            legal = f"an ARN that begins with arn:{own_partition}:"
            yield RuleFinding(path, got, legal, f"write arn:{own_partition}:{rest}")


@RULES.refuse("principal-path", _RESERVED_PATH, "2026-11-28")
def _find_pathless_roles(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A role of IAM Identity Center has its path."""
    for path, arn in _list_principals(context):
        folder, _, name = arn.partition(":role/")[2].rpartition("/")
        if name.startswith(SSO_NAME) and not f"{folder}/".startswith(SSO_PATH):
            change = f"write what `aws iam get-role --role-name {name} --query Role.Arn` prints"
            yield RuleFinding(
                path, arn, f"...:role/{SSO_PATH}[REGION/]{name}, as EKS admits it", change
            )


@RULES.warn("principal-own", _FOREIGN, "2026-11-22")
def _find_foreign_principals(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Everybody named in `cluster.access` belongs to the environment's account."""
    account = context.environment.account
    for path, arn in _list_principals(context):
        owner = arn.split(":")[4]
        # example-leftover refuses these
        is_example = owner in EXAMPLE_ACCOUNTS and account not in EXAMPLE_ACCOUNTS
        if owner != account and not is_example:
            got = f"{arn} in an environment of account {account}"
            legal = f"a principal of account {account}"
            change = (
                f"write a role of {account}; one that people of {owner} may assume lets them in"
            )
            yield RuleFinding(path, got, legal, change)


@RULES.refuse("boundary-name", "IAM API Reference, CreatePolicy", "2026-11-21")
def _find_boundary_arn(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The permissions boundary is a policy's name, with its path if it has one."""
    boundary = context.environment.bootstrap.permissions_boundary
    if boundary is not None and not POLICY_NAME.fullmatch(boundary):
        name = boundary.partition(":policy/")[2].lstrip("/") or boundary.strip("/")
        change = "write the last part of its ARN, behind policy/"
        if POLICY_NAME.fullmatch(name):
            change = f"write {name}"
        legal = "the name of a managed policy, or path/name, not its ARN"
        yield RuleFinding("bootstrap.permissions_boundary", repr(boundary), legal, change)
