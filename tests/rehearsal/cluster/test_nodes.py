"""A lost node stays Ready for its grace, then goes as a real one does; a drained node gives its
pods away."""

from __future__ import annotations

import pytest
from server_objects import add_node, add_slice

from rehearsal.cluster.cluster import ClusterClock, RehearsalCluster
from rehearsal.cluster.nodes import find_toleration_s
from rehearsal.cluster.pods import PodScript, VirtualPods
from rehearsal.cluster.timing import ClusterTiming

UNREACHABLE = "node.kubernetes.io/unreachable"
LABELS = {"app": "server"}


class NodeWorld:
    """A cluster of one node that serves, and one server on it.

    Args:
        timing: what differs from the defaults.
    """

    def __init__(self, **timing: float) -> None:
        self.script = PodScript(stop_s=5)
        self.cluster = RehearsalCluster(
            ClusterClock(),
            lambda now: VirtualPods(now, lambda _: self.script),
            timing=ClusterTiming(**timing),
        )
        self.store = self.cluster.store
        node = add_node(self.store, "old")
        owner = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "old",
            "uid": node["metadata"]["uid"],
            "controller": True,
        }
        add_slice(self.store, "old", 0, ownerReferences=[owner])
        template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "main"}]}}
        spec = {"selector": {"matchLabels": LABELS}, "template": template}
        self.store.create_object(
            "deployments", "post", {"metadata": {"name": "server"}, "spec": spec}
        )
        self.cluster.advance(1)
        (self.first,) = self.pods

    def wait(self, seconds: float) -> None:
        self.cluster.advance(seconds, step_s=1 if seconds <= 60 else 5)

    @property
    def pods(self) -> list[dict]:
        return self.store.list_objects("pods")

    @property
    def node(self) -> dict:
        return self.store.get_object("nodes", "", "old")

    @property
    def slices(self) -> list[str]:
        return [row["spec"]["nodeName"] for row in self.store.list_objects("resourceslices")]

    def find_condition(self, body: dict, type_: str) -> dict:
        return next((row for row in body["status"]["conditions"] if row["type"] == type_), {})

    def find_first(self) -> dict | None:
        name = self.first["metadata"]["name"]
        return next((pod for pod in self.pods if pod["metadata"]["name"] == name), None)

    def list_taints(self) -> list[tuple[str, str]]:
        return [(row["key"], row["effect"]) for row in self.node["spec"].get("taints", [])]


@pytest.fixture
def world():
    return NodeWorld()


def test_grace_is_a_knob():
    world = NodeWorld(node_grace_s=10)
    world.cluster.lose_node("old")
    world.wait(9)
    assert world.find_condition(world.node, "Ready")["status"] == "True"
    world.wait(1)
    assert world.find_condition(world.node, "Ready")["status"] == "Unknown"


def test_pods_of_a_silent_node_still_run_but_are_not_ready(world):
    world.cluster.lose_node("old")
    world.wait(50)
    (pod,) = world.pods
    assert (pod["status"]["phase"], world.find_condition(pod, "Ready")["status"]) == (
        "Running",
        "False",
    )
    assert world.find_condition(pod, "ContainersReady")["status"] == "True"


def test_dead_kubelet_starts_and_stops_nothing(world):
    world.cluster.lose_node("old")
    world.store.delete_object("pods", "post", world.first["metadata"]["name"])
    world.wait(40)
    first, successor = sorted(
        world.pods, key=lambda pod: pod["metadata"]["name"] != world.first["metadata"]["name"]
    )
    assert "deletionTimestamp" in first["metadata"]
    assert (successor["spec"]["nodeName"], successor["status"]["phase"]) == ("old", "Pending")


def test_node_object_of_an_ended_instance_goes_with_its_slices():
    world = NodeWorld(cloud_look_s=20)
    world.cluster.lose_node("old")
    world.wait(50 + 19)
    assert world.slices == ["old"]
    world.wait(1)
    assert (world.store.list_objects("nodes"), world.slices) == ([], [])


def test_pods_of_a_gone_node_are_removed_by_force():
    world = NodeWorld(orphan_s=90)
    world.cluster.lose_node("old")
    world.wait(55 + 89)
    assert world.find_first()["status"]["phase"] == "Running"
    world.wait(1)
    assert world.find_first() is None
    (successor,) = world.pods
    assert successor["status"]["phase"] == "Pending"


def test_node_whose_instance_lives_stays_and_its_pods_are_evicted(world):
    world.cluster.lose_node("old", is_terminated=False)
    world.wait(50 + 299)
    assert "deletionTimestamp" not in world.find_first()["metadata"]
    world.wait(1)
    first = world.find_first()
    assert "deletionTimestamp" in first["metadata"]
    assert world.find_condition(first, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
    world.wait(600)
    assert world.find_first() is not None
    assert world.find_condition(world.node, "Ready")["status"] == "Unknown"


def test_pod_that_tolerates_for_ever_is_not_evicted():
    taints = [{"key": UNREACHABLE, "effect": "NoExecute"}]
    toleration = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}
    limits = [
        find_toleration_s(taints, rows)
        for rows in ([toleration], [], [toleration | {"tolerationSeconds": 7}])
    ]
    assert limits == [None, 0, 7]


def test_drained_pod_goes_with_its_grace_and_its_successor_waits(world):
    world.cluster.drain_node("old")
    world.wait(4)
    assert (
        world.find_condition(world.find_first(), "DisruptionTarget")["reason"]
        == "EvictionByEvictionAPI"
    )
    world.wait(2)
    (successor,) = world.pods
    assert (world.find_first(), successor["status"]["phase"]) == (None, "Pending")
    assert "unschedulable" in world.find_condition(successor, "PodScheduled")["message"]
