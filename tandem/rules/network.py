"""Address ranges, subnets and ways out."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date

from tandem.rules.capacity import zones
from tandem.rules.rule import Finding, Rule, listed
from tandem.rules.subjects import Stamp
from tandem.spec.environment import ExistingNetwork, NewNetwork

LARGEST, SMALLEST = 16, 20  # a VPC takes /16 to /28; below /20 a trn2 node's interfaces alone may exhaust a subnet
PRIVATE = tuple(ipaddress.IPv4Network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))


def network_of(cidr: str) -> ipaddress.IPv4Network | None:
    """Return the range, or None where its text is none (an octet over 255, bits set after the prefix)."""
    try:
        return ipaddress.IPv4Network(cidr)
    except ValueError:
        return None


def _ranges(stamp: Stamp) -> Iterator[tuple[str, str]]:
    network = stamp.environment.network
    yield "network.cidr", network.cidr
    if isinstance(network, ExistingNetwork):
        for index, cidr in enumerate(network.secondary_cidrs):
            yield f"network.secondary_cidrs[{index}]", cidr
    for index, cidr in enumerate(stamp.environment.cluster.endpoint.cidrs):
        yield f"cluster.endpoint.cidrs[{index}]", cidr
    for index, client in enumerate(stamp.environment.cluster.endpoint.clients):
        if not client.startswith("sg-"):
            yield f"cluster.endpoint.clients[{index}]", client


def _nearest_range(cidr: str) -> str:
    try:
        return f"write {ipaddress.IPv4Network(cidr, strict=False)}"
    except ValueError:
        return "write four numbers up to 255, and a prefix up to /32"


def _valid(stamp: Stamp) -> Iterable[Finding]:
    for path, cidr in _ranges(stamp):
        if network_of(cidr) is None:
            yield Finding(
                path=path, got=cidr, allowed="the first address of a range, and its prefix", change=_nearest_range(cidr)
            )


def _size(stamp: Stamp) -> Iterable[Finding]:
    network = stamp.environment.network
    block = network_of(network.cidr)
    if isinstance(network, NewNetwork) and block is not None and not LARGEST <= block.prefixlen <= SMALLEST:
        prefix = min(max(block.prefixlen, LARGEST), SMALLEST)
        yield Finding(
            path="network.cidr", got=network.cidr, allowed=f"a prefix from /{LARGEST} to /{SMALLEST}",
            change=f"write {ipaddress.IPv4Network((block.network_address, prefix), strict=False)}",
        )  # fmt: skip


def _private(stamp: Stamp) -> Iterable[Finding]:
    network = stamp.environment.network
    block = network_of(network.cidr)
    if (
        isinstance(network, NewNetwork)
        and block is not None
        and not any(block.subnet_of(private) for private in PRIVATE)
    ):
        yield Finding(
            path="network.cidr", got=network.cidr, allowed=f"inside {listed(PRIVATE)}", change="write 10.42.0.0/16"
        )


def _two_zones(stamp: Stamp) -> Iterable[Finding]:
    distinct = sorted({zone for _, zone in zones(stamp)})
    if len(distinct) == 1:
        where = "zones" if isinstance(stamp.environment.network, NewNetwork) else "subnets"
        yield Finding(
            path=f"network.{where}", got=f"only {distinct[0]}", allowed="two zones or more: EKS needs them",
            change="add one in another zone",
        )  # fmt: skip


def _once(stamp: Stamp) -> Iterable[Finding]:
    network = stamp.environment.network
    if isinstance(network, ExistingNetwork):
        entries = [(f"network.subnets[{index}].id", subnet.id) for index, subnet in enumerate(network.subnets)]
    else:
        entries = zones(stamp)
        if len(set(network.zones)) == 1:  # zones-two has refused that
            return
    counts, seen = Counter(name for _, name in entries), set()
    for path, name in entries:
        if name in seen:
            yield Finding(path=path, got=f"{name}, {counts[name]} times", allowed="each once", change="delete one")
        seen.add(name)


def _overlapping(stamp: Stamp) -> Iterable[Finding]:
    network = stamp.environment.network
    if not isinstance(network, ExistingNetwork):
        return
    blocks = [network_of(cidr) for cidr in network.cidrs]
    for index, block in enumerate(blocks[1:]):
        before = [other for other in blocks[: index + 1] if other and block and other.overlaps(block)]
        if before:
            yield Finding(
                path=f"network.secondary_cidrs[{index}]", got=f"{block}, which overlaps {before[0]}",
                allowed="ranges that do not overlap, as EC2 admits them to one VPC", change="delete one",
            )  # fmt: skip


def _endpoints(stamp: Stamp) -> Iterable[Finding]:
    network = stamp.environment.network
    if isinstance(network, NewNetwork) and network.nat == "none" and not network.has_interface_endpoints:
        yield Finding(
            path="network.interface_endpoints", got="false with nat none", allowed="true or null with nat none",
            change="delete it, or nat: single: nodes must reach the AWS services to join",
        )  # fmt: skip


_VPC = "EC2 API Reference, CreateVpc"
_EKS = "docs.aws.amazon.com/eks/latest/userguide/network-reqs.html"

RULES: tuple[Rule[Stamp], ...] = (
    Rule(
        id="range-valid", of=Stamp, severity="refusal", find=_valid,
        sentence="every address range is one, with no bits set after its prefix", source="RFC 4632",
        date=date(2006, 8, 1),
    ),
    Rule(
        id="range-size", of=Stamp, severity="refusal", find=_size,
        sentence=f"the range of a new VPC is from /{LARGEST} to /{SMALLEST}", source=_VPC, date=date(2026, 11, 21),
    ),
    Rule(
        id="range-private", of=Stamp, severity="refusal", find=_private,
        sentence="the range of a new VPC is private", source="RFC 1918", date=date(1996, 2, 1),
    ),
    Rule(
        id="zones-two", of=Stamp, severity="refusal", find=_two_zones,
        sentence="the network spans two zones or more", source=_EKS, date=date(2026, 11, 21),
    ),
    Rule(
        id="subnet-once", of=Stamp, severity="refusal", find=_once,
        sentence="each zone of a new network, and each subnet of an existing one, stands once",
        source="Tandem's own: one subnet per entry", date=date(2026, 11, 21),
    ),
    Rule(
        id="ranges-apart", of=Stamp, severity="refusal", find=_overlapping,
        sentence="the ranges of an existing network do not overlap", source="EC2 API Reference, AssociateVpcCidrBlock",
        date=date(2026, 11, 22),
    ),
    Rule(
        id="closed-needs-endpoints", of=Stamp, severity="refusal", find=_endpoints,
        sentence="a network without NAT has the interface endpoints",
        source="awsdocs/amazon-eks-user-guide latest/ug/clusters/private-clusters.adoc", date=date(2026, 11, 21),
    ),
)  # fmt: skip
