"""Change of the node labels of a lease: the same run goes on with other servers, or compiles first.

The lease names the change before the nodes have it, and names both labels, so that the reaper takes
neither for a stranger's. Invariant: standard library and boto3 only; sizes stay unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from tandem.errors import ExternalError, InputError
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fleet_state import FleetState
from tandem.guard.lease import Lease, LeasePointer, lease_key, write_lease
from tandem.guard.observe import observe_fleet, read_label_change
from tandem.guard.ownership import LeaseOwner
from tandem.guard.values import CALL_ERRORS, describe_error


def relabel_nodes(
    clients: AwsClients,
    config: GuardConfig,
    *,
    run: str,
    node_labels: Mapping[str, str],
    now: datetime,
) -> Lease:
    """Write other labels into the lease of a run, then set them on the node group's nodes.

    Args:
        run: the run of the lease; no other lease is touched.
        node_labels: of the nodes, as names.raise_label and names.compile_label give them; the run's
            former ones are removed.
        now: the time.

    Returns:
        The new lease.

    Raises:
        InputError: the run has no live lease, or its lease ends; nothing was changed.
        ExternalError: AWS failed; the lease may name the new labels and the nodes the old ones:
            repeat the call.
    """
    fleet = observe_fleet(clients, config, now)
    pointer, lease = _require_live_lease(config, fleet, run)
    retry_advice = "relabel once more: the lease names both labels"
    status_command = f"tandem status --env {config.environment}"
    former_labels = lease.node_label if fleet.labels != lease.former_label else lease.former_label
    new_lease = replace(lease, node_label=dict(node_labels), former_label=dict(former_labels))
    try:
        stored_lease: Lease | None = lease
        if lease.node_label != node_labels:
            stored_lease = write_lease(clients, config, new_lease)
        if stored_lease is None:
            problem = "somebody changed the lease at this moment"
            raise InputError(problem, where=config.environment, change=status_command)
        # read again after the lease: another relabel of this run may have come between
        label_change = read_label_change(clients, config, node_labels)
        where = config.node_group_description
        if label_change:
            LeaseOwner(clients, config, pointer, stored_lease).call_as_owner(
                lambda: clients.eks_once.update_nodegroup_config(
                    clusterName=config.cluster, nodegroupName=config.node_group, labels=label_change
                ),
                lambda loss: InputError(
                    f"the labels are not set: {loss}", where=where, change=status_command
                ),
            )
    except CALL_ERRORS as error:
        problem = f"relabelling failed ({describe_error(error)})"
        raise ExternalError(
            problem, where=config.node_group_description, change=retry_advice
        ) from error
    return stored_lease


def _require_live_lease(
    config: GuardConfig, fleet: FleetState, run: str
) -> tuple[LeasePointer, Lease]:
    name = config.environment
    fleet.require_known(
        "fence",
        "lease",
        "node group",
        where=name,
        consequence="no label is changed",
        change="try again",
    )
    lease = fleet.live_lease
    if lease is None or fleet.pointer is None or lease.run != run or lease.ending is not None:
        holder = (
            f"run {lease.run} has it" if lease and lease.run != run else "it is over, or it ends"
        )
        problem = f"run {run} has no live lease: {holder}"
        where = config.url(lease_key(run))
        raise InputError(problem, where=where, change=f"tandem status --env {name}")
    if not fleet.has_owner_tag:
        problem = "it is not there, or another's"
        where = config.node_group_description
        raise InputError(problem, where=where, change="deploy the Fleet stack")
    return fleet.pointer, lease
