"""Address ranges, subnets and ways out."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator

from tandem.rules.capacity import list_network_zones
from tandem.rules.contexts import EnvironmentContext
from tandem.rules.rule import RuleFinding, RuleList, join_values
from tandem.spec.environment import ExistingNetwork, NewNetwork

# a VPC takes /16 to /28; below /20 a trn2 node's interfaces alone may exhaust a subnet
LARGEST_PREFIX, SMALLEST_PREFIX = 16, 20
PRIVATE = tuple(ipaddress.IPv4Network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))

_VPC = "EC2 API Reference, CreateVpc"
_EKS = "docs.aws.amazon.com/eks/latest/userguide/network-reqs.html"
RULES = RuleList()


def parse_network(cidr: str) -> ipaddress.IPv4Network | None:
    """Return the range, or None where its text is none (an octet over 255, bits set after the prefix)."""
    try:
        return ipaddress.IPv4Network(cidr)
    except ValueError:
        return None


def _yield_ranges(context: EnvironmentContext) -> Iterator[tuple[str, str]]:
    network = context.environment.network
    yield "network.cidr", network.cidr
    if isinstance(network, ExistingNetwork):
        for index, cidr in enumerate(network.secondary_cidrs):
            yield f"network.secondary_cidrs[{index}]", cidr
    for index, cidr in enumerate(context.environment.cluster.endpoint.cidrs):
        yield f"cluster.endpoint.cidrs[{index}]", cidr
    for index, client in enumerate(context.environment.cluster.endpoint.clients):
        if not client.startswith("sg-"):
            yield f"cluster.endpoint.clients[{index}]", client


def _suggest_range(cidr: str) -> str:
    try:
        return f"write {ipaddress.IPv4Network(cidr, strict=False)}"
    except ValueError:
        return "write four numbers up to 255, and a prefix up to /32"


@RULES.refuse("range-valid", "RFC 4632", "2006-08-01")
def _find_invalid_ranges(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Every address range is one, with no bits set after its prefix."""
    for path, cidr in _yield_ranges(context):
        if parse_network(cidr) is None:
            yield RuleFinding(
                path=path, got=cidr, allowed="the first address of a range, and its prefix", change=_suggest_range(cidr)
            )


@RULES.refuse(
    "range-size",
    _VPC,
    "2026-11-21",
    sentence=f"The range of a new VPC is from /{LARGEST_PREFIX} to /{SMALLEST_PREFIX}.",
)
def _find_wrong_range_size(context: EnvironmentContext) -> Iterable[RuleFinding]:
    network = context.environment.network
    block = parse_network(network.cidr)
    if (
        isinstance(network, NewNetwork)
        and block is not None
        and not LARGEST_PREFIX <= block.prefixlen <= SMALLEST_PREFIX
    ):
        prefix = min(max(block.prefixlen, LARGEST_PREFIX), SMALLEST_PREFIX)
        yield RuleFinding(
            path="network.cidr", got=network.cidr, allowed=f"a prefix from /{LARGEST_PREFIX} to /{SMALLEST_PREFIX}",
            change=f"write {ipaddress.IPv4Network((block.network_address, prefix), strict=False)}",
        )  # fmt: skip


@RULES.refuse("range-private", "RFC 1918", "1996-02-01")
def _find_public_range(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The range of a new VPC is private."""
    network = context.environment.network
    block = parse_network(network.cidr)
    if (
        isinstance(network, NewNetwork)
        and block is not None
        and not any(block.subnet_of(private) for private in PRIVATE)
    ):
        yield RuleFinding(
            path="network.cidr", got=network.cidr, allowed=f"inside {join_values(PRIVATE)}", change="write 10.42.0.0/16"
        )


@RULES.refuse("zones-two", _EKS, "2026-11-21")
def _find_single_zone(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The network spans two zones or more."""
    distinct = sorted({zone for _, zone in list_network_zones(context)})
    if len(distinct) == 1:
        key = "zones" if isinstance(context.environment.network, NewNetwork) else "subnets"
        yield RuleFinding(
            path=f"network.{key}", got=f"only {distinct[0]}", allowed="two zones or more: EKS needs them",
            change="add one in another zone",
        )  # fmt: skip


@RULES.refuse("subnet-once", "Tandem's own: one subnet per entry", "2026-11-21")
def _find_repeated_subnets(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """Each zone of a new network, and each subnet of an existing one, stands once."""
    network = context.environment.network
    if isinstance(network, ExistingNetwork):
        entries = [(f"network.subnets[{index}].id", subnet.id) for index, subnet in enumerate(network.subnets)]
    else:
        entries = list_network_zones(context)
        if len(set(network.zones)) == 1:  # zones-two has refused that
            return
    counts, earlier_names = Counter(name for _, name in entries), set()
    for path, name in entries:
        if name in earlier_names:
            yield RuleFinding(path=path, got=f"{name}, {counts[name]} times", allowed="each once", change="delete one")
        earlier_names.add(name)


@RULES.refuse("ranges-apart", "EC2 API Reference, AssociateVpcCidrBlock", "2026-11-22")
def _find_overlaps(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """The ranges of an existing network do not overlap."""
    network = context.environment.network
    if not isinstance(network, ExistingNetwork):
        return
    blocks = [parse_network(cidr) for cidr in network.cidrs]
    for index, block in enumerate(blocks[1:]):
        overlaps = [
            earlier_block
            for earlier_block in blocks[: index + 1]
            if earlier_block and block and earlier_block.overlaps(block)
        ]
        if overlaps:
            yield RuleFinding(
                path=f"network.secondary_cidrs[{index}]", got=f"{block}, which overlaps {overlaps[0]}",
                allowed="ranges that do not overlap, as EC2 admits them to one VPC", change="delete one",
            )  # fmt: skip


@RULES.refuse(
    "closed-needs-endpoints", "awsdocs/amazon-eks-user-guide latest/ug/clusters/private-clusters.adoc", "2026-11-21"
)
def _find_missing_endpoints(context: EnvironmentContext) -> Iterable[RuleFinding]:
    """A network without NAT has the interface endpoints."""
    network = context.environment.network
    if isinstance(network, NewNetwork) and network.nat == "none" and not network.has_interface_endpoints:
        yield RuleFinding(
            path="network.interface_endpoints", got="false with nat none", allowed="true or null with nat none",
            change="delete it, or nat: single: nodes must reach the AWS services to join",
        )  # fmt: skip
