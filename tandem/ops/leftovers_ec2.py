"""What EC2 still has of an environment: each kind listed once, held against the tags and against the names.

What is going by itself (a terminated instance, a deleted gateway) is told nobody of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from tandem.ops.destroy.account import AccountClients, tags_of
from tandem.ops.destroy.fleet import ALIVE_STATES
from tandem.ops.leftover import LeftoverResource
from tandem.ops.ownership import ResourceOwnership
from tandem.shell_command import quote_command


class Ec2ResourceKind(NamedTuple):
    """One kind of EC2's.

    Args:
        title: in words, singular.
        operation, rows_key: that lists them, and where they stand in the answer.
        id_key: where its id stands.
        command: that removes one; the id follows.
        present_states: those that are not gone; empty: there are none.
        name_keys: where a name or description stands that may tell it without tags.
        own_filter: parameters that list the account's own.
    """

    title: str
    operation: str
    rows_key: str
    id_key: str
    command: str
    present_states: tuple[str, ...] = ()
    name_keys: tuple[str, ...] = ()
    own_filter: Mapping[str, Any] = MappingProxyType({})


RESOURCE_KINDS = tuple(Ec2ResourceKind(*row) for row in (
    ("instance", "DescribeInstances", "Reservations", "InstanceId", "terminate-instances --instance-ids",
     ALIVE_STATES),
    ("network interface", "DescribeNetworkInterfaces", "NetworkInterfaces", "NetworkInterfaceId",
     "delete-network-interface --network-interface-id", (), ("Description",)),
    ("volume", "DescribeVolumes", "Volumes", "VolumeId", "delete-volume --volume-id",
     ("creating", "available", "in-use", "error")),
    ("snapshot", "DescribeSnapshots", "Snapshots", "SnapshotId", "delete-snapshot --snapshot-id", (), (),
     {"OwnerIds": ["self"]}),
    ("NAT gateway", "DescribeNatGateways", "NatGateways", "NatGatewayId", "delete-nat-gateway --nat-gateway-id",
     ("pending", "available", "failed")),
    ("elastic IP", "DescribeAddresses", "Addresses", "AllocationId", "release-address --allocation-id"),
    ("VPC endpoint", "DescribeVpcEndpoints", "VpcEndpoints", "VpcEndpointId",
     "delete-vpc-endpoints --vpc-endpoint-ids"),
    ("security group", "DescribeSecurityGroups", "SecurityGroups", "GroupId", "delete-security-group --group-id", (),
     ("GroupName",)),
    ("launch template", "DescribeLaunchTemplates", "LaunchTemplates", "LaunchTemplateId",
     "delete-launch-template --launch-template-id", (), ("LaunchTemplateName",)),
    ("subnet", "DescribeSubnets", "Subnets", "SubnetId", "delete-subnet --subnet-id"),
    ("VPC", "DescribeVpcs", "Vpcs", "VpcId", "delete-vpc --vpc-id"),
))  # fmt: skip
# EKS's own interfaces and the group that it makes with a cluster, as its user guide spells them
_EKS_NAMES = r"Amazon EKS {cluster}|eks-cluster-sg-{cluster}-[0-9]+"


def _search_kind(
    kind: Ec2ResourceKind, account: AccountClients, ownership: ResourceOwnership
) -> Iterator[LeftoverResource]:
    rows = account.list_rows("ec2", kind.operation, kind.rows_key, f"{kind.title}s", **kind.own_filter)
    if kind.title == "instance":
        rows = (instance for reservation in rows for instance in reservation["Instances"])
    for row in rows:
        tags, state = tags_of(row.get("Tags") or row.get("TagSet")), row.get("State", "")
        state_name = str(state["Name"]) if isinstance(state, dict) else str(state)
        is_own = ownership.has_own_tag(tags) or (
            not ownership.has_foreign_tag(tags) and _has_own_name(kind, row, ownership)
        )
        is_present = not kind.present_states or state_name in kind.present_states
        if is_own and is_present and kind.id_key in row:  # an address of EC2-Classic has no id
            resource_id = str(row[kind.id_key])
            note = ", ".join(part for part in (tags.get("Name", ""), state_name) if part)
            remove = quote_command("aws", "ec2", *kind.command.split(), resource_id)
            yield LeftoverResource(kind=kind.title, name=resource_id, note=note, remove=remove)


def _has_own_name(kind: Ec2ResourceKind, row: dict[str, Any], ownership: ResourceOwnership) -> bool:
    texts = [str(row.get(key, "")) for key in kind.name_keys]
    name_pattern = _EKS_NAMES.format(cluster=re.escape(ownership.cluster))
    return any(ownership.has_own_name(text) or re.fullmatch(name_pattern, text) for text in texts)


SEARCHES: dict[str, Callable[[AccountClients, ResourceOwnership], Iterator[LeftoverResource]]] = {
    f"{kind.title}s": partial(_search_kind, kind) for kind in RESOURCE_KINDS
}
