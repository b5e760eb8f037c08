"""Pods of other people: a Pod, a Deployment, a Job and a DaemonSet in namespaces that are not
Tandem's.

Invariant: each object has the label of this tool, runs on played nodes alone, and is deleted before
the call ends.
"""

from __future__ import annotations

import json
import time
from typing import Any

from api_store import LABEL, MADE
from named_cluster import NamedCluster, Object

UNDECLARED = "tandem-undeclared"  # a namespace named as an experiment's, of which no manifest knows
PLACES = ("default", "kube-system", UNDECLARED)
OWN = f"{LABEL}={MADE}"
MAKERS = ("Pod", "Deployment", "Job", "DaemonSet")
START_S = 60.0


def run_foreign_pods(cluster: NamedCluster) -> int:
    """Make one object of each kind in each place, wait until their pods run, delete them; return
    the number of pods.

    Raises:
        AssertionError: an object is refused, or a pod does not come.
    """
    bodies = [_build_maker(kind, place) for place in PLACES for kind in MAKERS]
    try:
        cluster.run("create", bodies=bodies)
        return _wait_for_pods(cluster)
    finally:
        delete_foreign_pods(cluster)


def delete_foreign_pods(cluster: NamedCluster) -> None:
    """Delete all objects of foreign pods, and wait until they are gone."""
    options = ("--all-namespaces", "--selector", OWN, "--wait", "--timeout", "60s")
    cluster.run("delete", ",".join(MAKERS), *options)


def _wait_for_pods(cluster: NamedCluster) -> int:
    """Wait until every maker of every place has a running pod."""
    wanted_values = {(place, kind) for place in PLACES for kind in MAKERS}
    end_s = time.monotonic() + START_S
    running = set[tuple[str, str]]()
    while time.monotonic() < end_s:
        pods = json.loads(
            cluster.run("get", "pods", "--all-namespaces", "--selector", OWN, "--output", "json")
        )["items"]
        metadata = [pod["metadata"] for pod in pods if pod["status"].get("phase") == "Running"]
        running = {(row["namespace"], row["labels"]["maker"]) for row in metadata}
        if running == wanted_values:
            return len(pods)
        time.sleep(0.5)
    raise AssertionError(f"no running pod after {START_S:g} s of {sorted(wanted_values - running)}")


def _build_maker(kind: str, namespace: str) -> Object:
    labels = {LABEL: MADE, "maker": kind}
    metadata = {"name": f"conform-{kind.lower()}", "namespace": namespace, "labels": labels}
    container = {"name": "main", "image": "registry.example.com/none:1"}
    spec: Object = {"nodeSelector": {LABEL: MADE}, "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    selector = {"matchLabels": labels}
    forms: dict[str, tuple[str, Any]] = {
        "Pod": ("v1", spec),
        "Deployment": ("apps/v1", {"selector": selector, "template": template}),
        "Job": ("batch/v1", {"template": template | {"spec": spec | {"restartPolicy": "Never"}}}),
        "DaemonSet": ("apps/v1", {"selector": selector, "template": template}),
    }
    api, body = forms[kind]
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": body}
