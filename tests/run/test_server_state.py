"""The state of a run's servers: late, drained and lost ones are waited for, and what differs is
named where it does."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from virtual_world import (
    BASELINE,
    FULL_BUCKET,
    LOOK_S,
    VARIANT,
    VirtualWorld,
)

from tandem.run.server_state import NODE_GONE, spell_difference

CONFIG = {"model": "/mnt/models/" + "x" * 200, "num_speculative_tokens": 7}
ARGUMENTS = ("--port", "8000", json.dumps(CONFIG))


def reach(step, look_s=LOOK_S, **fields):
    """Return a world in which the run has begun a step; `check` is about to begin."""
    name, states = ("ready", {"done"}) if step == "check" else (step, {"running", "done"})
    world = VirtualWorld(stored=FULL_BUCKET, look_s=look_s)
    world.ask(**fields)
    world.live(
        until=lambda seen: any(row[0] == name and row[1] in states for row in seen.list_steps())
    )
    return world


def hold_judged(world):
    """Hold that the run is judged at last, at zero instances."""
    record = world.live()
    assert (record["state"], record["reason"]) == ("judged", "")
    assert world.is_empty


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
    hold_judged(world)


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
    hold_judged(world)


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
    hold_judged(world)


@pytest.mark.parametrize("step", ["serve", "round-00001"])
def test_late_claim_is_waited_for(step):
    world = reach(step)
    world.cluster.timing = replace(world.cluster.timing, claim_s=200, allocation_s=200)
    world.delete_server(VARIANT)
    hold_judged(world)


def test_each_server_has_ten_minutes_for_its_devices():
    world = reach("serve")
    world.cluster.timing = replace(world.cluster.timing, claim_s=240, allocation_s=240)
    world.delete_server(BASELINE)
    for _ in range(2 * 12):
        world.look()
    assert world.find_step("serve")[1] == "running"
    hold_judged(world)


@pytest.mark.parametrize("skip", range(0, 48, 12))
def test_server_that_goes_between_two_calls_is_waited_for(skip):
    world = reach("check")

    def delete():
        world.delete_server(VARIANT)
        world.settle()

    world.account.interrupt(delete, "kubernetes.list", skip=skip)
    hold_judged(world)


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
    hold_judged(world)


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


def test_edited_end_of_a_long_argument_is_shown():
    arguments = json.dumps(CONFIG | {"num_speculative_tokens": 5})
    text = spell_difference((*ARGUMENTS[:-1], arguments), ARGUMENTS)
    assert (
        text
        == r'..., \"num_speculative_tokens\": 5}"] runs, ..., \"num_speculative_tokens\": 7}"] is'
        r" declared"
    )


def test_appended_argument_is_shown_alone():
    assert (
        spell_difference((*ARGUMENTS, "--eager"), ARGUMENTS) == '["--eager"] runs, [] is declared'
    )
