"""What plays nodes and kubelets touches no node and no pod that it does not play."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from api_store import LABEL, OWN_VALUE, ApiStore
from played_nodes import NEURON_NODE, SYSTEM_NODES, play_nodes

from rehearsal.cluster.cluster import RehearsalCluster, WallClock
from rehearsal.cluster.live_cluster import LiveCluster
from rehearsal.cluster.pods import VirtualPods
from rehearsal.cluster.server import ClusterServer
from rehearsal.cluster.store import ApiError, ObjectStore

REAL_NODE = {
    "metadata": {"name": "real"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


@pytest.fixture
def live():
    """A cluster that has a node already."""
    objects = ObjectStore(WallClock().now)
    objects.create_object("nodes", "", REAL_NODE)
    cluster = RehearsalCluster(WallClock(), VirtualPods, objects)
    with LiveCluster(cluster, ClusterServer(objects)) as live:
        yield live


@pytest.fixture
def store(live):
    return ApiStore(live.url)


def make_pod(live, name: str, node: str) -> None:
    body = {
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
    }
    live.call(lambda: live.cluster.store.create_object("pods", "default", body))


def test_a_node_that_was_there_before_is_not_seen(store):
    play_nodes(SimpleNamespace(store=store))
    assert [node["metadata"]["name"] for node in store.list_objects("nodes")] == [
        *SYSTEM_NODES,
        NEURON_NODE,
    ]


def test_a_kubelet_sees_only_pods_of_played_nodes(live, store):
    play_nodes(SimpleNamespace(store=store))
    make_pod(live, "ours", NEURON_NODE)
    make_pod(live, "theirs", "real")
    assert [pod["metadata"]["name"] for pod in store.list_objects("pods")] == ["ours"]


def test_what_is_made_carries_the_label(store):
    assert store.create_object("services", "default", {"metadata": {"name": "made"}})["metadata"][
        "labels"
    ] == {LABEL: OWN_VALUE}


def test_a_pod_of_another_uid_is_not_deleted(live, store):
    play_nodes(SimpleNamespace(store=store))
    make_pod(live, "again", NEURON_NODE)
    store.list_objects("pods")
    live.call(lambda: live.cluster.store.remove_object("pods", "default", "again"))
    make_pod(live, "again", NEURON_NODE)
    with pytest.raises(ApiError, match="UID in the precondition"):
        store.remove_object("pods", "default", "again")
