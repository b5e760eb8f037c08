"""What forbids a teardown: a live lease, a living node, a node group or a cluster that is another tool's.

Invariant: what cannot be read forbids it too; unknown is never taken for gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tandem.errors import ExternalError, InputError
from tandem.guard.config import AwsClients
from tandem.guard.lease import POINTER_KEY
from tandem.guard.observe import CLUSTER_TAG, NODE_GROUP_TAG, observe_fleet
from tandem.ops.destroy.account import AccountClients, tags_of
from tandem.ops.guard_config import build_guard_config
from tandem.shell_command import build_tandem_command, quote_command
from tandem.spec import names

ALIVE_STATES = ("pending", "running", "shutting-down", "stopping", "stopped")
NOT_FOUND_CODES = {"ResourceNotFoundException", "NotFoundException"}
MISSING_BUCKET_CODES = {"NoSuchBucket", "404"}
LEASE_SOURCES = ("fence", "lease")  # of the sources of a look, those that a lease is read from


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """One instance that EC2 lists and that is not terminated."""

    id: str
    state: str
    node_group: str


def list_nodes(account: AccountClients, node_group: str = "") -> list[ClusterNode]:
    """Return the instances of the cluster, or those of one of its node groups.

    Raises:
        ExternalError: EC2 does not list them.
    """
    filters = [
        {"Name": f"tag:{CLUSTER_TAG}", "Values": [account.cluster]},
        {"Name": "instance-state-name", "Values": list(ALIVE_STATES)},
    ]
    if node_group:
        filters.append({"Name": f"tag:{NODE_GROUP_TAG}", "Values": [node_group]})
    where = f"instances of {node_group or account.cluster}"
    return [
        ClusterNode(
            id=instance["InstanceId"], state=instance["State"]["Name"],
            node_group=tags_of(instance.get("Tags")).get(NODE_GROUP_TAG, ""),
        )
        for row in account.list_rows("ec2", "DescribeInstances", "Reservations", where, Filters=filters)
        for instance in row["Instances"]
    ]  # fmt: skip


def require_parked_fleet(account: AccountClients, now: datetime, *, is_leaving: bool = False) -> None:
    """Make sure that nobody has the fleet: no live lease, no instance.

    Args:
        account: of the environment.
        now: the time.
        is_leaving: whether its node group goes already or is gone: then an instance that is shutting down is no
            hindrance.

    Raises:
        InputError: somebody has it, and how it is ended.
        ExternalError: it cannot be known.
    """
    command = build_tandem_command("stop", account.name)
    end_advice = f"end the run, or stop the fleet: {command}; then run this again"
    fleet = observe_fleet(_create_clients(account), build_guard_config(account.environment), now)
    if fleet.live_lease:
        raise InputError(
            f"run {fleet.live_lease.run} of {fleet.live_lease.who} holds a lease until "
            f"{fleet.live_lease.deadline:%Y-%m-%d %H:%M} UTC",
            where=account.name,
            change=end_advice,
        )
    unread_sources = [f"{source}: {why}" for source, why in fleet.unknown.items() if source in LEASE_SOURCES]
    has_valid_fence = fleet.fence is not None and fleet.fence.is_closed and not fleet.fence.fault
    if not has_valid_fence:  # behind a fence no lease counts, whatever it says
        unread_sources += [fault for fault in fleet.faults if fault.startswith("s3://")]
    if unread_sources and has_bucket(account):
        raise ExternalError(
            f"whether a run holds the fleet is not known ({'; '.join(unread_sources)})",
            where=build_guard_config(account.environment).url(POINTER_KEY),
            change="allow s3:GetObject and s3:ListBucket there to this identity; what is not understood counts no more "
            f"after {command}; then run this again",
        )  # fmt: skip
    fleet_nodes = list_nodes(account, names.node_group_name(account.environment))
    alive_nodes = [node for node in fleet_nodes if not (is_leaving and node.state == "shutting-down")]
    if alive_nodes:
        node_text = ", ".join(f"{node.id} ({node.state})" for node in alive_nodes)
        if fleet.has_owner_tag is False:
            end_advice = f"the node group has no tag {names.OWNER_TAG}={account.name}: whoever made it removes it first"
        raise InputError(
            f"accelerator nodes live: {node_text}", where=names.node_group_name(account.environment), change=end_advice
        )


def _create_clients(account: AccountClients) -> AwsClients:
    return AwsClients(**{
        service: account.client(service)
        for service in ("s3", "eks", "ec2", "sns", "cloudwatch", "scheduler", "autoscaling")
    })  # fmt: skip


def has_bucket(account: AccountClients) -> bool:
    """Whether the environment's bucket exists and is this account's to ask.

    Raises:
        ExternalError: S3 does not say.
    """
    bucket = names.bucket_name(account.environment)
    where = f"s3://{bucket}"
    return account.find("s3", "HeadBucket", where, absent=MISSING_BUCKET_CODES, Bucket=bucket) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The EKS cluster of the environment's name.

    Args:
        is_ours: whether it carries the environment's own tag.
        has_deletion_protection: whether EKS refuses to delete it.
        foreign_node_groups: its node groups that do not carry that tag.
    """

    is_ours: bool
    has_deletion_protection: bool
    foreign_node_groups: tuple[str, ...]


def read_cluster(account: AccountClients) -> ClusterDescription | None:
    """Return the cluster; None where there is none.

    Raises:
        ExternalError: EKS does not say.
    """
    response = account.find("eks", "DescribeCluster", account.cluster, absent=NOT_FOUND_CODES, name=account.cluster)
    if response is None:
        return None
    description = response["cluster"]
    return ClusterDescription(
        is_ours=description.get("tags", {}).get(names.OWNER_TAG) == account.name,
        has_deletion_protection=bool(description.get("deletionProtection")),
        foreign_node_groups=tuple(_list_foreign_node_groups(account)),
    )


def require_no_foreign_nodes(account: AccountClients, description: ClusterDescription) -> None:
    """Make sure that no other tool has nodes in the cluster; EKS would not delete it under them.

    Raises:
        InputError: one has.
    """
    if description.foreign_node_groups:
        lookup_command = quote_command(
            "aws", "eks", "describe-nodegroup", "--cluster-name", account.cluster,
            "--nodegroup-name", description.foreign_node_groups[0],
        )  # fmt: skip
        raise InputError(
            f"node groups without the tag {names.OWNER_TAG}={account.name}: "
            f"{', '.join(description.foreign_node_groups)}. Another tool "
            "made them, and they are left alone",
            where=account.cluster,
            change=f"whoever made them removes them first (to see what it is: {lookup_command}), then run this again",
        )


def _list_foreign_node_groups(account: AccountClients) -> Iterator[str]:
    where = f"node groups of {account.cluster}"
    for group in account.list_rows("eks", "ListNodegroups", "nodegroups", where, clusterName=account.cluster):
        response = account.find(
            "eks", "DescribeNodegroup", group, absent=NOT_FOUND_CODES, clusterName=account.cluster, nodegroupName=group
        )
        is_foreign = response and response["nodegroup"].get("tags", {}).get(names.OWNER_TAG) != account.name
        if is_foreign:  # one that is gone since it was listed is nobody's
            yield group
