"""The state of a run's servers: late, drained and lost ones are waited for, and what differs is
named where it does."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from virtual_world import ARTIFACTS, BASELINE, LOOK_S, MODELS, NAMESPACE, VARIANT, VirtualWorld

from tandem.run.server_state import LEAD_CHARACTERS, NODE_GONE, spell_difference

FULL_BUCKET = frozenset({*MODELS.values(), *ARTIFACTS.values()})
CONFIG = {"model": "/mnt/models/" + "x" * 200, "num_speculative_tokens": 7}
ARGUMENTS = ("--port", "8000", json.dumps(CONFIG))


def reach(step, look_s=LOOK_S, **fields):
    """Return a world in which the run has begun a step; `check` is about to begin."""
    name, states = ("ready", {"done"}) if step == "check" else (step, {"running", "done"})
    world = VirtualWorld(stored=set(FULL_BUCKET), look_s=look_s)
    world.ask(**fields)
    world.live(
        until=lambda seen: any(row[0] == name and row[1] in states for row in seen.list_steps())
    )
    return world


def drain_for(world, minutes):
    """Drain the fleet's nodes, and let them take pods again some minutes later."""
    world.drain()
    for _ in range(2 * minutes):
        world.look()
    world.uncordon()


def read_round(world, number):
    key = next(key for key in world.account.objects if key.endswith(f"-round-{number:05}.json"))
    return world.account.read(key)


@pytest.mark.parametrize("step", ["serve", "round-00001", "restart-2", "llmperf"])
def test_drained_servers_are_waited_for(step):
    world = reach(step, starts=2, llmperf=True)
    drain_for(world, minutes=8)
    record = world.live()
    assert (record["state"], record["reason"], world.is_empty) == ("judged", "", True)


def test_drained_round_is_measured_again():
    world = reach("round-00001")
    world.look()
    world.look()
    drain_for(world, minutes=8)
    world.live()
    result = read_round(world, 1)["result"]
    assert (result["attempt"], len(result["voided"])) == (2, 1)


def test_pending_server_says_why_it_waits():
    world = reach("round-00001")
    world.drain()
    for _ in range(6):
        world.look()
    assert "unschedulable" in world.find_step("round-00001")[2]


@pytest.mark.parametrize("step", ["ready", "check", "round-00000", "restart-2"])
def test_lost_node_is_waited_for(step):
    world = reach(step, starts=2, llmperf=True)
    world.lose_node()
    record = world.live()
    assert (record["state"], record["reason"], world.is_empty) == ("judged", "", True)


def test_measure_jobs_meet_a_node_that_was_just_lost():
    world = reach("round-00001", look_s=5)
    world.lose_node()
    world.live(until=lambda seen: "got no answer" in seen.find_step("round-00001")[2])
    assert (world.live()["state"], read_round(world, 1)["result"]["attempt"]) == ("judged", 2)


def test_silent_node_is_waited_for_until_it_is_replaced():
    world = reach("round-00001")
    replace_node = world.hang_node()
    for _ in range(2 * 20):
        world.look()
    leaving = [pod for pod in world.list_servers() if "deletionTimestamp" in pod["metadata"]]
    assert len(leaving) == 2, "the pods of a silent node stay"
    replace_node()
    assert (world.live()["state"], world.is_empty) == ("judged", True)


@pytest.mark.parametrize("step", ["serve", "round-00001"])
def test_late_claim_is_waited_for(step):
    world = reach(step)
    world.cluster.timing = replace(world.cluster.timing, claim_s=200, allocation_s=200)
    world.delete_server(VARIANT)
    assert (world.live()["state"], world.is_empty) == ("judged", True)


def test_each_server_has_ten_minutes_for_its_devices():
    world = reach("serve")
    world.cluster.timing = replace(world.cluster.timing, claim_s=240, allocation_s=240)
    world.delete_server(BASELINE)
    for _ in range(2 * 12):
        world.look()
    assert world.find_step("serve")[1] == "running"
    assert (world.live()["state"], world.is_empty) == ("judged", True)


@pytest.mark.parametrize("skip", range(0, 48, 12))
def test_server_that_goes_between_two_calls_is_waited_for(skip):
    world = reach("check")

    def delete():
        world.delete_server(VARIANT)
        world.settle()

    world.account.interrupt(delete, "kubernetes.list", skip=skip)
    assert (world.live()["state"], world.is_empty) == ("judged", True)


def take_slices(world):
    """Take the nodes' ResourceSlices away; return what brings them back."""
    slices = copy.deepcopy(world.store.list_objects("resourceslices"))
    for row in slices:
        world.store.remove_object("resourceslices", "", row["metadata"]["name"])
    return lambda: [world.store.create_object("resourceslices", "", row) for row in slices]


@pytest.mark.parametrize("step", ["serve", "check", "round-00001"])
def test_server_whose_devices_no_slice_lists_is_waited_for(step):
    world = reach(step)
    restore = take_slices(world)
    for _ in range(10):
        world.look()
    assert NODE_GONE in world.find_step(step)[2] or step == "serve"
    restore()
    assert (world.live()["state"], world.is_empty) == ("judged", True)


def test_round_without_slices_does_not_count():
    world = reach("round-00001")
    world.look()
    world.look()
    restore = take_slices(world)
    world.look()
    restore()
    world.live()
    result = read_round(world, 1)["result"]
    assert result["attempt"] == 2
    assert NODE_GONE in result["voided"][0]
    assert all(placement.startswith("devices ") for placement in result["placements"].values())


def test_slice_without_device_ids_is_a_fault():
    world = VirtualWorld(stored=set(FULL_BUCKET))
    add_node = world._add_node

    def add_nameless(name):
        add_node(name)
        row = world.store.get_object("resourceslices", "", name)
        for device in row["spec"]["devices"]:
            del device["attributes"]["deviceId"]
        world.store.replace_object("resourceslices", "", name, row)

    world._add_node = add_nameless
    world.ask()
    record = world.live()
    assert (record["state"], "has no deviceId, so their group is unknown" in record["reason"]) == (
        "ended",
        True,
    )


def add_twin(world, name):
    """Create a second pod of a server that no controller owns, on the system node."""
    pod = next(
        pod for pod in world.list_servers(VARIANT) if "deletionTimestamp" not in pod["metadata"]
    )
    labels = {
        key: text for key, text in pod["metadata"]["labels"].items() if key != "pod-template-hash"
    }
    container = {"name": "vllm", "ports": [{"name": "http", "containerPort": 8000}]}
    spec = {"nodeName": "system-1", "containers": [container]}
    world.store.create_object(
        "pods", NAMESPACE, {"metadata": {"name": name, "labels": labels}, "spec": spec}
    )


def test_two_servers_beside_one_that_leaves_void_the_run():
    world = reach("round-00001")
    world.scripts[VARIANT] = world.DEFAULTS[VARIANT].__class__(ready_after_s=60, stop_s=100)
    (pod,) = world.list_servers(VARIANT)
    world.store.delete_object("pods", NAMESPACE, pod["metadata"]["name"])
    world.settle()
    add_twin(world, "stranger")
    record = world.live()
    assert (record["state"], record["reason"].startswith(f"{VARIANT} has 2 pods and ")) == (
        "void",
        True,
    )


def test_endpoint_of_a_leaving_server_is_no_second_one():
    world = reach("round-00001")
    list_now = world.api.list_objects

    def list_late(kind, namespace="", labels=None):
        """List every pod of the server as ready: the endpoint controller is a moment behind."""
        rows = list_now(kind, namespace, labels)
        for row in rows if kind == "endpointslices" else ():
            if row["metadata"]["labels"]["kubernetes.io/service-name"] == BASELINE:
                uids = [pod["metadata"]["uid"] for pod in world.list_servers(BASELINE)]
                row["endpoints"] = [
                    {"conditions": {"ready": True}, "targetRef": {"uid": uid}} for uid in uids
                ]
        return rows

    world.scripts[BASELINE] = world.DEFAULTS[BASELINE].__class__(ready_after_s=60, stop_s=100)
    (pod,) = world.list_servers(BASELINE)
    world.store.delete_object("pods", NAMESPACE, pod["metadata"]["name"])
    world.api.list_objects = list_late
    for _ in range(4):
        world.look()
    world.api.list_objects = list_now
    assert world.live()["state"] == "judged"


def test_slow_server_is_waited_for_at_the_check():
    world = reach("check")
    world.scripts[VARIANT] = world.DEFAULTS[VARIANT].__class__(ready_after_s=50 * 60)
    (pod,) = world.list_servers(VARIANT)
    world.store.delete_object("pods", NAMESPACE, pod["metadata"]["name"], grace_s=0)
    assert world.live()["state"] == "judged"


def test_edited_end_of_a_long_argument_is_shown():
    arguments = json.dumps(CONFIG | {"num_speculative_tokens": 5})
    text = spell_difference((*ARGUMENTS[:-1], arguments), ARGUMENTS)
    assert (
        text
        == r'..., \"num_speculative_tokens\": 5}"] runs, ..., \"num_speculative_tokens\": 7}"] is'
        r" declared"
    )


def test_edited_end_of_a_long_text_is_shown():
    image = "registry.example/" + "folder/" * 30 + "vllm:"
    lead = image[-LEAD_CHARACTERS:]
    assert spell_difference(f"{image}1", f"{image}2") == f"...{lead}1 runs, ...{lead}2 is declared"


def test_variable_that_differs_is_shown_alone():
    variables = {f"NEURON_VARIABLE_{number:02}": "a value" for number in range(20)}
    text = spell_difference(variables | {"NEURON_VARIABLE_19": "another"}, variables)
    assert (
        text
        == '{"NEURON_VARIABLE_19": "another"} runs, {"NEURON_VARIABLE_19": "a value"} is declared'
    )


def test_appended_argument_is_shown_alone():
    assert (
        spell_difference((*ARGUMENTS, "--eager"), ARGUMENTS) == '["--eager"] runs, [] is declared'
    )


def test_long_rest_is_cut():
    text = spell_difference("a" + "b" * 200, "c")
    assert text == f"a{'b' * 119}... runs, c is declared"
