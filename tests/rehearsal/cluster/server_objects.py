"""Objects of a cluster with one node, whose servers claim half of its devices each."""

from __future__ import annotations

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


def build_claim_template() -> dict:
    request = {"name": "devices", "exactly": {"deviceClassName": DRIVER, "count": 8}}
    return {"metadata": {"name": "half"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
