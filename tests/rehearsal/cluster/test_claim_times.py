"""A pod exists before its claim, and the claim before its allocation."""

from __future__ import annotations

from server_objects import add_server

from rehearsal.cluster.cluster import ClusterClock, RehearsalCluster
from rehearsal.cluster.pods import VirtualPods
from rehearsal.cluster.timing import ClusterTiming


def start_server(timing: ClusterTiming) -> RehearsalCluster:
    """Return a cluster in which a Deployment was created a moment ago."""
    cluster = RehearsalCluster(ClusterClock(), VirtualPods, timing=timing)
    add_server(cluster.store, replicas=1)
    cluster.settle()
    return cluster


def look(cluster: RehearsalCluster) -> tuple[bool, bool, bool]:
    """Return whether the server's pod names its claim, whether that is allocated, and whether the
    pod is bound."""
    (pod,) = cluster.store.list_objects("pods")
    claims = cluster.store.list_objects("resourceclaims")
    has_allocation = any("allocation" in claim.get("status", {}) for claim in claims)
    return "resourceClaimStatuses" in pod["status"], has_allocation, "nodeName" in pod["spec"]


def test_claim_comes_after_its_seconds():
    cluster = start_server(ClusterTiming(claim_s=7))
    cluster.advance(6)
    assert look(cluster)[0] is False
    cluster.advance(1)
    assert look(cluster) == (True, False, False)


def test_allocation_comes_after_its_seconds():
    cluster = start_server(ClusterTiming(claim_s=1, allocation_s=7))
    cluster.advance(7)
    assert look(cluster) == (True, False, False)
    cluster.advance(1)
    assert look(cluster) == (True, True, True)


def test_claim_of_a_deleted_pod_without_a_node_goes():
    cluster = start_server(ClusterTiming(claim_s=1, allocation_s=100))
    cluster.advance(1)
    cluster.store.patch_object("deployments", "post", "plain", {"spec": {"replicas": 0}})
    cluster.settle()
    assert cluster.store.list_objects("resourceclaims") == []
