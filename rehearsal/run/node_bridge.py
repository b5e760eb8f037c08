"""Nodes of a rehearsed cluster as in EKS: of the instances that the local endpoint's EC2 lists.

Invariant: a node joins when its instance runs, with the taints of its own user data, and has the
labels that its node group has now. After the join and at each update of the group, labels and
taints of the group are set again. The node of an instance that is shutting down is drained, as a
managed node group does before it ends one. When the instance is gone, the node is lost, and goes by
the rules of `rehearsal.cluster.nodes`.

Sources: the taints of a group come after the join (aws/containers-roadmap#1962,
aws-ebs-csi-driver#2447). That an update of labels alone sets the taints again is a guess, the worse
of two cases. The startup taint goes as awslabs/mountpoint-s3-csi-driver v2.7.0
pkg/driver/node/taint.go removes it.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from email import message_from_bytes
from typing import Any

import yaml

from rehearsal.cluster.cluster import RehearsalCluster
from rehearsal.cluster.controllers import build_owner
from rehearsal.cluster.store import Object
from tandem.declarations import names
from tandem.declarations.platform import InstanceType
from tandem.guard.observe import CLUSTER_TAG, NODE_GROUP_TAG

ALIVE_STATES = ("pending", "running")
DRIVER = "neuron.aws.com"
DRIVER_WATCH_S = 600  # the Mountpoint driver looks for its taint so long after its own start
NODE_CONFIG_TYPE = "application/node.eks.aws"
_EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}
ROOT_VOLUME_GB = 80  # of a system node


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeInstance:
    """An instance of a node group, and the labels and taints that EKS gives its node.

    Args:
        labels, taints: of the node group.
        registered_taints: those with which kubelet registers the node.
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
    registered_taints: tuple[Object, ...] = ()


def read_instances(client: Callable[[str], Any], cluster: str) -> list[NodeInstance]:
    """Return a cluster's node-group instances from EC2 and EKS, also ended ones that EC2 lists."""
    eks = client("eks")
    filters = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster]}]
    groups = {
        name: eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
        for name in eks.list_nodegroups(clusterName=cluster)["nodegroups"]
    }
    instances = []
    for reservation in client("ec2").describe_instances(Filters=filters)["Reservations"]:
        for row in reservation["Instances"]:
            group = next(tag["Value"] for tag in row["Tags"] if tag["Key"] == NODE_GROUP_TAG)
            template = groups.get(group, {}).get("launchTemplate", {})
            user_data = (
                _read_user_data(client, template["id"], template["version"]) if template else ""
            )
            instances.append(
                NodeInstance(
                    id=row["InstanceId"],
                    name=row["PrivateDnsName"],
                    type=row["InstanceType"],
                    group=group,
                    zone=row["Placement"]["AvailabilityZone"],
                    state=row["State"]["Name"],
                    launched_at=row["LaunchTime"],
                    labels=groups.get(group, {}).get("labels", {}),
                    taints=tuple(groups.get(group, {}).get("taints", [])),
                    registered_taints=read_registered_taints(user_data),
                )
            )
    return instances


@functools.cache
def _read_user_data(client: Callable[[str], Any], template: str, version: str) -> str:
    """Return the user data of a version of a launch template, which never changes, in base64."""
    versions = client("ec2").describe_launch_template_versions(
        LaunchTemplateId=template, Versions=[version]
    )
    return str(versions["LaunchTemplateVersions"][0]["LaunchTemplateData"].get("UserData", ""))


def read_registered_taints(user_data: str) -> tuple[Object, ...]:
    """Return the taints kubelet registers its node with: of the last NodeConfig with a list.

    Args:
        user_data: of an instance, in base64.
    """
    taints: tuple[Object, ...] = ()
    message = message_from_bytes(base64.b64decode(user_data))
    for part in message.walk():
        if part.get_content_type() == NODE_CONFIG_TYPE:
            kubelet = yaml.safe_load(str(part.get_payload()))["spec"].get("kubelet", {})
            taints = tuple(kubelet.get("config", {}).get("registerWithTaints", taints))
    return taints


@dataclass(kw_only=True, slots=True)
class NodeBridge:
    """Writes instances to a cluster as nodes and ResourceSlices; counts paid accelerator time.

    Args:
        cluster: the cluster.
        instance_types: by name, as the platform data has them.
    """

    cluster: RehearsalCluster
    instance_types: Mapping[str, InstanceType]
    _spans: dict[str, tuple[datetime, datetime]] = field(default_factory=dict, init=False)
    # with what its node was given last
    _groups: dict[str, NodeInstance] = field(default_factory=dict, init=False)

    def write_nodes(self, instances: Iterable[NodeInstance]) -> None:
        """Let the running instances be nodes, and drain and lose the nodes of those that end."""
        store = self.cluster.store
        now = store.now()
        listed = {row.name: row for row in instances}
        rows = {name: row for name, row in listed.items() if row.state in ALIVE_STATES}
        for row in rows.values():
            if self.instance_types[row.type].devices.value:
                self._spans[row.id] = (self._spans.get(row.id, (row.launched_at, now))[0], now)
        nodes = {node["metadata"]["name"]: node for node in store.list_objects("nodes")}
        for name in nodes.keys() - rows.keys():
            self._end_node(nodes[name], listed.get(name))
        for row in (row for row in rows.values() if row.state == "running"):
            if row.name in nodes:
                self._follow_group(row)
                self._follow_driver(row)
            else:
                self._join_node(row)

    def count_node_s(self) -> float:
        """Return the seconds accelerator instances existed, by the endpoint's launch times."""
        return sum((end - begin).total_seconds() for begin, end in self._spans.values())

    def _join_node(self, row: NodeInstance) -> None:
        instance_type = self.instance_types[row.type]
        store = self.cluster.store
        self._groups[row.name] = replace(row, taints=())
        node = store.create_object("nodes", "", build_node(row, instance_type))
        if instance_type.devices.value:
            body = build_slice(row, instance_type, instance_type.devices.value)
            body["metadata"]["ownerReferences"] = [build_owner(node)]
            store.create_object("resourceslices", "", body)

    def _follow_group(self, row: NodeInstance) -> None:
        """Set the group's labels and taints if one changed; remove those it no longer has."""
        former = self._groups.get(row.name) or replace(row, labels={}, taints=())
        if (former.labels, former.taints) == (row.labels, row.taints):
            return
        labels = dict.fromkeys(former.labels.keys() - row.labels.keys()) | dict(row.labels)
        taints = convert_effects(row.taints)
        group_taints = [
            (taint["key"], taint["effect"]) for taint in (*convert_effects(former.taints), *taints)
        ]
        own_taints = [
            taint
            for taint in self._list_taints(row.name)
            if (taint["key"], taint["effect"]) not in group_taints
        ]
        patch = {"metadata": {"labels": labels}, "spec": {"taints": own_taints + taints}}
        self.cluster.store.patch_object("nodes", "", row.name, patch)
        self._groups[row.name] = row

    def _follow_driver(self, row: NodeInstance) -> None:
        """Remove the startup taint as the Mountpoint driver does: only some minutes from start."""
        node = self.cluster.store.view_object("nodes", "", row.name)
        taints = self._list_taints(row.name)
        kept = [taint for taint in taints if taint["key"] != names.STARTUP_TAINT]
        if kept != taints and self.cluster.store.measure_age(node) < DRIVER_WATCH_S:
            self.cluster.store.patch_object("nodes", "", row.name, {"spec": {"taints": kept}})

    def _list_taints(self, name: str) -> list[Object]:
        taints: list[Object] = self.cluster.store.view_object("nodes", "", name)["spec"].get(
            "taints", []
        )
        return taints

    def _end_node(self, node: Object, row: NodeInstance | None) -> None:
        """Drain the node of an instance that shuts down, and lose it once the instance is gone."""
        name = node["metadata"]["name"]
        if not self.cluster.has_kubelet(name):
            return
        if not node["spec"].get("unschedulable"):
            self.cluster.drain_node(name)
        if row is None or row.state != "shutting-down":
            self.cluster.lose_node(name)


def convert_effects(taints: Iterable[Object]) -> list[Object]:
    """Return taints of the EKS API as Kubernetes has them."""
    return [{**taint, "effect": _EFFECTS[taint["effect"]]} for taint in taints]


def build_node(row: NodeInstance, instance_type: InstanceType) -> Object:
    """Return the node of an instance, as its kubelet registers it."""
    labels = {
        "eks.amazonaws.com/nodegroup": row.group,
        "kubernetes.io/hostname": row.name,
        "node.kubernetes.io/instance-type": row.type,
        "topology.kubernetes.io/zone": row.zone,
    }
    allocatable = {
        "cpu": f"{instance_type.allocatable_cpu_m.value}m",
        "pods": str(instance_type.pods.value),
        "memory": f"{instance_type.allocatable_memory_mib.value}Mi",
        "ephemeral-storage": f"{instance_type.nvme_gb.value or ROOT_VOLUME_GB}G",
    }
    metadata = {"name": row.name, "labels": labels | dict(row.labels)}
    spec = {"providerID": f"aws:///{row.zone}/{row.id}", "taints": list(row.registered_taints)}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": metadata, "spec": spec, "status": status}


def build_slice(row: NodeInstance, instance_type: InstanceType, count: int) -> Object:
    """Return a node's first devices as a ResourceSlice, with the Neuron DRA driver's attributes.

    Source: aws-neuron-sdk deploy/eks/dra.rst; connected-device-maps-over-efa-for-neuron
    lookup/lookup.go.
    """
    group_ids = instance_type.resource_slice.value or {} if instance_type.resource_slice else {}
    total = instance_type.devices.value or count
    devices = []
    for number in range(count):
        attributes: dict[str, Object] = {
            "deviceId": {"int": number},
            "instanceType": {"string": row.type},
            "resourceType": {"string": "neuron_device"},
            "draDriverVersion": {"version": "1.2.0"},
        }
        for name, ids in group_ids.items():
            attributes[name] = {"string": ids[number * len(ids) // total]}
        devices.append({"name": f"neuron-device-{number}", "attributes": attributes})
    pool = {"name": row.name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": row.name, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{row.name}-{DRIVER}"}, "spec": spec}
