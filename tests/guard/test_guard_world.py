"""Every knob of the account in memory has an effect, and it refuses what AWS refuses."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from guard_world import GUARDED, START, Crash, World

from tandem.guard.apply import scale_to_zero
from tandem.guard.bucket import read_object, write_object

ONE = {"minSize": 0, "desiredSize": 1}
ZERO = {"minSize": 0, "desiredSize": 0}
EVENT = {"GroupName": "tandem-home", "Name": "stop-r1", "ScheduleExpression": "at(2026-11-21T09:00:00)", "Target": {
    "Input": '{"ClusterName": "tandem-home", "NodegroupName": "home-trn2", "ScalingConfig": {"MinSize": 0, '
             '"DesiredSize": 0}}'}}  # fmt: skip


def states(world: World) -> list[str]:
    return [one.state for one in world.machines]


def test_an_instance_is_pending_then_runs(world):
    world.size(ONE)
    before = states(world)
    world.advance(2)
    assert (before, states(world)) == (["pending"], ["running"])


def test_an_instance_shuts_down_then_is_terminated(world):
    world.size(ONE)
    world.size(ZERO)
    before = states(world)
    world.advance(2)

    assert (before, states(world), world.alive) == (["shutting-down"], ["terminated"], [])


@pytest.mark.parametrize(("knob", "state"), [("start_s", "pending"), ("stop_s", "shutting-down")])
def test_a_slow_account_takes_longer(world, knob, state):
    setattr(world, knob, 900)
    world.size(ONE)
    if knob == "stop_s":
        world.size(ZERO)
    world.advance(10)

    assert states(world) == [state]


def test_a_group_that_ignores_changes_no_size(world):
    world.ignores = True
    world.size(ONE)
    assert (world.alive, world.group["scalingConfig"]["desiredSize"]) == ([], 0)


def test_a_group_that_keeps_ends_nobody_but_by_id(world):
    world.keeps = True
    world.size(ONE)
    world.size(ZERO)
    kept = states(world)
    world.clients.ec2.terminate_instances(InstanceIds=[world.machines[0].id])

    assert (kept, states(world)) == (["pending"], ["shutting-down"])


def test_nothing_ends_an_immortal_instance(world):
    world.immortal = True
    world.size(ONE)
    world.size(ZERO)
    world.clients.ec2.terminate_instances(InstanceIds=[world.machines[0].id])

    assert states(world) == ["pending"]


def test_no_instance_starts_without_capacity(world):
    world.no_capacity = True
    world.size(ONE)
    assert world.machines == []


def test_what_is_missing_is_started_again(world):
    world.size(ONE)
    world.clients.ec2.terminate_instances(InstanceIds=[world.machines[0].id])
    world.advance(6)
    assert states(world) == ["terminated", "running"]


def test_a_schedule_fires_once_at_its_time_and_is_gone(world):
    world.clients.scheduler.create_schedule(**EVENT)
    world.size(ONE)
    world.advance(59)
    before = len(world.alive)
    world.advance(2)

    assert (before, world.fired, world.schedules, states(world)) == (1, ["stop-r1"], {}, ["shutting-down"])


def test_a_scheduler_that_does_not_fire_changes_nothing(world):
    world.fires = False
    world.clients.scheduler.create_schedule(**EVENT)
    world.size(ONE)
    world.advance(120)

    assert (states(world), world.fired) == (["running"], [])


@pytest.mark.parametrize("what", ["eks", "eks.update_nodegroup_config"])
def test_what_is_down_cannot_be_reached(world, what):
    world.down = {what}
    with pytest.raises(EndpointConnectionError):
        scale_to_zero(world.clients, GUARDED)


def test_an_answer_that_is_refused_is_the_next_one_only(world):
    world.refuses = {"eks.update_nodegroup_config": ["ThrottlingException", ""]}
    with pytest.raises(ClientError, match="ThrottlingException"):
        scale_to_zero(world.clients, GUARDED)
    scale_to_zero(world.clients, GUARDED)


def test_odds_throttle_calls(world):
    world.odds = {"*": 1}
    with pytest.raises(ClientError, match="ThrottlingException"):
        scale_to_zero(world.clients, GUARDED)


def test_a_lost_answer_is_that_of_a_call_that_was_done(world):
    world.loses = 1
    with pytest.raises(EndpointConnectionError):
        write_object(world.clients, GUARDED, "stop.json", {}, etag="")
    assert world.read("stop.json") == {"schema": 1}


def test_a_process_dies_after_its_last_call_is_done(world):
    world.dies_after = 1
    with pytest.raises(Crash):
        write_object(world.clients, GUARDED, "stop.json", {}, etag="")
    assert world.read("stop.json") == {"schema": 1}


def test_others_act_before_a_call(world):
    world.between = lambda operation: world.put("stop.json", operation.encode())
    assert read_object(world.clients, GUARDED, "stop.json").body == b"s3.get_object"


def test_a_write_on_a_condition_that_does_not_hold_is_refused(world):
    first = write_object(world.clients, GUARDED, "stop.json", {"is": 1}, etag="")

    assert write_object(world.clients, GUARDED, "stop.json", {"is": 2}, etag="") is None
    assert write_object(world.clients, GUARDED, "stop.json", {"is": 3}, etag=first)
    assert write_object(world.clients, GUARDED, "stop.json", {"is": 4}, etag=first) is None
    assert world.read("stop.json") == {"schema": 1, "is": 3}


def test_a_write_over_an_object_that_is_gone_is_refused(world):
    assert write_object(world.clients, GUARDED, "stop.json", {}, etag='"1"') is None


def test_sizes_out_of_order_are_refused(world):
    with pytest.raises(ClientError, match="InvalidParameterException"):
        world.size({"minSize": 0, "desiredSize": 3})


def test_the_clock_stands_until_it_is_moved(world):
    assert world.now == START
