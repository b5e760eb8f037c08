"""Nodes of a rehearsed cluster as EKS would have them: of the instances that the local endpoint's EC2 lists.

Invariant: a node joins when its instance runs, and has the labels that its node group has now. The node of an instance
that is shutting down is drained, as a managed node group does before it ends one. When the instance is gone, the node
is lost, and goes by the rules of `rehearsal.cluster.nodes`. A taint that an agent takes away is never set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rehearsal.cluster.cluster import RehearsalCluster
from rehearsal.cluster.controllers import build_owner
from rehearsal.cluster.store import Object
from rehearsal.run.settings import RunFaults
from tandem.guard.observe import CLUSTER_TAG, NODE_GROUP_TAG
from tandem.spec.platform import InstanceType

ALIVE_STATES = ("pending", "running")
DRIVER = "neuron.aws.com"
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
ROOT_VOLUME_GB = 80  # of a system node
_AGENT_TAINT = "agent-not-ready"  # an agent takes this taint away when the node has joined


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeInstance:
    """An instance of a node group, and the labels and taints that EKS gives its node.

    Args:
        labels, taints: of the node group.
    """

    id: str
    name: str
    type: str
    zone: str
    state: str
    launched_at: datetime
    group: str
    labels: Mapping[str, str]
    taints: tuple[Object, ...]


def read_instances(client: Callable[[str], Any], cluster: str) -> list[NodeInstance]:
    """Return the instances of a cluster's node groups from EC2 and EKS, ended ones too while EC2 lists them."""
    eks, filters = client("eks"), [{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster]}]
    groups = {
        name: eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
        for name in eks.list_nodegroups(clusterName=cluster)["nodegroups"]
    }
    instances = []
    for reservation in client("ec2").describe_instances(Filters=filters)["Reservations"]:
        for row in reservation["Instances"]:
            group = next(tag["Value"] for tag in row["Tags"] if tag["Key"] == NODE_GROUP_TAG)
            instances.append(NodeInstance(
                id=row["InstanceId"], name=row["PrivateDnsName"], type=row["InstanceType"], group=group,
                zone=row["Placement"]["AvailabilityZone"], state=row["State"]["Name"], launched_at=row["LaunchTime"],
                labels=groups.get(group, {}).get("labels", {}), taints=tuple(groups.get(group, {}).get("taints", [])),
            ))  # fmt: skip
    return instances


@dataclass(kw_only=True, slots=True)
class NodeBridge:
    """Writes instances into a cluster as nodes and ResourceSlices, and counts how long accelerators were paid.

    Args:
        cluster: the cluster.
        instance_types: by name, as the platform data has them.
        read_faults: returns the faults that are in force.
    """

    cluster: RehearsalCluster
    instance_types: Mapping[str, InstanceType]
    read_faults: Callable[[], RunFaults]
    _spans: dict[str, tuple[datetime, datetime]] = field(default_factory=dict, init=False)
    _labels: dict[str, Mapping[str, str]] = field(
        default_factory=dict, init=False
    )  # of the group, as each node has them

    def write_nodes(self, instances: Iterable[NodeInstance]) -> None:
        """Let the running instances be nodes, and drain and lose the nodes of those that end."""
        store = self.cluster.store
        faults, now = self.read_faults(), store.now()
        listed = {row.name: row for row in instances}
        rows = {name: row for name, row in listed.items() if row.state in ALIVE_STATES}
        for row in rows.values():
            if self.instance_types[row.type].devices.value:
                self._spans[row.id] = (self._spans.get(row.id, (row.launched_at, now))[0], now)
        nodes = {node["metadata"]["name"]: node for node in store.list_objects("nodes")}
        for name in nodes.keys() - rows.keys():
            self._end_node(nodes[name], listed.get(name))
        for row in (row for row in rows.values() if row.state == "running"):
            devices = self.instance_types[row.type].devices.value or 0
            waits = (now - row.launched_at).total_seconds() < faults.join_s or faults.is_node_absent
            if row.name in nodes:
                self._label_node(row, faults)
            elif not (devices and waits):
                self._labels[row.name] = row.labels
                node = store.create_object("nodes", "", build_node(row, self.instance_types[row.type]))
                if devices:
                    body = build_slice(row, self.instance_types[row.type], devices - faults.missing_devices)
                    body["metadata"]["ownerReferences"] = [build_owner(node)]
                    store.create_object("resourceslices", "", body)

    def count_node_s(self) -> float:
        """Return the seconds for which accelerator instances were there, by the endpoint's launch times."""
        return sum((end - begin).total_seconds() for begin, end in self._spans.values())

    def _label_node(self, row: NodeInstance, faults: RunFaults) -> None:
        """Give a node the labels of its group; remove labels that the group no longer has, as EKS does."""
        old_labels = self._labels.get(row.name, {})
        if not faults.are_labels_frozen and old_labels != row.labels:
            change = dict.fromkeys(old_labels.keys() - row.labels.keys()) | dict(row.labels)
            self.cluster.store.patch_object("nodes", "", row.name, {"metadata": {"labels": change}})
            self._labels[row.name] = row.labels

    def _end_node(self, node: Object, row: NodeInstance | None) -> None:
        """Drain the node of an instance that shuts down, and lose it once the instance is gone."""
        name = node["metadata"]["name"]
        if not self.cluster.has_kubelet(name):
            return
        if not node["spec"].get("unschedulable"):
            self.cluster.drain_node(name)
        if row is None or row.state != "shutting-down":
            self.cluster.lose_node(name)


def build_node(row: NodeInstance, instance_type: InstanceType) -> Object:
    """Return the node of an instance, as EKS and its kubelet make it."""
    labels = {
        "eks.amazonaws.com/nodegroup": row.group, "kubernetes.io/hostname": row.name,
        "node.kubernetes.io/instance-type": row.type, "topology.kubernetes.io/zone": row.zone,
    }  # fmt: skip
    taints = [{**taint, "effect": _EFFECTS[taint["effect"]]} for taint in row.taints]
    allocatable = {
        "cpu": f"{instance_type.allocatable_cpu_m.value}m", "pods": str(instance_type.pods.value),
        "memory": f"{instance_type.allocatable_memory_mib.value}Mi",
        "ephemeral-storage": f"{instance_type.nvme_gb.value or ROOT_VOLUME_GB}G",
    }  # fmt: skip
    metadata = {"name": row.name, "labels": labels | dict(row.labels)}
    spec = {
        "providerID": f"aws:///{row.zone}/{row.id}",
        "taints": [taint for taint in taints if not taint["key"].endswith(_AGENT_TAINT)],
    }
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": metadata, "spec": spec, "status": status}


def build_slice(row: NodeInstance, instance_type: InstanceType, count: int) -> Object:
    """Return the ResourceSlice of a node's first devices, with the attributes that the Neuron DRA driver gives.

    Source: aws-neuron-sdk deploy/eks/dra.rst; connected-device-maps-over-efa-for-neuron lookup/lookup.go.
    """
    group_ids = instance_type.resource_slice.value or {} if instance_type.resource_slice else {}
    total = instance_type.devices.value or count
    devices = []
    for number in range(count):
        attributes: dict[str, Object] = {
            "deviceId": {"int": number}, "instanceType": {"string": row.type},
            "resourceType": {"string": "neuron_device"}, "draDriverVersion": {"version": "1.2.0"},
        }  # fmt: skip
        for name, ids in group_ids.items():
            attributes[name] = {"string": ids[number * len(ids) // total]}
        devices.append({"name": f"neuron-device-{number}", "attributes": attributes})
    pool = {"name": row.name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": row.name, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{row.name}-{DRIVER}"}, "spec": spec}
