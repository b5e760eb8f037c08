"""What EC2 still has of an environment: each kind listed once, held against the tags and against the names.

What is going by itself (a terminated instance, a deleted gateway) is told nobody of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tandem.ops.destroy.account import AccountClients, tags_of
from tandem.ops.destroy.fleet import ALIVE_STATES
from tandem.ops.leftover import LeftoverResource
from tandem.ops.ownership import ResourceOwnership
from tandem.shell_command import quote_command


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2ResourceKind:
    """One kind of EC2's.

    Args:
        title: in words, singular.
        operation, rows_key: that lists them, and where they stand in the answer.
        id_key: where its id stands.
        command: that removes one; the id follows.
        own_filter: parameters that list the account's own.
        present_states: those that are not gone; empty: there are none.
        state_key: where a state stands.
        name_keys: where a name or description stands that may tell it without tags.
    """

    title: str
    operation: str
    rows_key: str
    id_key: str
    command: str
    own_filter: dict[str, Any] = field(default_factory=dict)
    present_states: tuple[str, ...] = ()
    state_key: str = "State"
    name_keys: tuple[str, ...] = ()


RESOURCE_KINDS = (
    Ec2ResourceKind(
        title="instance",
        operation="DescribeInstances",
        rows_key="Reservations",
        id_key="InstanceId",
        command="aws ec2 terminate-instances --instance-ids",
        present_states=ALIVE_STATES,
    ),
    Ec2ResourceKind(
        title="network interface",
        operation="DescribeNetworkInterfaces",
        rows_key="NetworkInterfaces",
        id_key="NetworkInterfaceId",
        command="aws ec2 delete-network-interface --network-interface-id",
        name_keys=("Description",),
    ),
    Ec2ResourceKind(
        title="volume",
        operation="DescribeVolumes",
        rows_key="Volumes",
        id_key="VolumeId",
        command="aws ec2 delete-volume --volume-id",
        present_states=("creating", "available", "in-use", "error"),
    ),
    Ec2ResourceKind(
        title="snapshot",
        operation="DescribeSnapshots",
        rows_key="Snapshots",
        id_key="SnapshotId",
        command="aws ec2 delete-snapshot --snapshot-id",
        own_filter={"OwnerIds": ["self"]},
    ),
    Ec2ResourceKind(
        title="NAT gateway",
        operation="DescribeNatGateways",
        rows_key="NatGateways",
        id_key="NatGatewayId",
        command="aws ec2 delete-nat-gateway --nat-gateway-id",
        present_states=("pending", "available", "failed"),
    ),
    Ec2ResourceKind(
        title="elastic IP",
        operation="DescribeAddresses",
        rows_key="Addresses",
        id_key="AllocationId",
        command="aws ec2 release-address --allocation-id",
    ),
    Ec2ResourceKind(
        title="VPC endpoint",
        operation="DescribeVpcEndpoints",
        rows_key="VpcEndpoints",
        id_key="VpcEndpointId",
        command="aws ec2 delete-vpc-endpoints --vpc-endpoint-ids",
    ),
    Ec2ResourceKind(
        title="security group",
        operation="DescribeSecurityGroups",
        rows_key="SecurityGroups",
        id_key="GroupId",
        command="aws ec2 delete-security-group --group-id",
        name_keys=("GroupName",),
    ),
    Ec2ResourceKind(
        title="launch template",
        operation="DescribeLaunchTemplates",
        rows_key="LaunchTemplates",
        id_key="LaunchTemplateId",
        command="aws ec2 delete-launch-template --launch-template-id",
        name_keys=("LaunchTemplateName",),
    ),
    Ec2ResourceKind(
        title="subnet",
        operation="DescribeSubnets",
        rows_key="Subnets",
        id_key="SubnetId",
        command="aws ec2 delete-subnet --subnet-id",
    ),
    Ec2ResourceKind(
        title="VPC", operation="DescribeVpcs", rows_key="Vpcs", id_key="VpcId", command="aws ec2 delete-vpc --vpc-id"
    ),
)
# EKS's own interfaces and the group that it makes with a cluster, as its user guide spells them
_EKS_NAMES = r"Amazon EKS {cluster}|eks-cluster-sg-{cluster}-[0-9]+"


def _search_kind(
    kind: Ec2ResourceKind, account: AccountClients, ownership: ResourceOwnership
) -> Iterator[LeftoverResource]:
    for row in _list_rows(kind, account):
        tags = tags_of(row.get("Tags") or row.get("TagSet"))
        if not (
            ownership.has_own_tag(tags) or (not ownership.has_foreign_tag(tags) and _has_own_name(kind, row, ownership))
        ):
            continue
        state = _read_state(kind, row)
        if kind.present_states and state not in kind.present_states:
            continue
        resource_id = str(row[kind.id_key])
        note = ", ".join(part for part in (tags.get("Name", ""), state) if part)
        yield LeftoverResource(
            kind=kind.title, name=resource_id, note=note, remove=quote_command(*kind.command.split(), resource_id)
        )


def _list_rows(kind: Ec2ResourceKind, account: AccountClients) -> Iterator[dict[str, Any]]:
    for row in account.list_rows("ec2", kind.operation, kind.rows_key, f"{kind.title}s", **kind.own_filter):
        if kind.title == "instance":
            yield from row["Instances"]
        elif kind.id_key in row:  # an address of EC2-Classic has none
            yield row


def _read_state(kind: Ec2ResourceKind, row: dict[str, Any]) -> str:
    value = row.get(kind.state_key, "")
    return str(value["Name"]) if isinstance(value, dict) else str(value)


def _has_own_name(kind: Ec2ResourceKind, row: dict[str, Any], ownership: ResourceOwnership) -> bool:
    texts = [str(row.get(key, "")) for key in kind.name_keys]
    name_pattern = _EKS_NAMES.format(cluster=re.escape(ownership.cluster))
    return any(ownership.has_own_name(text) or re.fullmatch(name_pattern, text) for text in texts)


SEARCHES: dict[str, Callable[[AccountClients, ResourceOwnership], Iterator[LeftoverResource]]] = {
    f"{kind.title}s": partial(_search_kind, kind) for kind in RESOURCE_KINDS
}
