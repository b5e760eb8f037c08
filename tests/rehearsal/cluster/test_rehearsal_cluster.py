"""A cluster at work: servers that claim devices come one after the other, Jobs end, and everything
goes to zero."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import ClientSession

from rehearsal.cluster.cluster import ClusterClock, RehearsalCluster
from rehearsal.cluster.pods import PodScript, VirtualPods
from rehearsal.cluster.server import ClusterServer

SCRIPTS = {
    "plain": PodScript(start_s=20, ready_after_s=100),
    "fused": PodScript(start_s=20, ready_after_s=100),
    "compile": PodScript(run_s=600),
}
DRIVER = "neuron.amazonaws.com"


def build_node(devices: int) -> tuple[dict, dict]:
    node = {
        "metadata": {"name": "node-a"},
        "status": {
            "allocatable": {"cpu": "190", "memory": "2000Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": 1}
    names = [{"name": f"neuron-{index}", "attributes": {}} for index in range(devices)]
    slice_ = {
        "metadata": {"name": "node-a-neuron"},
        "spec": {"driver": DRIVER, "nodeName": "node-a", "pool": pool, "devices": names},
    }
    return node, slice_


def build_server(name: str, replicas: int) -> dict:
    labels = {"app": name}
    pod = {
        "containers": [
            {
                "name": "server",
                "resources": {"requests": {"cpu": "40"}, "claims": [{"name": "neuron"}]},
            }
        ],
        "resourceClaims": [{"name": "neuron", "resourceClaimTemplateName": "half"}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    strategy = {"type": "Recreate"}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": template,
        "strategy": strategy,
    }
    return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture
def cluster() -> RehearsalCluster:
    cluster = RehearsalCluster(ClusterClock(), lambda now: VirtualPods(now, SCRIPTS))
    node, slice_ = build_node(devices=16)
    status = node.pop("status")
    cluster.store.create_object("nodes", "", node)
    cluster.store.patch_object("nodes", "", "node-a", {"status": status}, subresource="status")
    cluster.store.create_object("resourceslices", "", slice_)
    request = {"name": "devices", "exactly": {"deviceClassName": DRIVER, "count": 8}}
    claim = {"spec": {"spec": {"devices": {"requests": [request]}}}, "metadata": {"name": "half"}}
    cluster.store.create_object("resourceclaimtemplates", "post", claim)
    for name in ("plain", "fused"):
        cluster.store.create_object("deployments", "post", build_server(name, replicas=1))
    return cluster


def count_ready(cluster: RehearsalCluster, name: str) -> int:
    return (
        cluster.store.get_object("deployments", "post", name)
        .get("status", {})
        .get("readyReplicas", 0)
    )


def list_devices(cluster: RehearsalCluster) -> list[str]:
    claims = cluster.store.list_objects("resourceclaims", "post")
    return sorted(
        result["device"]
        for claim in claims
        for result in (
            claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        )
    )


def test_two_servers_share_a_node_without_a_device_in_common(cluster):
    cluster.advance(3)
    devices = list_devices(cluster)
    assert len(devices) == len(set(devices)) == 16


def test_a_server_is_ready_when_its_script_says(cluster):
    cluster.advance(121)
    assert count_ready(cluster, "plain") == 0
    cluster.advance(2)
    assert count_ready(cluster, "plain") == 1


def test_a_server_that_is_scaled_to_zero_gives_its_devices_back(cluster):
    cluster.advance(132)
    cluster.store.patch_object("deployments", "post", "plain", {"spec": {"replicas": 0}})
    cluster.advance(40)
    assert len(list_devices(cluster)) == 8


def test_a_third_server_waits_for_devices(cluster):
    cluster.advance(3)
    cluster.store.create_object("deployments", "post", build_server("third", replicas=1))
    cluster.advance(5)
    (event,) = cluster.store.list_objects("events", "post")
    assert event["reason"] == "FailedScheduling"


def test_a_job_ends_and_counts_its_pod(cluster):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "compile"}]}}
    cluster.store.create_object(
        "jobs", "post", {"metadata": {"name": "compile"}, "spec": {"template": template}}
    )
    cluster.advance(610, step_s=10)
    assert cluster.store.get_object("jobs", "post", "compile")["status"]["succeeded"] == 1


def test_a_client_sees_by_http_what_the_controllers_did(cluster):
    cluster.advance(130)

    async def ask() -> list[dict]:
        server = ClusterServer(cluster.store)
        await server.start()
        try:
            path = f"http://127.0.0.1:{server.port}/api/v1/namespaces/post/pods?fieldSelector=status.phase%3DRunning"
            async with ClientSession() as session, session.get(path) as response:
                return json.loads(await response.text())["items"]
        finally:
            await server.stop()

    assert sorted(pod["metadata"]["labels"]["app"] for pod in asyncio.run(ask())) == [
        "fused",
        "plain",
    ]
