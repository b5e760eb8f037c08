"""The address plan of a new VPC, as a pure function of its range and a zone id.

Invariant: the number in a zone id picks its slot, so adding, removing or reordering zones moves the
addresses of no other subnet.
"""

from __future__ import annotations

from ipaddress import IPv4Network

_SLOT_BITS = 4  # 16 slots; zone ids end in one digit
_PUBLIC_SLOT = 15  # no zone id has this number: all public subnets share this slot


def private_range(cidr: str, zone: str) -> str:
    """Return the range of the private subnet: a sixteenth of the VPC, 4091 usable addresses of a /16."""
    return _slot_range(cidr, _zone_number(zone)).with_prefixlen


def public_range(cidr: str, zone: str) -> str:
    """Return the range of the public subnet, which holds a NAT gateway and nothing else."""
    return list(_slot_range(cidr, _PUBLIC_SLOT).subnets(prefixlen_diff=_SLOT_BITS))[_zone_number(zone)].with_prefixlen


def _slot_range(cidr: str, index: int) -> IPv4Network:
    return list(IPv4Network(cidr).subnets(prefixlen_diff=_SLOT_BITS))[index]


def _zone_number(zone: str) -> int:
    return int(zone.rpartition("-az")[2])
