"""The steps of a teardown, in their order. Each looks at the world and does the missing work.

Invariant: Fleet is deleted only if nobody uses the fleet, and is done only when EC2 lists no
instance of it. Guard is deleted only if EC2 lists no instance of the cluster at all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

from tandem.declarations import names
from tandem.errors import ExternalError, InputError
from tandem.ops.account import AccountClients, build_aws_command
from tandem.ops.destroy.fleet import list_nodes, read_cluster, require_parked_fleet
from tandem.ops.destroy.stack_deletion import (
    LogFunction,
    TeardownSettings,
    delete_stack,
    require_own_stacks,
)
from tandem.ops.destroy.stacks import DELETE_IN_PROGRESS, DELETION_ORDER, read_stack

# EKS ends nodes by force after 15 minutes of draining; EC2 takes some more
NODES_TIMEOUT_S = 1800.0


def destroy_environment(
    account: AccountClients, settings: TeardownSettings, log: LogFunction
) -> None:
    """Delete every existing stack, in the order of the deletion.

    Raises:
        ExternalError: a step failed; the steps before it stay done, and the same command goes on
            there.
    """
    for kind in DELETION_ORDER:
        stack = read_stack(account, kind)
        if stack is None:
            log(f"{names.stack_name(account.environment, kind)}: not there")
        else:
            require_own_stacks(account, [stack])
            if kind == "Fleet":  # again: the confirmation may have waited for an hour
                is_leaving = stack.status == DELETE_IN_PROGRESS
                require_parked_fleet(account, datetime.now(UTC), is_leaving=is_leaving)
            elif kind == "Cluster":
                _lift_cluster_protection(account, settings, log)
            elif kind == "Guard":
                _wait_for_no_nodes(account, settings, log, "")
            delete_stack(account, stack, settings, log)
        if kind == "Fleet":
            _wait_for_no_nodes(account, settings, log, names.node_group_name(account.environment))


def _lift_cluster_protection(
    account: AccountClients, settings: TeardownSettings, log: LogFunction
) -> None:
    """Lift EKS's own protection."""
    cluster = account.cluster
    description = read_cluster(account)
    if description is None or not description.get("deletionProtection"):
        return
    if description.get("tags", {}).get(names.OWNER_TAG) != account.name:
        lift = build_aws_command("eks update-cluster-config --no-deletion-protection", name=cluster)
        lookup = build_aws_command("eks describe-cluster", name=cluster)
        raise InputError(
            f"this cluster is protected and has no tag {names.OWNER_TAG}={account.name}",
            where=cluster,
            change=(
                f"see whose it is ({lookup}); if it is yours, lift its protection by hand: {lift}"
            ),
        )
    log(f"{cluster}: lifting deletion protection")
    answer = account.ask(
        "eks", "UpdateClusterConfig", cluster, name=cluster, deletionProtection=False
    )
    change = "run this again"
    for _ in _poll_to_deadline(settings):
        update = account.ask(
            "eks", "DescribeUpdate", cluster, name=cluster, updateId=answer["update"]["id"]
        )["update"]
        if update["status"] == "Successful":
            return
        if update["status"] in {"Failed", "Cancelled"}:
            reasons = "; ".join(error.get("errorMessage", "") for error in update.get("errors", []))
            problem = f"EKS did not lift the deletion protection ({reasons or update['status']})"
            raise ExternalError(problem, where=cluster, change=change)
    raise ExternalError("its deletion protection is still on", where=cluster, change=change)


def _wait_for_no_nodes(
    account: AccountClients, settings: TeardownSettings, log: LogFunction, node_group: str
) -> None:
    """Wait until EC2 lists no instance of a node group, or of the cluster."""
    logged_line = ""
    where = node_group or account.cluster
    nodes = {}
    for _ in _poll_to_deadline(settings):
        nodes = list_nodes(account, node_group)
        if not nodes:
            log(f"{where}: EC2 lists no instance")
            return
        line = ", ".join(f"{node} ({state})" for node, state in nodes.items())
        if line != logged_line:
            logged_line = line
            log(f"{where}: EC2 still lists {line}")
    terminate = build_aws_command("ec2 terminate-instances", instance_ids=list(nodes))
    raise ExternalError(
        f"EC2 still lists {', '.join(nodes)}",
        where=where,
        change=(
            f"see what holds them (aws ec2 describe-instances); if they are to end, {terminate},"
            " then run this again"
        ),
    )


def _poll_to_deadline(settings: TeardownSettings) -> Iterator[None]:
    """Yield once for each look, until the time is over."""
    end_s = time.monotonic() + min(NODES_TIMEOUT_S, settings.timeout_s)
    yield
    while time.monotonic() <= end_s:
        time.sleep(settings.poll_s)
        yield
