"""Runs on a Capacity Block whose end moves: extended, not paid, not moved by EKS, ended early;
nothing is deployed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from guard_world import EC2_TAKES, START
from virtual_world import FULL_BUCKET, VirtualWorld, at_step

OLD_END = START + timedelta(hours=2)
DAY = timedelta(days=1)


def reach_second_lease():
    """Return a world whose run waits at zero after a first lease, at most as long as its block of
    two hours."""
    world = VirtualWorld(stored=FULL_BUCKET)
    world.account.deploy_block(START, OLD_END)
    world.ask(hours=1.1, rounds=28)
    assert world.live()["state"] == "waiting"
    return world


def resume(world):
    """Ask for a second lease of 8 hours; return the run's record at its end."""
    world.ask("resume", hours=8)
    return world.live()


def test_second_lease_beyond_the_old_end_is_refused_before_the_extension_is_paid():
    world = reach_second_lease()
    record = resume(world)
    assert record["state"] == "ended"
    assert "the Capacity Block lasts from" in record["reason"]


@pytest.mark.parametrize(
    "moved_by", [DAY, None], ids=["EKS moves its action", "EKS's action is over before"]
)
def test_second_lease_beyond_the_old_end_is_judged_without_a_deploy(moved_by):
    world = reach_second_lease()
    block = world.account.block
    tags = dict(world.account.group["tags"])
    block.ends += DAY
    if moved_by:
        block.scale_down_at += moved_by
    else:
        world.pass_time((OLD_END - world.account.now).total_seconds())
    record = resume(world)

    assert record["state"] == "judged"
    assert world.is_empty
    assert len(record["leases"]) == 2
    assert world.account.group["tags"] == tags
    assert world.account.machines[-1].ended > OLD_END


def test_run_whose_nodes_eks_takes_at_the_old_end_ends_at_zero_with_the_reason():
    world = reach_second_lease()
    world.account.block.ends += DAY
    record = resume(world)
    assert (record["state"], world.account.alive) == ("ended", [])
    assert "its fleet is at 0" in record["reason"]


def test_run_whose_block_ends_early_is_at_zero_before_ec2_takes_the_node():
    world = VirtualWorld(stored=FULL_BUCKET)
    world.account.deploy_block(START, START + DAY)
    world.ask(hours=8, rounds=40)
    world.live(until=at_step("round-00001"))
    block = world.account.block
    block.ends = world.account.now + timedelta(minutes=90)
    record = world.live()
    [machine] = world.account.machines

    assert record["state"] == "ended"
    assert "the Capacity Block ends at" in record["reason"]
    assert machine.gone < block.ends - EC2_TAKES


def test_run_whose_reaper_gets_no_word_of_an_extension_ends_by_the_plan():
    world = VirtualWorld(stored=FULL_BUCKET)
    world.account.deploy_block(START, OLD_END)
    block = world.account.block
    block.ends += DAY
    block.scale_down_at += DAY
    world.ask(hours=8, rounds=40)
    world.live(until=at_step("round-00001"))
    world.account.down.add("ec2.describe_capacity_reservations")
    record = world.live()

    assert (record["state"], world.account.alive) == ("ended", [])
    assert "the Capacity Block ends at 2026-11-21T10:00:00Z" in record["reason"]


def replace_block(world, *, deploys):
    """Let the run's block end, and another one begin a day long."""
    world.pass_time((OLD_END - world.account.now).total_seconds())
    tags = dict(world.account.group["tags"])
    world.account.deploy_block(world.account.now, world.account.now + DAY, "cr-0fedcba9876543210")
    if not deploys:
        world.account.group["tags"] = tags


def test_second_lease_on_another_block_is_judged_once_fleet_names_it():
    world = reach_second_lease()
    replace_block(world, deploys=True)
    record = resume(world)

    assert record["state"] == "judged"
    assert world.is_empty
    assert len(record["leases"]) == 2
    assert [machine.launch_time > OLD_END for machine in world.account.machines] == [False, True]


def test_second_lease_on_another_block_is_refused_while_fleet_names_the_old_one():
    world = reach_second_lease()
    replace_block(world, deploys=False)
    record = resume(world)

    assert (record["state"], len(world.account.machines)) == ("ended", 1)
    assert "is not in this account and region" in record["reason"]
