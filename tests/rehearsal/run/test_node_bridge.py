"""Nodes and devices of a rehearsed cluster follow the instances that EC2 lists."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from rehearsal.run.node_bridge import DRIVER_WATCH_S, read_registered_taints
from rehearsal.run.settings import LIVE_TIMING
from stacks.fleet import USER_DATA

NEURON = "aws.amazon.com/neuron"
STARTUP = "s3.csi.aws.com/agent-not-ready"
GROUP_8 = "resource.aws.com/devicegroup8_id"


def test_an_instance_that_runs_is_a_node_with_its_groups_labels(small, instance):
    small.bridge.write_nodes([instance()])
    (node,) = small.nodes()
    labels = node["metadata"]["labels"]
    assert (
        labels.items()
        >= {
            "workload": "neuron-inference",
            "eks.amazonaws.com/nodegroup": "trn2",
            "node.kubernetes.io/instance-type": "trn2.48xlarge",
        }.items()
    )
    assert node["status"]["allocatable"]["cpu"] == "191450m"


def list_taints(small) -> list[str]:
    return [taint["key"] for taint in small.nodes()[0]["spec"]["taints"]]


def test_a_kubelet_registers_the_taints_of_the_fleets_user_data(small, instance):
    taints = read_registered_taints(base64.b64encode(USER_DATA.encode()).decode())
    small.bridge.write_nodes([replace(instance(), registered_taints=taints)])
    assert small.nodes()[0]["spec"]["taints"] == [
        {"key": "aws.amazon.com/neuron", "value": "present", "effect": "NoSchedule"},
        {"key": "s3.csi.aws.com/agent-not-ready", "effect": "NoExecute"},
    ]


def test_a_driver_that_works_removes_the_startup_taint(small, instance):
    taints = []
    for _ in range(3):
        small.bridge.write_nodes([instance()])
        taints.append(list_taints(small))
        small.wait(30)
    assert taints == [[NEURON, STARTUP], [NEURON], [NEURON]]


def test_a_relabel_leaves_the_pods_of_a_node_that_registered_its_startup_taint(small, instance):
    assert count_pods_after_relabel(small, instance) == 1


def test_a_relabel_evicts_the_pods_where_the_group_has_the_startup_taint(small, instance):
    taint = {"key": STARTUP, "effect": "NO_EXECUTE"}
    assert count_pods_after_relabel(small, instance, taint) == 0


def count_pods_after_relabel(small, instance, *taints) -> int:
    """Return how many pods live on a node that is older than its driver's watch, after a change of
    its labels."""
    compiling = replace(instance(c="1"), taints=taints)
    serving = replace(instance(s="1"), taints=taints)
    for _ in range(3):
        small.bridge.write_nodes([compiling])
    add_pod(small)
    small.wait(DRIVER_WATCH_S)
    small.bridge.write_nodes([serving])
    small.cluster.settle()
    return sum(
        "deletionTimestamp" not in pod["metadata"] for pod in small.store.list_objects("pods")
    )


def test_a_node_has_sixteen_devices_in_two_halves(small, instance):
    small.bridge.write_nodes([instance()])
    halves = [device["attributes"][GROUP_8]["string"] for device in small.devices()]
    assert [device["attributes"]["deviceId"]["int"] for device in small.devices()] == list(
        range(16)
    )
    assert (len(set(halves[:8])), len(set(halves[8:])), len(set(halves))) == (1, 1, 2)


def start_pod(small, instance) -> None:
    """Start a pod on a node that has lost its startup taint."""
    for _ in range(2):
        small.bridge.write_nodes([instance()])
    add_pod(small)


def add_pod(small) -> None:
    pod = {
        "metadata": {"name": "pod"},
        "spec": {"nodeName": "ip-10-0-0-1", "containers": [{"name": "main"}]},
    }
    small.store.create_object("pods", "post", pod)
    small.cluster.settle()


def test_node_of_an_instance_that_shuts_down_is_drained(small, instance):
    start_pod(small, instance)
    small.bridge.write_nodes([instance("shutting-down")])
    (node,) = small.nodes()
    (pod,) = small.store.list_objects("pods")
    assert (node["spec"]["unschedulable"], "deletionTimestamp" in pod["metadata"]) == (True, True)
    assert small.cluster.has_kubelet("ip-10-0-0-1")


@pytest.mark.parametrize("rows", [["terminated"], []], ids=["terminated", "unlisted"])
def test_node_of_an_ended_instance_stays_until_its_grace_is_over(small, instance, rows):
    small.bridge.write_nodes([instance()])
    small.bridge.write_nodes([instance(state) for state in rows])
    small.cluster.settle()
    assert (len(small.nodes()), len(small.devices())) == (1, 16)
    small.wait(LIVE_TIMING.node_grace_s + LIVE_TIMING.cloud_look_s)
    small.cluster.settle()
    assert (small.nodes(), small.devices()) == ([], [])


def test_node_lost_without_notice_is_not_drained(small, instance):
    start_pod(small, instance)
    small.cluster.lose_node("ip-10-0-0-1")
    small.bridge.write_nodes([instance("terminated")])
    small.cluster.settle()
    (pod,) = small.store.list_objects("pods")
    assert (pod["status"]["phase"], "deletionTimestamp" in pod["metadata"]) == ("Running", False)


def test_paid_time_is_of_accelerators_from_launch_to_end(small, instance):
    rows = [instance("pending"), replace(instance(type="m7i.xlarge", name="ip-10-0-0-2"), id="i-2")]
    small.bridge.write_nodes(rows)
    small.wait(90)
    small.bridge.write_nodes(rows)
    small.wait(60)
    small.bridge.write_nodes([instance("shutting-down")])
    assert small.bridge.count_node_s() == pytest.approx(90)
