"""Nodes, their devices, and servers that claim half of a node's devices each."""

from __future__ import annotations

DRIVER = "neuron.aws.com"
GROUP = "resource.aws.com/devicegroup4_id"


def add_node(store, name="node", *, cpu="64", ready="True", **spec) -> dict:
    """Add a node of 64 GiB."""
    allocatable = {"cpu": cpu, "memory": "64Gi", "aws.amazon.com/neuron": "16"}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return store.create_object("nodes", "", {"metadata": metadata, "spec": spec, "status": status})


def add_slice(store, node, count, **metadata) -> None:
    """List so many devices of a node, each four of which are a group."""
    devices = [
        {
            "name": f"neuron-{index}",
            "attributes": {GROUP: {"int": index // 4}, "kind": {"string": "trn2"}},
        }
        for index in range(count)
    ]
    spec = {"driver": DRIVER, "pool": {"name": node}, "nodeName": node, "devices": devices}
    store.create_object(
        "resourceslices", "", {"metadata": {"name": node, **metadata}, "spec": spec}
    )


def add_server(store, replicas) -> None:
    """Add a node of 16 devices and the Deployment `plain`, whose pods claim eight each."""
    add_node(store)
    add_slice(store, "node", 16)
    request = {"name": "devices", "exactly": {"deviceClassName": DRIVER, "count": 8}}
    template = {
        "metadata": {"name": "half"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    store.create_object("resourceclaimtemplates", "post", template)
    labels = {"app": "plain"}
    pod = {
        "containers": [{"name": "server", "resources": {"claims": [{"name": "neuron"}]}}],
        "resourceClaims": [{"name": "neuron", "resourceClaimTemplateName": "half"}],
    }
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    store.create_object("deployments", "post", {"metadata": {"name": "plain"}, "spec": spec})
