"""Nodes of the post's environment without an account: two system nodes, and one of Trn2 with its
slice of devices."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from declared_post import ENVIRONMENT, EXPERIMENT, VARIANTS

from rehearsal.run.node_bridge import NodeBridge, NodeInstance
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.names import node_group_name

SYSTEM_NODES = ("conform-system-1", "conform-system-2")
NEURON_NODE = "conform-trn2"
SYSTEM_TYPE = ENVIRONMENT.cluster.system_nodes.instance_type
_TAINT = {"key": "aws.amazon.com/neuron", "value": "present", "effect": "NoSchedule"}


def play_nodes(cluster: Any) -> None:
    """Make the nodes and their ResourceSlice, as EKS and the Neuron driver would.

    Args:
        cluster: rehearsed, or the kubelets of a named one.
    """
    types = load_catalogue().instances.instances
    NodeBridge(cluster=cluster, instance_types=types).write_nodes(_list_instances())


def _list_instances() -> list[NodeInstance]:
    system = [_build_instance(name, SYSTEM_TYPE, {"workload": "system"}) for name in SYSTEM_NODES]
    raised_by_name = {f"raise.tandem/{variant}": EXPERIMENT.name for variant in VARIANTS}
    return [
        *system,
        _build_instance(NEURON_NODE, ENVIRONMENT.capacity.instance_type, raised_by_name, _TAINT),
    ]


def _build_instance(
    name: str, instance_type: str, labels: dict[str, str], *taints: dict[str, str]
) -> NodeInstance:
    return NodeInstance(
        id=f"i-{name}",
        name=name,
        type=instance_type,
        zone="us-east-2c",
        state="running",
        launched_at=datetime.now(UTC),
        group=node_group_name(ENVIRONMENT) if taints else "system",
        labels=labels,
        taints=(),
        registered_taints=taints,
    )
