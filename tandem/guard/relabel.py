"""Let the nodes of a lease take other labels: the same run goes on with other servers, or compiles first.

The lease says so before the nodes do, and names both labels, so that the reaper takes neither for a stranger's.
Invariant: standard library and boto3 only; sizes are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tandem.fence import (
    RAISED,
    Clients,
    Guarded,
    Lease,
    Pointer,
    RefusedError,
    WorldError,
    lease_key,
    words,
    write_lease,
)
from tandem.guard.ownership import LeaseOwner
from tandem.stop import Seen, look, read_our_labels


def relabel_nodes(
    clients: Clients, guarded: Guarded, *, run: str, label: Mapping[str, str], now: datetime
) -> Lease:  # fmt: skip
    """Write other labels into the lease of a run, then set them on the node group's nodes.

    Args:
        run: whose lease it is; nobody else's is touched.
        label: of the nodes, as names.raise_label and names.compile_label give them; the run's former ones go.
        now: the time.

    Returns:
        The lease as it now stands.

    Raises:
        RefusedError: the run has no live lease, or it ends; nothing was changed.
        WorldError: AWS failed; the lease may name the new labels and the nodes still carry the old ones: do it again.
    """
    seen = look(clients, guarded, now)
    pointer, lease = _require_live_lease(guarded, seen, run)
    again = "relabel once more: the lease names both labels"
    former = lease.node_label if seen.labels != lease.former_label else lease.former_label
    wanted = lease if lease.node_label == label else replace(lease, node_label=dict(label), former_label=dict(former))
    try:
        written = lease if wanted is lease else write_lease(clients, guarded, wanted)
        if written is None:
            raise RefusedError("somebody changed the lease at this moment", where=guarded.environment,
                               change=f"tandem status --env {guarded.environment}")  # fmt: skip
        # read again behind the lease: another relabel of this run may have come between
        present = read_our_labels(clients, guarded)
        change: dict[str, Any] = {"addOrUpdateLabels": dict(label)}
        gone = [name for name in present if name not in label]
        if gone:
            change["removeLabels"] = gone
        if present != label:
            LeaseOwner(clients, guarded, pointer, written).call_if_own(
                lambda: clients.eks_once.update_nodegroup_config(
                    clusterName=guarded.cluster, nodegroupName=guarded.node_group, labels=change
                ),
                lambda loss: RefusedError(f"the labels are not set: {loss}", where=guarded.group,
                                          change=f"tandem status --env {guarded.environment}"),
            )  # fmt: skip
    except RAISED as error:
        raise WorldError(f"relabelling failed ({words(error)})", where=guarded.group, change=again) from error
    return written


def _require_live_lease(guarded: Guarded, seen: Seen, run: str) -> tuple[Pointer, Lease]:
    name = guarded.environment
    for source in ("fence", "lease", "node group"):
        if source in seen.unknown:
            raise WorldError(f"{source} unknown ({seen.unknown[source]}), so no label is changed", where=name,
                             change="try again")  # fmt: skip
    lease = seen.live
    if lease is None or seen.pointer is None or lease.run != run or lease.ending is not None:
        holder = f"run {lease.run} has it" if lease and lease.run != run else "it is over, or it ends"
        raise RefusedError(f"run {run} has no live lease: {holder}", where=guarded.url(lease_key(run)),
                           change=f"tandem status --env {name}")  # fmt: skip
    if not seen.owned:
        raise RefusedError("it is not there, or another's", where=guarded.group, change="deploy the Fleet stack")
    return seen.pointer, lease
