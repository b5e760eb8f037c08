"""Obstacles to a teardown: a live lease, a living node, a node group or a cluster of another tool.

Invariant: unreadable state is an obstacle too; unknown is never taken for gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Any

from tandem.declarations import names
from tandem.errors import ExternalError, InputError
from tandem.guard.fleet_state import FleetState
from tandem.guard.lease import POINTER_KEY
from tandem.guard.observe import CLUSTER_TAG, NODE_GROUP_TAG, observe_fleet
from tandem.ops.account import AccountClients, build_aws_command
from tandem.ops.guard_config import build_guard_config
from tandem.shell_command import build_tandem_command

ALIVE_STATES = ("pending", "running", "shutting-down", "stopping", "stopped")
LEASE_SOURCES = ("fence", "lease")  # of the sources of a look, those of a lease


def list_nodes(account: AccountClients, node_group: str) -> dict[str, str]:
    """Return the state of each instance of the cluster or a node group that is not terminated.

    Raises:
        ExternalError: EC2 does not list the instances.
    """
    tags = {CLUSTER_TAG: account.cluster}
    if node_group:
        tags[NODE_GROUP_TAG] = node_group
    filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
    filters.append({"Name": "instance-state-name", "Values": list(ALIVE_STATES)})
    where = f"instances of {node_group or account.cluster}"
    rows = account.list_rows("ec2", "DescribeInstances", "Reservations", where, Filters=filters)
    instances = chain.from_iterable(row["Instances"] for row in rows)
    return {instance["InstanceId"]: instance["State"]["Name"] for instance in instances}


def require_parked_fleet(account: AccountClients, now: datetime, *, is_leaving: bool) -> None:
    """Check that nobody uses the fleet: no live lease, no instance.

    Args:
        account: of the environment.
        now: the time.
        is_leaving: whether its node group is being deleted or is gone: then an instance that is
            shutting down is no obstacle.

    Raises:
        InputError: somebody uses the fleet; the error says how to end that.
        ExternalError: the use of the fleet is unknown.
    """
    config = build_guard_config(account.environment)
    command = build_tandem_command("stop", account.name)
    advice = f"end the run, or stop the fleet: {command}; then run this again"
    fleet = observe_fleet(account.guard_clients(), config, now)
    lease = fleet.live_lease
    if lease:
        problem = (
            f"run {lease.run} of {lease.who} holds a lease until"
            f" {lease.deadline:%Y-%m-%d %H:%M} UTC"
        )
        raise InputError(problem, where=account.name, change=advice)
    unread_sources = _list_unread_sources(fleet)
    if unread_sources and has_bucket(account, names.bucket_name(account.environment)):
        raise ExternalError(
            f"whether a run holds the fleet is not known ({'; '.join(unread_sources)})",
            where=config.url(POINTER_KEY),
            change=(
                "allow s3:GetObject and s3:ListBucket there to this identity; what cannot be parsed"
                f" no longer counts after {command}; then run this again"
            ),
        )
    alive = {
        node: state
        for node, state in list_nodes(account, config.node_group).items()
        if not (is_leaving and state == "shutting-down")
    }
    if alive:
        if fleet.has_owner_tag is False:
            advice = (
                f"the node group has no tag {names.OWNER_TAG}={account.name}: whoever made it"
                " removes it first"
            )
        text = ", ".join(f"{node} ({state})" for node, state in alive.items())
        raise InputError(f"accelerator nodes live: {text}", where=config.node_group, change=advice)


def _list_unread_sources(fleet: FleetState) -> list[str]:
    """Return why it is not known whether a lease lives; behind a fence no lease counts."""
    unread = [
        f"{source}: {why}" for source, why in fleet.unknown.items() if source in LEASE_SOURCES
    ]
    fence = fleet.fence
    if fence is not None and fence.is_closed and not fence.fault:
        return unread
    return [*unread, *(fault for fault in fleet.faults if fault.startswith("s3://"))]


def has_bucket(account: AccountClients, bucket: str) -> bool:
    """Whether a bucket exists and belongs to this account.

    Raises:
        ExternalError: S3 gives no clear answer.
    """
    return account.find("s3", "HeadBucket", f"s3://{bucket}", Bucket=bucket) is not None


def list_node_groups(account: AccountClients) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield each node group of the cluster with its tags; not one that is gone since the list.

    Raises:
        ExternalError: EKS does not answer.
    """
    cluster = account.cluster
    where = f"node groups of {cluster}"
    for group in account.list_rows(
        "eks", "ListNodegroups", "nodegroups", where, clusterName=cluster
    ):
        answer = account.find(
            "eks", "DescribeNodegroup", group, clusterName=cluster, nodegroupName=group
        )
        if answer is not None:
            yield group, answer["nodegroup"].get("tags", {})


def read_cluster(account: AccountClients) -> dict[str, Any] | None:
    """Return the cluster of the environment's name as EKS describes it; None if there is none.

    Raises:
        InputError: another tool has nodes in the cluster; EKS would not delete the cluster under
            them.
        ExternalError: EKS does not answer.
    """
    cluster = account.cluster
    response = account.find("eks", "DescribeCluster", cluster, name=cluster)
    if response is None:
        return None
    foreign_groups = [
        group
        for group, tags in list_node_groups(account)
        if tags.get(names.OWNER_TAG) != account.name
    ]
    if foreign_groups:
        look_command = build_aws_command(
            "eks describe-nodegroup", cluster_name=cluster, nodegroup_name=foreign_groups[0]
        )
        raise InputError(
            f"node groups without the tag {names.OWNER_TAG}={account.name}:"
            f" {', '.join(foreign_groups)}. Another tool made them, and they are left alone",
            where=cluster,
            change=(
                f"see whose they are ({look_command}); whoever made them removes them first, then"
                " run this again"
            ),
        )
    description: dict[str, Any] = response["cluster"]
    return description
