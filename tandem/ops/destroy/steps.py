"""The steps of a teardown, in their order. Each looks at the world and does what is missing.

Invariant: Fleet goes only where nobody has the fleet, and is done only when EC2 lists no instance of it; Guard goes
only where EC2 lists no instance of the cluster at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from tandem.ops.destroy.account import Account
from tandem.ops.destroy.delete import Settings, delete, require_ours
from tandem.ops.destroy.fleet import cluster, nodes, require_no_strangers, require_parked
from tandem.ops.destroy.stacks import GOING, ORDER, Stack, stack
from tandem.ops.fault import OpsError, RefusedError
from tandem.shell_command import quote_command
from tandem.spec import names

Say = Callable[[str], None]
NODES_S = 1800.0  # EKS ends nodes by force after 15 minutes of draining; EC2 takes some more


def destroy(account: Account, settings: Settings, say: Say) -> None:
    """Delete every stack of the order that exists.

    Raises:
        OpsError: a step could not be done; what was done stays done, and the same command goes on there.
    """
    for kind in ORDER:
        found = stack(account, kind)
        if found is None:
            say(f"{names.stack(account.environment, kind)}: not there")
        else:
            require_ours(account, found)
            _BEFORE.get(kind, _nothing)(account, settings, say)
            delete(account, found, settings, say)
        if kind == "Fleet":
            _await_no_nodes(account, settings, say, names.node_group(account.environment))


def _nothing(_account: Account, _settings: Settings, _say: Say) -> None:
    return None


def _parked(account: Account, _settings: Settings, _say: Say) -> None:
    fleet = stack(account, "Fleet")
    leaving = fleet is None or fleet.status == GOING
    require_parked(account, datetime.now(UTC), leaving=leaving)  # again: the question may have waited for an hour


def _open_cluster(account: Account, settings: Settings, say: Say) -> None:
    """Lift EKS's own protection."""
    found = cluster(account)
    if found is None:
        return
    require_no_strangers(account, found)
    if not found.protected:
        return
    if not found.ours:
        raise RefusedError(
            f"this cluster is protected and has no tag {names.OWNER_TAG}={account.name}", where=account.cluster,
            change="see whose it is (aws eks describe-cluster); if it is yours, lift its protection by hand: "
            + quote_command("aws", "eks", "update-cluster-config", "--name", account.cluster,
                            "--no-deletion-protection"),
        )  # fmt: skip
    say(f"{account.cluster}: lifting deletion protection")
    update = account.ask(
        "eks", "UpdateClusterConfig", account.cluster, name=account.cluster, deletionProtection=False
    )["update"]  # fmt: skip
    late = OpsError("its deletion protection is not lifted yet", where=account.cluster, change="run this again")
    _await(lambda: _updated(account, update["id"]), settings, lambda: late)


def _updated(account: Account, identity: str) -> bool:
    said = account.ask("eks", "DescribeUpdate", account.cluster, name=account.cluster, updateId=identity)["update"]
    if said["status"] in {"Failed", "Cancelled"}:
        reasons = "; ".join(one.get("errorMessage", "") for one in said.get("errors", []))
        raise OpsError(
            f"EKS did not lift the deletion protection ({reasons or said['status']})", where=account.cluster,
            change="run this again",
        )  # fmt: skip
    return str(said["status"]) == "Successful"


def _unmanned(account: Account, settings: Settings, say: Say) -> None:
    _await_no_nodes(account, settings, say, "")


def _await_no_nodes(account: Account, settings: Settings, say: Say, node_group: str) -> None:
    """Wait until EC2 lists no instance of a node group, or of the cluster."""
    told: list[str] = []

    def gone() -> bool:
        living = nodes(account, node_group)
        line = ", ".join(f"{one.id} ({one.state})" for one in living)
        if living and line not in told[-1:]:
            told.append(line)
            say(f"{node_group or account.cluster}: EC2 still lists {line}")
        return not living

    _await(gone, settings, lambda: _living(account, node_group))
    say(f"{node_group or account.cluster}: EC2 lists no instance")


def _living(account: Account, node_group: str) -> OpsError:
    ids = [one.id for one in nodes(account, node_group)]
    return OpsError(
        f"EC2 still lists {', '.join(ids)}", where=node_group or account.cluster,
        change="see what holds them (aws ec2 describe-instances); if they are to end, "
        f"{quote_command('aws', 'ec2', 'terminate-instances', '--instance-ids', *ids)}, then run this again",
    )  # fmt: skip


def _await(done: Callable[[], bool], settings: Settings, otherwise: Callable[[], OpsError]) -> None:
    until = time.monotonic() + min(NODES_S, settings.patience_s)
    while not done():
        if time.monotonic() > until:
            raise otherwise()
        time.sleep(settings.poll_s)


_BEFORE: dict[str, Callable[[Account, Settings, Say], None]] = {
    "Fleet": _parked, "Cluster": _open_cluster, "Guard": _unmanned,
}  # fmt: skip


def going(found: dict[str, Stack]) -> list[Stack]:
    """Return the stacks that will be deleted, in their order."""
    return [found[kind] for kind in ORDER if kind in found]
