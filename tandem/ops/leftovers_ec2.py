"""What EC2 still has of an environment: each kind listed once, held against the tags and against the names.

What is going by itself (a terminated instance, a deleted gateway) is told nobody of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tandem.ops.destroy.account import Account, tags_of
from tandem.ops.destroy.fleet import ALIVE
from tandem.ops.left import Left
from tandem.ops.owned import Owned
from tandem.shell_command import quote_command


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of EC2's.

    Args:
        what: in words, singular.
        operation, key: that lists them, and where they stand in the answer.
        identity: where its id stands.
        command: that removes one; the id follows.
        own: parameters that list the account's own.
        states: those that are not gone; empty: there are none.
        state: where a state stands.
        named: where a name or description stands that may tell it without tags.
    """

    what: str
    operation: str
    key: str
    identity: str
    command: str
    own: dict[str, Any] = field(default_factory=dict)
    states: tuple[str, ...] = ()
    state: str = "State"
    named: tuple[str, ...] = ()


KINDS = (
    Kind(what="instance", operation="DescribeInstances", key="Reservations", identity="InstanceId",
         command="aws ec2 terminate-instances --instance-ids", states=ALIVE),
    Kind(what="network interface", operation="DescribeNetworkInterfaces", key="NetworkInterfaces",
         identity="NetworkInterfaceId", command="aws ec2 delete-network-interface --network-interface-id",
         named=("Description",)),
    Kind(what="volume", operation="DescribeVolumes", key="Volumes", identity="VolumeId",
         command="aws ec2 delete-volume --volume-id", states=("creating", "available", "in-use", "error")),
    Kind(what="snapshot", operation="DescribeSnapshots", key="Snapshots", identity="SnapshotId",
         command="aws ec2 delete-snapshot --snapshot-id", own={"OwnerIds": ["self"]}),
    Kind(what="NAT gateway", operation="DescribeNatGateways", key="NatGateways", identity="NatGatewayId",
         command="aws ec2 delete-nat-gateway --nat-gateway-id", states=("pending", "available", "failed")),
    Kind(what="elastic IP", operation="DescribeAddresses", key="Addresses", identity="AllocationId",
         command="aws ec2 release-address --allocation-id"),
    Kind(what="VPC endpoint", operation="DescribeVpcEndpoints", key="VpcEndpoints", identity="VpcEndpointId",
         command="aws ec2 delete-vpc-endpoints --vpc-endpoint-ids"),
    Kind(what="security group", operation="DescribeSecurityGroups", key="SecurityGroups", identity="GroupId",
         command="aws ec2 delete-security-group --group-id", named=("GroupName",)),
    Kind(what="launch template", operation="DescribeLaunchTemplates", key="LaunchTemplates",
         identity="LaunchTemplateId", command="aws ec2 delete-launch-template --launch-template-id",
         named=("LaunchTemplateName",)),
    Kind(what="subnet", operation="DescribeSubnets", key="Subnets", identity="SubnetId",
         command="aws ec2 delete-subnet --subnet-id"),
    Kind(what="VPC", operation="DescribeVpcs", key="Vpcs", identity="VpcId", command="aws ec2 delete-vpc --vpc-id"),
)  # fmt: skip
# EKS's own interfaces and the group that it makes with a cluster, as its user guide spells them
_SPELT = r"Amazon EKS {cluster}|eks-cluster-sg-{cluster}-[0-9]+"


def _search(kind: Kind, account: Account, owned: Owned) -> Iterator[Left]:
    for row in _rows(kind, account):
        tags = tags_of(row.get("Tags") or row.get("TagSet"))
        if not (owned.tagged(tags) or (not owned.strange(tags) and _named(kind, row, owned))):
            continue
        state = _state(kind, row)
        if kind.states and state not in kind.states:
            continue
        identity = str(row[kind.identity])
        note = ", ".join(part for part in (tags.get("Name", ""), state) if part)
        yield Left(kind=kind.what, name=identity, note=note, remove=quote_command(*kind.command.split(), identity))


def _rows(kind: Kind, account: Account) -> Iterator[dict[str, Any]]:
    for row in account.pages("ec2", kind.operation, kind.key, f"{kind.what}s", **kind.own):
        if kind.what == "instance":
            yield from row["Instances"]
        elif kind.identity in row:  # an address of EC2-Classic has none
            yield row


def _state(kind: Kind, row: dict[str, Any]) -> str:
    said = row.get(kind.state, "")
    return str(said["Name"]) if isinstance(said, dict) else str(said)


def _named(kind: Kind, row: dict[str, Any], owned: Owned) -> bool:
    texts = [str(row.get(key, "")) for key in kind.named]
    spelt = _SPELT.format(cluster=re.escape(owned.cluster))
    return any(owned.named(text) or re.fullmatch(spelt, text) for text in texts)


SEARCHES: dict[str, Callable[[Account, Owned], Iterator[Left]]] = {
    f"{kind.what}s": partial(_search, kind) for kind in KINDS
}
