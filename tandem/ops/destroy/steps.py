"""The steps of a teardown, in their order. Each looks at the world and does what is missing.

Invariant: Fleet goes only where nobody has the fleet, and is done only when EC2 lists no instance of it; Guard goes
only where EC2 lists no instance of the cluster at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from tandem.errors import ExternalError, InputError, TandemError
from tandem.ops.destroy.account import AccountClients
from tandem.ops.destroy.fleet import (
    list_nodes,
    read_cluster,
    require_no_foreign_nodes,
    require_parked_fleet,
)
from tandem.ops.destroy.stack_deletion import TeardownSettings, delete_stack, require_own_stack
from tandem.ops.destroy.stacks import DELETE_IN_PROGRESS, DELETION_ORDER, CloudFormationStack, read_stack
from tandem.shell_command import quote_command
from tandem.spec import names

LogFunction = Callable[[str], None]
NODES_TIMEOUT_S = 1800.0  # EKS ends nodes by force after 15 minutes of draining; EC2 takes some more


def destroy_environment(account: AccountClients, settings: TeardownSettings, log: LogFunction) -> None:
    """Delete every stack of the order that exists.

    Raises:
        ExternalError: a step could not be done; what was done stays done, and the same command goes on there.
    """
    for kind in DELETION_ORDER:
        target_stack = read_stack(account, kind)
        if target_stack is None:
            log(f"{names.stack_name(account.environment, kind)}: not there")
        else:
            require_own_stack(account, target_stack)
            _PREPARATIONS.get(kind, _skip_preparation)(account, settings, log)
            delete_stack(account, target_stack, settings, log)
        if kind == "Fleet":
            _wait_for_no_nodes(account, settings, log, names.node_group_name(account.environment))


def _skip_preparation(_account: AccountClients, _settings: TeardownSettings, _log: LogFunction) -> None:
    return None


def _require_parked_fleet(account: AccountClients, _settings: TeardownSettings, _log: LogFunction) -> None:
    fleet_stack = read_stack(account, "Fleet")
    is_leaving = fleet_stack is None or fleet_stack.status == DELETE_IN_PROGRESS
    require_parked_fleet(
        account, datetime.now(UTC), is_leaving=is_leaving
    )  # again: the question may have waited for an hour


def _lift_cluster_protection(account: AccountClients, settings: TeardownSettings, log: LogFunction) -> None:
    """Lift EKS's own protection."""
    description = read_cluster(account)
    if description is None:
        return
    require_no_foreign_nodes(account, description)
    if not description.has_deletion_protection:
        return
    if not description.is_ours:
        raise InputError(
            f"this cluster is protected and has no tag {names.OWNER_TAG}={account.name}", where=account.cluster,
            change="see whose it is (aws eks describe-cluster); if it is yours, lift its protection by hand: "
            + quote_command("aws", "eks", "update-cluster-config", "--name", account.cluster,
                            "--no-deletion-protection"),
        )  # fmt: skip
    log(f"{account.cluster}: lifting deletion protection")
    update = account.ask(
        "eks", "UpdateClusterConfig", account.cluster, name=account.cluster, deletionProtection=False
    )["update"]  # fmt: skip
    timeout_error = ExternalError(
        "its deletion protection is not lifted yet", where=account.cluster, change="run this again"
    )
    _wait_until(lambda: _is_update_done(account, update["id"]), settings, lambda: timeout_error)


def _is_update_done(account: AccountClients, update_id: str) -> bool:
    update = account.ask("eks", "DescribeUpdate", account.cluster, name=account.cluster, updateId=update_id)["update"]
    if update["status"] in {"Failed", "Cancelled"}:
        reasons = "; ".join(error.get("errorMessage", "") for error in update.get("errors", []))
        raise ExternalError(
            f"EKS did not lift the deletion protection ({reasons or update['status']})", where=account.cluster,
            change="run this again",
        )  # fmt: skip
    return str(update["status"]) == "Successful"


def _wait_for_empty_cluster(account: AccountClients, settings: TeardownSettings, log: LogFunction) -> None:
    _wait_for_no_nodes(account, settings, log, "")


def _wait_for_no_nodes(account: AccountClients, settings: TeardownSettings, log: LogFunction, node_group: str) -> None:
    """Wait until EC2 lists no instance of a node group, or of the cluster."""
    logged_lines: list[str] = []

    def has_no_nodes() -> bool:
        alive_nodes = list_nodes(account, node_group)
        line = ", ".join(f"{node.id} ({node.state})" for node in alive_nodes)
        if alive_nodes and line not in logged_lines[-1:]:
            logged_lines.append(line)
            log(f"{node_group or account.cluster}: EC2 still lists {line}")
        return not alive_nodes

    _wait_until(has_no_nodes, settings, lambda: _build_alive_nodes_error(account, node_group))
    log(f"{node_group or account.cluster}: EC2 lists no instance")


def _build_alive_nodes_error(account: AccountClients, node_group: str) -> TandemError:
    instance_ids = [node.id for node in list_nodes(account, node_group)]
    return ExternalError(
        f"EC2 still lists {', '.join(instance_ids)}", where=node_group or account.cluster,
        change="see what holds them (aws ec2 describe-instances); if they are to end, "
        f"{quote_command('aws', 'ec2', 'terminate-instances', '--instance-ids', *instance_ids)}, then run this again",
    )  # fmt: skip


def _wait_until(
    is_done: Callable[[], bool], settings: TeardownSettings, build_error: Callable[[], TandemError]
) -> None:
    end_s = time.monotonic() + min(NODES_TIMEOUT_S, settings.timeout_s)
    while not is_done():
        if time.monotonic() > end_s:
            raise build_error()
        time.sleep(settings.poll_s)


_PREPARATIONS: dict[str, Callable[[AccountClients, TeardownSettings, LogFunction], None]] = {
    "Fleet": _require_parked_fleet, "Cluster": _lift_cluster_protection, "Guard": _wait_for_empty_cluster,
}  # fmt: skip


def list_stacks_to_delete(stacks_by_kind: dict[str, CloudFormationStack]) -> list[CloudFormationStack]:
    """Return the stacks that will be deleted, in their order."""
    return [stacks_by_kind[kind] for kind in DELETION_ORDER if kind in stacks_by_kind]
