"""A normal end leaves no fence, no instance, no schedule and no lease; the next start needs no
release."""

from __future__ import annotations

from datetime import timedelta

import pytest
from guard_world import GUARDED, Crash

from tandem.errors import ExternalError, InputError
from tandem.guard.apply import run_reaper_pass
from tandem.guard.fence import FENCE_KEY
from tandem.guard.fleet_changes import EMPTY_OBSERVATIONS
from tandem.guard.lease import POINTER_KEY, lease_key
from tandem.guard.normal_end import end_lease
from tandem.guard.observe import OWNER_TAG


@pytest.fixture
def end(world):
    """End a lease as an operator does, with the reaper at work; every pause passes in the world."""

    def act(run=None, *, reaper=True, say=lambda _: None):
        def rest(pause: timedelta) -> None:
            before = world.now
            world.advance(pause.total_seconds() / 60)
            if reaper and before.minute // 5 != world.now.minute // 5:
                run_reaper_pass(world.clients, GUARDED, world.now)

        return end_lease(
            world.clients, GUARDED, run=run, clock=lambda: world.now, wait=rest, log=say
        )

    return act


def test_an_end_leaves_nothing(world, start, end):
    start("r1", nodes=2)
    world.advance(20)
    end()
    assert (
        world.alive,
        world.schedules,
        world.read(POINTER_KEY)["run"],
        world.read(FENCE_KEY),
    ) == ([], {}, None, None)


def test_the_next_start_needs_no_release(start, end):
    start("r1")
    end()
    assert start("r2").lease.run == "r2"


def test_the_reaper_does_not_fence_after_an_end(world, start, end, passes):
    start("r1")
    end()
    passes(120)
    assert world.read(FENCE_KEY) is None


def test_the_lease_says_that_it_ends_before_the_fleet_is_sized(world, start, end):
    start("r1")
    states = []
    world.between = lambda operation: states.append(
        (operation, world.read(lease_key("r1"))["ending"])
    )
    end()

    assert [
        ending for operation, ending in states if operation == "eks.update_nodegroup_config"
    ] != [None]


def test_an_end_looks_twice_before_it_removes_the_stop(world, start, end):
    start("r1")
    world.want(0)
    world.advance(10)
    looks = []

    def between(operation):
        if operation == "ec2.describe_instances":
            looks.append(len(world.schedules))

    world.between = between
    end(reaper=False)

    assert looks[1:] == [1] * EMPTY_OBSERVATIONS  # the first look is for the lease


def test_an_end_waits_while_ec2_cannot_be_asked(world, start, end):
    start("r1")
    world.down = {"ec2"}

    with pytest.raises(ExternalError, match="the fleet is not known to be gone: instances unknown"):
        end(reaper=False)
    assert "stop-r1" in world.schedules


def test_an_end_waits_for_size_0_of_a_group_without_the_tag(world, start, end):
    start("r1")
    world.group["tags"] = {}  # its instances carry it

    def raise_behind(line):
        if line.endswith("is gone"):
            world.no_capacity = True
            world.want(2)

    with pytest.raises(ExternalError, match="the node group wants 2"):
        end(reaper=False, say=raise_behind)
    assert "stop-r1" in world.schedules
    assert world.read(POINTER_KEY)["run"] == "r1"


def test_an_end_of_another_run_is_refused(start, end):
    start("r1")
    with pytest.raises(InputError, match="run r1 of anna has the lease, not run r2"):
        end("r2")


def test_an_end_without_a_lease_is_refused(end):
    with pytest.raises(InputError, match="there is no lease, so nothing to end"):
        end()


def test_an_end_behind_a_fence_is_refused(start, halt, end):
    start("r1")
    halt("enough")
    with pytest.raises(InputError, match="anna fenced it: enough"):
        end()


def test_a_stop_during_an_end_has_the_last_word(world, start, halt, end):
    start("r1")

    world.interrupt(lambda: halt("enough"), "eks.update_nodegroup_config")
    with pytest.raises(ExternalError, match="the end was interrupted: anna fenced it: enough"):
        end(reaper=False)
    assert "stop-r1" in world.schedules


@pytest.mark.parametrize("calls", range(1, 28))
def test_an_end_that_dies_anywhere_is_finished_by_the_next(world, start, end, calls):
    start("r1", hours=8)
    world.dies_after = calls
    with pytest.raises(Crash):
        end(reaper=False)
    world.dies_after = None
    try:
        end()
    except InputError as refusal:
        assert "there is no lease" in str(refusal)  # noqa: PT017 - it died behind its last write

    assert (world.alive, world.schedules, world.read(FENCE_KEY)) == ([], {}, None)


def test_the_reaper_leaves_an_ending_lease_alone_for_30_minutes(world, start, passes):
    start("r1", hours=8)
    world.change(lease_key("r1"), ending=world.now.isoformat())
    world.want(0)
    assert passes(25).plan.reasons == ()

    why = passes(5).plan.reasons[0]
    assert "run r1 has been ending since 2026-11-21T08:00:00Z and is not gone" in why


def test_the_reaper_ends_a_fleet_whose_end_died_long_before_the_deadline(world, start, passes):
    start("r1", hours=8)
    world.change(lease_key("r1"), ending=world.now.isoformat())
    passes(45)
    assert world.alive == []


def test_an_end_of_a_fleet_whose_node_group_is_gone_comes_to_its_end(world, start, end):
    start("r1")
    world.group = None
    world.machines.clear()
    assert end(reaper=False) == "r1"


def test_an_end_leaves_a_strangers_node_group(world, start, end):
    start("r1")
    world.group["tags"] = {"made-by": "another tool"}
    for machine in world.machines:
        machine.tags.pop(OWNER_TAG)

    with pytest.raises(InputError, match="it belongs to another run, so it is left alone"):
        end(reaper=False)
    assert len(world.alive) == 1


def test_an_ending_lease_covers_no_node_too_many(world, start, passes):
    start("r1", hours=8, nodes=1)
    world.change(lease_key("r1"), ending=world.now.isoformat())
    world.want(2)
    assert "is for 1" in passes(0).plan.reasons[0]


def test_an_end_that_lies_in_the_future_is_none(world, start, passes):
    start("r1", hours=0.25)
    world.fires = False
    world.change(lease_key("r1"), ending="2030-01-01T00:00:00Z")
    assert passes(15).plan.reasons != ()


def test_a_start_of_an_ending_lease_is_refused(world, start):
    start("r1", hours=8)
    world.change(lease_key("r1"), ending=world.now.isoformat())
    with pytest.raises(InputError, match="run r1 of anna has been ending since"):
        start("r1", hours=8)
