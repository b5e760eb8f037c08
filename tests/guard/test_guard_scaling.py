"""The third lever: where EKS refuses 0 or ignores it, a stop holds the node group's Auto Scaling
group at 0."""

from __future__ import annotations

import pytest
from guard_world import SCALING_GROUP

from tandem.errors import ExternalError, InputError
from tandem.guard.fence import FENCE_KEY
from tandem.guard.observe import OWNER_TAG
from tandem.guard.scaling_groups import read_scaling_groups


@pytest.fixture
def stubborn(world, start, halt):
    """A fleet of two that was stopped, whose EKS takes no size."""
    start("r1", hours=8, nodes=2)
    world.advance(10)
    world.ignores = True
    halt()
    return world


@pytest.fixture
def freed_world(stubborn, passes, lift):
    """The same after the third lever ended it and the fence was released."""
    passes(30)
    stubborn.ignores = False
    passes(10)
    lift()
    return stubborn


def test_the_lever_waits_for_the_grace(stubborn, passes):
    passes(5)
    assert (stubborn.suspended, stubborn.scaling["DesiredCapacity"]) == (set(), 2)


def test_launches_are_suspended_and_the_group_goes_to_0(stubborn, passes):
    passes(15)
    assert (stubborn.suspended, stubborn.scaling) == (
        {"Launch"},
        {"MinSize": 0, "DesiredCapacity": 0},
    )


def test_an_eks_that_says_nothing_is_got_around_by_the_instances_own_tag(
    world, start, halt, passes
):
    start("r1", hours=8, nodes=2)
    world.down = {"eks"}
    halt()
    passes(20)

    assert (world.suspended, world.alive) == ({"Launch"}, [])


def test_a_lever_is_pulled_once(stubborn, passes):
    passes(40)
    assert stubborn.calls["autoscaling.suspend_processes"] == 1


def test_a_lever_that_auto_scaling_refuses_is_said(stubborn, passes):
    stubborn.refuses = {"autoscaling.suspend_processes": ["AccessDenied"]}
    assert any(
        f"holding Auto Scaling group {SCALING_GROUP} at 0 failed: AccessDenied" in failure
        for failure in passes(10).failures
    )


def test_a_fleet_that_eks_ends_needs_no_lever(world, start, halt, passes):
    start("r1", nodes=2)
    halt()
    passes(30)
    assert world.calls["autoscaling.suspend_processes"] == 0


def test_a_start_resumes_what_a_stop_of_ours_suspended_and_forgets_it(freed_world, start):
    start("r2", nodes=1)
    assert (freed_world.suspended, len(freed_world.alive)) == (set(), 1)
    assert freed_world.read(FENCE_KEY)["suspended"] == []


def test_a_start_refuses_where_somebody_else_suspended_launches(world, start):
    world.suspended = {"Launch"}

    with pytest.raises(InputError, match="no stop of Tandem wrote that it did so") as refusal:
        start("r1")
    assert refusal.value.change.endswith(
        f"aws autoscaling resume-processes --auto-scaling-group-name {SCALING_GROUP}"
        " --scaling-processes Launch --region us-east-2"
    )


def test_a_start_raises_nothing_where_launches_cannot_be_resumed(freed_world, start):
    freed_world.refuses = {"autoscaling.resume_processes": ["AccessDenied"]}
    with pytest.raises(ExternalError, match="resuming the launches"):
        start("r2")
    assert freed_world.desired_size == 0


def test_a_new_fence_keeps_what_an_older_one_suspended(freed_world, halt):
    halt("again")
    assert freed_world.read(FENCE_KEY)["suspended"] == [SCALING_GROUP]


def test_a_node_group_without_our_tag_is_sized_by_its_instances_tag(world, start, halt, passes):
    start("r1", hours=8, nodes=2)
    world.group["tags"].pop(OWNER_TAG)
    halt()
    passes(5)

    assert (world.desired_size, world.alive) == (0, [])


def test_a_node_group_without_our_tag_says_which_stack_to_deploy(world, start, passes):
    start("r1", hours=8)
    world.group["tags"].pop(OWNER_TAG)
    assert (
        "though its instances carry it: it counts as ours; deploy the Fleet stack"
        in passes(0).fleet.faults[0]
    )


def test_without_a_name_no_group_is_read(world):
    assert read_scaling_groups(world.clients, ()) == ()


def test_a_missing_group_is_left_out(world, start):
    start("r1", nodes=1)
    groups = read_scaling_groups(world.clients, (SCALING_GROUP, "no-such-group"))
    assert [(group.name, group.desired_size) for group in groups] == [(SCALING_GROUP, 1)]
