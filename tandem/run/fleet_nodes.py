"""The accelerator nodes of a run, and the taints that keep its pods from them."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.declarations import names
from tandem.run.cluster import Object
from tandem.run.run_world import StepWork


def list_fleet_nodes(work: StepWork) -> list[Object]:
    """Return the nodes of the accelerator node group (EKS puts its name on them as a label).

    Raises:
        ExternalError: Kubernetes failed.
    """
    group = work.world.guard.node_group
    return work.world.cluster.list_objects("nodes", labels={"eks.amazonaws.com/nodegroup": group})


def is_node_ready(node: Object) -> bool:
    """Tell whether a node is ready and takes pods.

    A cordoned one is leaving: the node of an earlier lease says Ready for up to a minute after its
    instance is gone.
    """
    conditions = node.get("status", {}).get("conditions", [])
    is_cordoned = node.get("spec", {}).get("unschedulable", False)
    return not is_cordoned and any(
        row["type"] == "Ready" and row["status"] == "True" for row in conditions
    )


def find_device_attribute(device: Object, name: str) -> Object:
    """Return a device's attribute, whoever qualifies its name; empty without it."""
    attributes: dict[str, Object] = device.get("attributes") or {}
    for full_name, value in attributes.items():
        if full_name.rpartition("/")[2] == name:
            return value
    return {}


def describe_taints(nodes: Iterable[Object]) -> str:
    """Return the taints that no pod of a run tolerates, by node; empty without one."""
    sentences = []
    for node in nodes:
        taints = node.get("spec", {}).get("taints") or []
        hard_taints = [taint["key"] for taint in taints if taint["effect"] != "PreferNoSchedule"]
        keys = sorted(set(hard_taints) - {names.NEURON_TAINT})
        if keys:
            sentences.append(f"{node['metadata']['name']} has the taint {', '.join(keys)}")
    return "; ".join(sentences)
