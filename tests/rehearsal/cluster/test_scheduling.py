"""Pods get the nodes, and claims the devices, that their specs allow."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from server_objects import DRIVER, GROUP, add_node, add_slice

from rehearsal.cluster.claims import sync_claims
from rehearsal.cluster.scheduling import schedule_pods
from rehearsal.cluster.store import ObjectStore

START = datetime(2026, 11, 24, 12, tzinfo=UTC)


@pytest.fixture
def store():
    return ObjectStore(lambda: START)


def add_pod(store, name, **spec):
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    body = {"metadata": {"name": name}, "spec": {"containers": containers} | spec}
    return store.create_object("pods", "post", body)


def add_claiming_pod(store, name, count, *, constraints=(), selectors=()):
    exactly = {
        "deviceClassName": DRIVER,
        "count": count,
        "selectors": [{"cel": {"expression": e}} for e in selectors],
    }
    devices = {
        "requests": [{"name": "chips", "exactly": exactly}],
        "constraints": list(constraints),
    }
    template = {"metadata": {"name": name}, "spec": {"spec": {"devices": devices}}}
    store.create_object("resourceclaimtemplates", "post", template)
    return add_pod(
        store, name, resourceClaims=[{"name": "neuron", "resourceClaimTemplateName": name}]
    )


def schedule(store):
    """Let the pods have their claims, and place them."""
    sync_claims(store)
    schedule_pods(store)


def find_node(store, name="one"):
    schedule(store)
    return store.get_object("pods", "post", name)["spec"].get("nodeName")


def list_devices(store, name):
    """Return the devices of a pod's claim, by number."""
    pod = store.get_object("pods", "post", name)
    claim = store.get_object(
        "resourceclaims", "post", pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    )
    return [
        int(row["device"].split("-")[1])
        for row in claim["status"]["allocation"]["devices"]["results"]
    ]


def read_refusal(store, name="one"):
    schedule(store)
    return store.get_object("pods", "post", name)["status"]["conditions"][0]


def test_pods_in_one_pass_share_what_is_left(store):
    add_node(store, "a", cpu="1500m")
    add_pod(store, "one")
    add_pod(store, "two")
    assert (find_node(store, "one"), find_node(store, "two")) == ("a", None)


def test_a_pod_gets_the_fullest_node(store):
    for name in "abc":
        add_node(store, name)
    add_pod(store, "first", nodeSelector={"kubernetes.io/hostname": "b"})
    schedule(store)
    add_pod(store, "one")
    assert find_node(store) == "b"


@pytest.mark.parametrize(
    ("init_cpus", "node"), [(["3", "1"], None), (["2", "2"], "a")], ids=["larger", "within"]
)
def test_init_containers_ask_for_the_largest(store, init_cpus, node):
    add_node(store, "a", cpu="2")
    boxes = [{"name": cpu, "resources": {"limits": {"cpu": cpu}}} for cpu in init_cpus]
    add_pod(store, "one", initContainers=boxes)
    assert find_node(store) == node


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ({"ready": "Unknown"}, "1 node(s) were not ready"),
        ({"unschedulable": True}, "1 node(s) were unschedulable"),
        ({"cpu": "500m"}, "1 Insufficient cpu"),
        (
            {"taints": [{"key": "held", "value": "x", "effect": "NoSchedule"}]},
            "1 node(s) had untolerated taint(s).",
        ),
    ],
)
def test_a_node_that_does_not_fit_is_named(store, node, reason):
    add_node(store, "a", **node)
    add_pod(store, "one")
    condition = read_refusal(store)
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"].startswith("0/1 nodes are available: ")
    assert reason in condition["message"]


@pytest.mark.parametrize(
    ("toleration", "node"),
    [
        ({"operator": "Exists"}, "a"),
        ({"operator": "Exists", "key": "other"}, None),
        ({"key": "held", "value": "x", "effect": "NoSchedule"}, "a"),
        ({"key": "held", "value": "y"}, None),
        ({"key": "held", "value": "x", "effect": "NoExecute"}, None),
    ],
)
def test_a_toleration_covers_its_taint(store, toleration, node):
    add_node(store, "a", taints=[{"key": "held", "value": "x", "effect": "NoSchedule"}])
    add_pod(store, "one", tolerations=[toleration])
    assert find_node(store) == node


def test_a_pod_with_node_affinity_is_never_placed(store):
    add_node(store, "a")
    add_pod(store, "one", affinity={"nodeAffinity": {}})
    assert find_node(store) is None


def test_no_device_is_given_twice(store):
    add_node(store, "a")
    add_slice(store, "a", 4)
    for name in ("one", "two", "three"):
        add_claiming_pod(store, name, 2)
        schedule(store)
    assert (list_devices(store, "one"), list_devices(store, "two")) == ([0, 1], [2, 3])
    assert "1 cannot allocate all claims" in read_refusal(store, "three")["message"]


def test_an_ended_pod_gives_its_devices_back(store):
    add_node(store, "a")
    add_slice(store, "a", 2)
    add_claiming_pod(store, "one", 2)
    schedule(store)
    store.patch_object(
        "pods", "post", "one", {"status": {"phase": "Succeeded"}}, subresource="status"
    )
    add_claiming_pod(store, "two", 2)
    assert find_node(store, "two") == "a"


@pytest.mark.parametrize("names", [{"requests": ["chips"]}, {}], ids=["named", "all"])
def test_constrained_devices_share_the_attribute(store, names):
    add_node(store, "a")
    add_slice(store, "a", 8)
    add_claiming_pod(store, "small", 1)
    schedule(store)
    add_claiming_pod(store, "one", 4, constraints=[{"matchAttribute": GROUP, **names}])
    schedule(store)
    assert list_devices(store, "one") == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("expression", "node"),
    [
        ('device.attributes["neuron.aws.com"].kind == "trn2"', "a"),
        ("device.attributes['neuron.aws.com'].kind == 'trn3'", None),
        ('device.attributes["resource.aws.com"].devicegroup4_id == 0', "a"),
        ('device.attributes["neuron.aws.com"].kind.startsWith("trn")', None),
    ],
)
def test_only_a_plain_equality_selects_devices(store, expression, node):
    add_node(store, "a")
    add_slice(store, "a", 4)
    add_claiming_pod(store, "one", 2, selectors=[expression])
    assert find_node(store) == node
