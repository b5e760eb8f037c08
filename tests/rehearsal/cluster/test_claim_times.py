"""A pod exists before its claim, and the claim before its allocation."""

from __future__ import annotations

import pytest
from test_rehearsal_cluster import build_node, build_server

from rehearsal.cluster.cluster import ClusterClock, RehearsalCluster
from rehearsal.cluster.pods import VirtualPods
from rehearsal.cluster.timing import ClusterTiming

DRIVER = "neuron.amazonaws.com"


def start_server(timing: ClusterTiming) -> RehearsalCluster:
    """Return a cluster in which a Deployment was created a moment ago."""
    cluster = RehearsalCluster(ClusterClock(), lambda now: VirtualPods(now, {}), timing=timing)
    node, slice_ = build_node(devices=16)
    cluster.store.create_object("nodes", "", node)
    cluster.store.create_object("resourceslices", "", slice_)
    request = {"name": "devices", "exactly": {"deviceClassName": DRIVER, "count": 8}}
    claim = {"spec": {"spec": {"devices": {"requests": [request]}}}, "metadata": {"name": "half"}}
    cluster.store.create_object("resourceclaimtemplates", "post", claim)
    cluster.store.create_object("deployments", "post", build_server("plain", replicas=1))
    cluster.settle()
    return cluster


def look(cluster: RehearsalCluster) -> tuple[bool, bool, bool]:
    """Return whether the server's pod names its claim, whether that is allocated, and whether the
    pod is bound."""
    (pod,) = cluster.store.list_objects("pods")
    claims = cluster.store.list_objects("resourceclaims")
    is_allocated = any("allocation" in claim.get("status", {}) for claim in claims)
    return "resourceClaimStatuses" in pod["status"], is_allocated, "nodeName" in pod["spec"]


def test_new_pod_has_no_claim_by_default():
    assert look(start_server(ClusterTiming())) == (False, False, False)


@pytest.mark.parametrize("claim_s", [2, 7])
def test_claim_comes_after_its_seconds(claim_s):
    cluster = start_server(ClusterTiming(claim_s=claim_s))
    cluster.advance(claim_s - 1)
    assert look(cluster)[0] is False
    cluster.advance(1)
    assert look(cluster) == (True, False, False)


@pytest.mark.parametrize("allocation_s", [2, 7])
def test_allocation_comes_after_its_seconds(allocation_s):
    cluster = start_server(ClusterTiming(claim_s=1, allocation_s=allocation_s))
    cluster.advance(allocation_s)
    assert look(cluster) == (True, False, False)
    cluster.advance(1)
    assert look(cluster) == (True, True, True)


def test_delay_can_change_while_the_cluster_works():
    cluster = start_server(ClusterTiming())
    cluster.timing = ClusterTiming(claim_s=60)
    cluster.advance(59)
    assert look(cluster)[0] is False


def test_delay_of_a_fraction_of_a_second_is_kept():
    cluster = start_server(ClusterTiming(claim_s=0.5))
    cluster.advance(0.4, step_s=0.1)
    assert look(cluster)[0] is False
    cluster.advance(0.2, step_s=0.1)
    assert look(cluster)[0] is True


def test_claim_of_a_deleted_pod_without_a_node_goes():
    cluster = start_server(ClusterTiming(claim_s=1, allocation_s=100))
    cluster.advance(1)
    cluster.store.patch_object("deployments", "post", "plain", {"spec": {"replicas": 0}})
    cluster.settle()
    assert cluster.store.list_objects("resourceclaims") == []
