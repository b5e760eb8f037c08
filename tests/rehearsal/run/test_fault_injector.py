"""Faults that have a moment: they come once, when a pod of a component runs."""

from __future__ import annotations

import time

import pytest
from server_objects import add_node, add_slice
from test_claim_times import look, start_server
from test_process_pods import SLEEP, LiveCluster

from rehearsal.run.fault_injector import FaultInjector
from rehearsal.run.settings import RehearsalSettings, RunFaults

LABELS = {"app.kubernetes.io/component": "bench", "app.kubernetes.io/name": "tandem-judge"}


class Injected:
    """A live cluster with one Deployment and one pod of the bench, and what was terminated."""

    def __init__(self, folder) -> None:
        self.live = LiveCluster(folder)
        self.terminated = []
        self.down_s = []
        self.api_faults = []
        template = {
            "metadata": {"labels": {"app": "arm"}},
            "spec": {"containers": [{"name": "vllm", "args": ["--a", "b"]}]},
        }
        self.live.store.create_object(
            "deployments",
            "post",
            {
                "metadata": {"name": "arm"},
                "spec": {"replicas": 1, "template": template, "selector": {}},
            },
        )
        # of another experiment
        body = {"metadata": {"name": "arm"}, "spec": {"template": template, "selector": {}}}
        self.live.store.create_object("deployments", "other", body)
        self.injector = FaultInjector(
            store=self.live.store,
            pods=self.live.pods,
            api_faults=self.api_faults,
            faults=RunFaults(),
            drain_node=self.live.cluster.drain_node,
            terminate_instances=lambda: self.terminated.append(True),
            restart_endpoint=self.down_s.append,
        )

    def reach(self, **faults) -> None:
        """Let the moment come for these faults."""
        self.injector.expect(RunFaults(**faults))
        self.injector.act_if_due()
        assert not self.injector.is_done
        self.live.start(SLEEP, labels=LABELS)
        self.live.until(
            lambda row: (
                row.get("phase") == "Running" and "running" in row["containerStatuses"][0]["state"]
            )
        )
        self.injector.act_if_due()

    @property
    def deployment(self):
        return self.live.store.get_object("deployments", "post", "arm")


@pytest.fixture
def world(tmp_path):
    world = Injected(tmp_path)
    yield world
    world.live.pods.close()


def test_fault_a_second_replica(world):
    world.reach(second_replica="arm")
    assert world.deployment["spec"]["replicas"] == 2


def test_fault_an_argument_is_edited(world):
    world.reach(edited_server="arm")
    assert world.deployment["spec"]["template"]["spec"]["containers"][0]["args"] == ["--a", "b "]


@pytest.mark.parametrize("label", ["bench", "tandem-judge"])
def test_fault_a_component_or_a_name_is_killed_once(world, label):
    world.reach(killed_component=label, moment=label)
    status = world.live.until(lambda row: row["phase"] == "Failed")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    world.injector.act_if_due()
    assert world.injector.killed_pods == 1


def test_fault_the_node_is_lost(world):
    world.reach(is_node_lost=True)
    world.injector.act_if_due()
    assert world.terminated == [True]


def list_cordoned(world) -> list[str]:
    nodes = world.live.store.list_objects("nodes")
    return [node["metadata"]["name"] for node in nodes if node.get("spec", {}).get("unschedulable")]


def test_fault_drains_the_nodes_with_devices(world):
    add_node(world.live.store, "trn2")
    add_slice(world.live.store, "trn2", 16)
    add_node(world.live.store, "system")
    box = {"name": "main", "args": ["-c", SLEEP]}
    body = {"metadata": {"name": "server"}, "spec": {"nodeName": "trn2", "containers": [box]}}
    world.live.store.create_object("pods", "post", body)
    world.reach(is_node_drained=True, uncordon_s=0)
    world.injector.act_if_due()
    assert list_cordoned(world) == ["trn2"]
    assert "deletionTimestamp" in world.live.store.get_object("pods", "post", "server")["metadata"]


def test_drained_node_takes_pods_again_after_its_seconds(world):
    add_node(world.live.store, "trn2")
    add_slice(world.live.store, "trn2", 16)
    world.reach(is_node_drained=True, uncordon_s=0.2)
    assert list_cordoned(world) == ["trn2"]
    time.sleep(0.3)
    world.injector.act_if_due()
    assert list_cordoned(world) == []


@pytest.mark.parametrize("late_claim_s", [0.0, 20.0])
def test_fault_allocates_a_claim_late(late_claim_s):
    faults = RunFaults(late_claim_s=late_claim_s)
    settings = RehearsalSettings(environment="e", experiment="x", faults=faults)
    cluster = start_server(settings.choose_timing())
    cluster.advance(15)
    assert look(cluster) == (True, not late_claim_s, not late_claim_s)


def test_fault_the_endpoint_is_down(world):
    world.reach(endpoint_down_s=3)
    assert world.down_s == [3]


@pytest.mark.parametrize("status", [503, 410])
def test_fault_the_api_answers_otherwise(world, status):
    world.reach(api_status=status, api_calls=3)
    (fault,) = world.api_faults
    assert (fault.status, fault.calls) == (status, 3)


def test_a_fault_waits_for_its_seconds(world):
    world.reach(is_node_lost=True, moment_s=60)
    assert world.terminated == []


def test_without_a_fault_nothing_happens(world):
    world.reach()
    done = (world.terminated, world.down_s, world.api_faults)
    assert (done, world.deployment["spec"]["replicas"]) == (([], [], []), 1)
