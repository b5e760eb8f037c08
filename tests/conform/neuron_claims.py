"""The devices that the scheduler gives to the servers of an experiment, read from their claims."""

from __future__ import annotations

import json

from named_cluster import NamedCluster, Object

from tandem.run.server_state import NAME_LABEL

CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"


def read_server_devices(cluster: NamedCluster, namespace: str) -> dict[str, list[int]]:
    """Scale every server to 1, wait until it is available, and return server -> numbers of its
    devices."""
    own = ("--namespace", namespace)
    deployments = _list(cluster, *own, "deployments")
    servers = [row["metadata"]["name"] for row in deployments]
    for server in servers:
        cluster.run(*own, "scale", "deployment", server, "--replicas", "1")
    for server in servers:
        cluster.run(
            *own, "wait", f"deployment/{server}", "--for", "condition=Available", "--timeout", "60s"
        )
    claims = {claim["metadata"]["name"]: claim for claim in _list(cluster, *own, "resourceclaims")}
    assert all(CLAIM_ANNOTATION in claim["metadata"]["annotations"] for claim in claims.values())
    return {
        pod["metadata"]["labels"][NAME_LABEL]: _read_numbers(claims[row["resourceClaimName"]])
        for pod in _list(cluster, *own, "pods")
        for row in pod["status"]["resourceClaimStatuses"]
    }


def read_replicas(cluster: NamedCluster, namespace: str) -> dict[str, int]:
    """Return server -> how many pods it is to have."""
    rows = _list(cluster, "--namespace", namespace, "deployments")
    return {row["metadata"]["name"]: row["spec"]["replicas"] for row in rows}


def _list(cluster: NamedCluster, *words: str) -> list[Object]:
    return json.loads(cluster.run("get", *words, "--output", "json"))["items"]


def _read_numbers(claim: Object) -> list[int]:
    results = claim["status"]["allocation"]["devices"]["results"]
    return sorted(int(row["device"].rpartition("-")[2]) for row in results)
