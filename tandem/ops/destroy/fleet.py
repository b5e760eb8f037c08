"""What forbids a teardown: a live lease, a living node, a node group or a cluster that is another tool's.

Invariant: what cannot be read forbids it too; unknown is never taken for gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tandem import stop
from tandem.ops.destroy.account import Account, tags_of
from tandem.ops.fault import OpsError, RefusedError, code_of
from tandem.ops.guarded import guarded
from tandem.shell_command import build_tandem_command, quote_command
from tandem.spec import names

ALIVE = ("pending", "running", "shutting-down", "stopping", "stopped")
NOT_THERE = {"ResourceNotFoundException", "NotFoundException"}
NO_BUCKET = {"NoSuchBucket", "404"}
LEASE = ("fence", "lease")  # of the sources of a look, those that a lease is read from


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One instance that EC2 lists and that is not terminated."""

    id: str
    state: str
    node_group: str


def nodes(account: Account, node_group: str = "") -> list[Node]:
    """Return the instances of the cluster, or those of one of its node groups.

    Raises:
        OpsError: EC2 does not list them.
    """
    filters = [
        {"Name": f"tag:{stop.CLUSTER_TAG}", "Values": [account.cluster]},
        {"Name": "instance-state-name", "Values": list(ALIVE)},
    ]
    if node_group:
        filters.append({"Name": f"tag:{stop.NODE_GROUP_TAG}", "Values": [node_group]})
    where = f"instances of {node_group or account.cluster}"
    return [
        Node(
            id=one["InstanceId"], state=one["State"]["Name"],
            node_group=tags_of(one.get("Tags")).get(stop.NODE_GROUP_TAG, ""),
        )
        for row in account.pages("ec2", "DescribeInstances", "Reservations", where, Filters=filters)
        for one in row["Instances"]
    ]  # fmt: skip


def require_parked(account: Account, now: datetime, *, leaving: bool = False) -> None:
    """Make sure that nobody has the fleet: no live lease, no instance.

    Args:
        account: of the environment.
        now: the time.
        leaving: whether its node group goes already or is gone: then an instance that is shutting down is no hindrance.

    Raises:
        RefusedError: somebody has it, and how it is ended.
        OpsError: it cannot be known.
    """
    command = build_tandem_command("stop", account.name)
    end = f"end the run, or stop the fleet: {command}; then run this again"
    seen = stop.look(_clients(account), guarded(account.environment), now)
    if seen.live:
        raise RefusedError(
            f"run {seen.live.run} of {seen.live.who} holds a lease until {seen.live.deadline:%Y-%m-%d %H:%M} UTC",
            where=account.name, change=end,
        )  # fmt: skip
    unread = [f"{source}: {why}" for source, why in seen.unknown.items() if source in LEASE]
    fenced = seen.fence is not None and seen.fence.closed and not seen.fence.fault
    if not fenced:  # behind a fence no lease counts, whatever it says
        unread += [fault for fault in seen.faults if fault.startswith("s3://")]
    if unread and has_bucket(account):
        raise OpsError(
            f"whether a run holds the fleet is not known ({'; '.join(unread)})",
            where=guarded(account.environment).url(stop.POINTER_KEY),
            change="allow s3:GetObject and s3:ListBucket there to this identity; what is not understood counts no more "
            f"after {command}; then run this again",
        )  # fmt: skip
    found = nodes(account, names.node_group(account.environment))
    living = [one for one in found if not (leaving and one.state == "shutting-down")]
    if living:
        listed = ", ".join(f"{one.id} ({one.state})" for one in living)
        if seen.owned is False:
            end = f"the node group has no tag {names.OWNER_TAG}={account.name}: whoever made it removes it first"
        raise RefusedError(f"accelerator nodes live: {listed}", where=names.node_group(account.environment), change=end)


def _clients(account: Account) -> stop.Clients:
    return stop.Clients(**{
        service: account.client(service)
        for service in ("s3", "eks", "ec2", "sns", "cloudwatch", "scheduler", "autoscaling")
    })  # fmt: skip


def has_bucket(account: Account) -> bool:
    """Whether the environment's bucket exists and is this account's to ask.

    Raises:
        OpsError: S3 does not say.
    """
    bucket = names.bucket(account.environment)
    try:
        account.ask("s3", "HeadBucket", f"s3://{bucket}", Bucket=bucket)
    except OpsError as error:
        if code_of(error.__cause__) in NO_BUCKET:
            return False
        raise
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSeen:
    """The EKS cluster of the environment's name.

    Args:
        ours: whether it carries the environment's own tag.
        protected: whether EKS refuses to delete it.
        strangers: its node groups that do not carry that tag.
    """

    ours: bool
    protected: bool
    strangers: tuple[str, ...]


def cluster(account: Account) -> ClusterSeen | None:
    """Return the cluster; None where there is none.

    Raises:
        OpsError: EKS does not say.
    """
    try:
        found = account.ask("eks", "DescribeCluster", account.cluster, name=account.cluster)["cluster"]
    except OpsError as error:
        if code_of(error.__cause__) in NOT_THERE:
            return None
        raise
    return ClusterSeen(
        ours=found.get("tags", {}).get(names.OWNER_TAG) == account.name,
        protected=bool(found.get("deletionProtection")),
        strangers=tuple(_strangers(account)),
    )


def require_no_strangers(account: Account, seen: ClusterSeen) -> None:
    """Make sure that no other tool has nodes in the cluster; EKS would not delete it under them.

    Raises:
        RefusedError: one has.
    """
    if seen.strangers:
        look = quote_command(
            "aws", "eks", "describe-nodegroup", "--cluster-name", account.cluster,
            "--nodegroup-name", seen.strangers[0],
        )  # fmt: skip
        raise RefusedError(
            f"node groups without the tag {names.OWNER_TAG}={account.name}: {', '.join(seen.strangers)}. Another tool "
            "made them, and they are left alone", where=account.cluster,
            change=f"whoever made them removes them first (to see what it is: {look}), then run this again",
        )  # fmt: skip


def _strangers(account: Account) -> Iterator[str]:
    where = f"node groups of {account.cluster}"
    for group in account.pages("eks", "ListNodegroups", "nodegroups", where, clusterName=account.cluster):
        try:
            said = account.ask(
                "eks", "DescribeNodegroup", group, clusterName=account.cluster, nodegroupName=group
            )["nodegroup"]  # fmt: skip
        except OpsError as error:
            if code_of(error.__cause__) in NOT_THERE:  # gone since it was listed
                continue
            raise
        if said.get("tags", {}).get(names.OWNER_TAG) != account.name:
            yield group
