"""The account in memory does what its other tests rest on, and refuses what AWS refuses."""

from __future__ import annotations

import pytest
from botocore.exceptions import EndpointConnectionError
from guard_world import GUARDED, World

from tandem.guard.bucket import write_object

ONE = {"minSize": 0, "desiredSize": 1}
EVENT = {
    "GroupName": "tandem-home",
    "Name": "stop-r1",
    "ScheduleExpression": "at(2026-11-21T09:00:00)",
    "Target": {
        "Input": (
            '{"ClusterName": "tandem-home", "NodegroupName": "home-trn2", "ScalingConfig":'
            ' {"MinSize": 0, "DesiredSize": 0}}'
        )
    },
}


def states(world: World) -> list[str]:
    return [machine.state for machine in world.machines]


def test_a_schedule_fires_once_at_its_time_and_is_gone(world):
    world.clients.scheduler.create_schedule(**EVENT)
    world.size(ONE)
    world.advance(59)
    before = len(world.alive)
    world.advance(2)

    assert (before, world.fired_names, world.schedules, states(world)) == (
        1,
        ["stop-r1"],
        {},
        ["shutting-down"],
    )


def test_a_lost_answer_is_that_of_a_call_that_was_done(world):
    world.loses = 1
    with pytest.raises(EndpointConnectionError):
        write_object(world.clients, GUARDED, "stop.json", {}, etag="")
    assert world.read("stop.json") == {"schema": 1}


def test_a_write_on_a_condition_that_does_not_hold_is_refused(world):
    first = write_object(world.clients, GUARDED, "stop.json", {"is": 1}, etag="")

    assert write_object(world.clients, GUARDED, "stop.json", {"is": 2}, etag="") is None
    assert write_object(world.clients, GUARDED, "stop.json", {"is": 3}, etag=first)
    assert write_object(world.clients, GUARDED, "stop.json", {"is": 4}, etag=first) is None
    assert world.read("stop.json") == {"schema": 1, "is": 3}


def test_a_write_over_an_object_that_is_gone_is_refused(world):
    assert write_object(world.clients, GUARDED, "stop.json", {}, etag='"1"') is None
