"""The API as lightkube's real client sees it: the calls of the runner, over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from lightkube import Client, KubeConfig
from lightkube.resources import apps_v1, batch_v1, core_v1, discovery_v1, resource_v1
from lightkube.types import CascadeType, PatchType
from server_objects import add_server

from rehearsal.cluster.cluster import RehearsalCluster, WallClock
from rehearsal.cluster.live_cluster import LiveCluster
from rehearsal.cluster.pods import PodScript, VirtualPods
from rehearsal.cluster.server import ClusterServer, ClusterUser

LOG = "one\ntwo\nthree\n"
RULE = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
JOB = {
    "metadata": {"name": "stage-1", "labels": {"tandem.run/id": "r1"}},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "stage"}]}}},
}


def choose_script(pod: dict) -> PodScript:
    """Let a Job's pod end at once, and a server run for ever."""
    return PodScript(run_s=0 if "job-name" in pod["metadata"]["labels"] else None)


@pytest.fixture(scope="module")
def live() -> Iterator[LiveCluster]:
    cluster = RehearsalCluster(WallClock(), lambda now: VirtualPods(now, choose_script))
    add_server(cluster.store, replicas=0)
    service = {
        "metadata": {"name": "plain"},
        "spec": {"selector": {"app": "plain"}, "ports": [{"port": 8000}]},
    }
    cluster.store.create_object("services", "post", service)
    users = {"secret": ClusterUser("runner", cluster_rules=[RULE])}
    server = ClusterServer(cluster.store, users, read_log=lambda _, name: LOG + name)
    with LiveCluster(cluster, server) as running:
        yield running


@pytest.fixture(scope="module")
def client(live) -> Client:
    return Client(
        KubeConfig.from_dict(live.build_kubeconfig("secret", "post")), field_manager="runner"
    )


def wait_until(check) -> None:
    for _ in range(100):
        if check():
            return
        time.sleep(0.05)
    raise AssertionError(check)


@pytest.fixture(scope="module")
def pod(client) -> core_v1.Pod:
    """The pod of a Job that ended."""
    client.create(batch_v1.Job.from_dict(JOB))
    wait_until(
        lambda: (
            (status := client.get(batch_v1.Job, "stage-1").status)
            and "Complete" in {row.type for row in status.conditions or []}
        )
    )
    (job_pod,) = client.list(core_v1.Pod, labels={"batch.kubernetes.io/job-name": "stage-1"})
    return job_pod


def test_a_log_has_a_container_and_a_last_line(client, pod):
    lines = list(client.log(pod.metadata.name, container="stage", tail_lines=2))
    assert "".join(lines).splitlines() == ["three", "stage"]


def test_a_scale_places_a_server_and_its_claim(client):
    client.patch(
        apps_v1.Deployment.Scale, "plain", {"spec": {"replicas": 1}}, patch_type=PatchType.MERGE
    )
    wait_until(lambda: list(client.list(resource_v1.ResourceClaim)))
    wait_until(lambda: all(claim.status for claim in client.list(resource_v1.ResourceClaim)))
    (claim,) = client.list(resource_v1.ResourceClaim)
    assert len(claim.status.allocation.devices.results) == 8
    wait_until(
        lambda: [
            row.conditions.ready
            for s in client.list(discovery_v1.EndpointSlice)
            for row in s.endpoints
        ]
    )


def test_a_scale_to_zero_gives_the_claim_back(client):
    scale = client.patch(
        apps_v1.Deployment.Scale, "plain", {"spec": {"replicas": 0}}, patch_type=PatchType.MERGE
    )
    assert scale.spec.replicas is None
    wait_until(lambda: not list(client.list(resource_v1.ResourceClaim)))


def test_a_job_is_deleted_with_its_pods(client):
    client.create(batch_v1.Job.from_dict({**JOB, "metadata": {"name": "stage-2"}}))
    own_label = {"batch.kubernetes.io/job-name": "stage-2"}
    wait_until(lambda: list(client.list(core_v1.Pod, labels=own_label)))

    client.delete(batch_v1.Job, "stage-2", cascade=CascadeType.BACKGROUND)
    wait_until(lambda: not list(client.list(core_v1.Pod, labels=own_label)))
