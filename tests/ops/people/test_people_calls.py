"""The tables of calls against the programs: what stop, start and clear called, what the rest's
source says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name
from guard_world import GUARDED, LABEL, World

from tandem.errors import ExternalError
from tandem.guard.apply import stop_fleet
from tandem.guard.fleet_start import RaiseRequest, raise_fleet
from tandem.guard.node_labels import relabel_nodes
from tandem.guard.normal_end import end_lease
from tandem.guard.release import release_fence
from tandem.ops.destroy.stack_deletion import BLOCKER_KINDS
from tandem.ops.leftover_kinds import LISTED_KINDS
from tandem.ops.leftovers import BALANCER_KINDS
from tandem.ops.people.rights import RUNNER_RIGHTS, list_command_calls

ROOT = Path(__file__).parents[3]
IDENTITY = {("sts", "GetCallerIdentity")}
BY_COMMAND = {  # what the commands themselves ask beside the modules of tandem.guard
    "start": {
        ("cloudwatch", "GetMetricStatistics"),
        ("budgets", "DescribeBudget"),
        ("budgets", "DescribeNotificationsForBudget"),
        ("budgets", "DescribeSubscribersForNotification"),
        ("lambda", "GetFunctionConfiguration"),
    },
    "stop": {("eks", "DescribeCluster"), ("cloudwatch", "GetMetricStatistics")},
}


def spelt(calls: Iterable[tuple[str, str]]) -> set[str]:
    """Calls as the world in memory counts them."""
    return {f"{service}.{xform_name(operation)}" for service, operation in calls}


def raised(world: World, unarmed: Sequence[str] = ()) -> None:
    request = RaiseRequest(
        run="r1",
        hours=2.0,
        experiment="first",
        nodes=1,
        node_labels=LABEL,
        who="anna",
        beats=True,
        unarmed_paths=tuple(unarmed),
    )
    raise_fleet(world.clients, GUARDED, request, world.now)


def block_world(**knobs: Any) -> World:
    """An account whose fleet is on a Capacity Block, of which every look asks EC2."""
    world = World(**knobs)
    world.deploy_block(world.now, world.now + timedelta(days=1))
    return world


def raised_world() -> World:
    """A fleet that was raised five minutes ago; what is called from now on counts."""
    world = block_world()
    raised(world)
    world.advance(5)
    world.calls.clear()
    return world


def own(command: str) -> set[str]:
    return spelt(list_command_calls(command) - IDENTITY - BY_COMMAND.get(command, set()))


def test_starts_make_the_calls_of_their_table():
    """One with a path that is not armed, one after a stop that held the Auto Scaling group, one
    that gives up."""
    calls: set[str] = set()
    for refusal in ("", "AccessDeniedException"):
        world = block_world(ignores=True)
        world.scaling = {"MinSize": 0, "DesiredCapacity": 1}
        stopped(world, passes=3)
        world.ignores = False
        world.advance(30)
        release_fence(world.clients, GUARDED, who="anna", now=world.now)
        world.calls.clear()
        world.refuses = {"autoscaling.resume_processes": [refusal]}
        with nullcontext() if not refusal else pytest.raises(ExternalError):
            raised(world, unarmed=("budget",))
        calls |= set(world.calls)

    assert calls == own("start")


def stopped(world: World, passes: int) -> None:
    for _ in range(passes):
        stop_fleet(world.clients, GUARDED, who="anna", why="enough", run=None, now=world.now)
        world.advance(GUARDED.grace_minutes + 5)


def test_stop_makes_the_calls_of_its_table():
    world = raised_world()
    world.ignores = True
    stopped(world, passes=3)
    assert set(world.calls) == own("stop")


def test_a_normal_end_makes_the_calls_of_its_table():
    world = raised_world()
    end_lease(
        world.clients,
        GUARDED,
        run="r1",
        clock=lambda: world.now,
        wait=lambda pause: world.advance(pause / timedelta(minutes=1)),
    )
    assert set(world.calls) == own("stop --end")


def test_new_labels_make_the_calls_of_their_table():
    world = raised_world()
    relabel_nodes(
        world.clients, GUARDED, run="r1", node_labels={"raise.tandem/other": "first"}, now=world.now
    )
    assert set(world.calls) == own("relabel by the runner")


def test_a_clear_makes_the_calls_of_its_table():
    world = block_world()
    raised(world)
    stop_fleet(world.clients, GUARDED, who="anna", why="enough", run=None, now=world.now)
    world.advance(30)
    world.calls.clear()

    release_fence(world.clients, GUARDED, who="anna", now=world.now + timedelta(minutes=1))

    assert set(world.calls) == own("stop --release")


def test_runner_may_make_the_calls_of_its_steps():
    guard = list_command_calls("start", "relabel by the runner", "stop --end")
    further_calls = {
        ("s3", "ListObjectsV2"),
        ("s3", "HeadObject"),
        ("autoscaling", "DescribeScalingActivities"),
    }
    assert {row.call for row in RUNNER_RIGHTS if row.call} == guard | further_calls


def test_a_teardown_says_no_call_but_those_of_its_table():
    files = [*(ROOT / "tandem/ops/destroy").glob("*.py"), *(ROOT / "tandem/ops").glob("[lo]*.py")]
    source = "\n".join(path.read_text() for path in files)
    calls = set(
        re.findall(r"account\.(?:ask|find|list_rows)\(\s*\"([a-z0-9]+)\",\s*\"(\w+)\"", source)
    )
    calls |= {
        ("ec2", operation)
        for _, call, removal in BLOCKER_KINDS
        for operation in (call.split()[0], removal)
    }
    calls |= {(kind.service, kind.operation) for kind in LISTED_KINDS.values()}
    calls |= {tuple(call.split()[:2]) for _, call, _ in BALANCER_KINDS} | {
        (service, "DescribeTags") for service in ("elb", "elbv2")
    }

    fleet_calls = {("s3", "GetObject"), ("eks", "DescribeNodegroup"), ("ec2", "DescribeInstances")}
    fleet_calls |= {("ec2", "DescribeCapacityReservations")}
    assert (
        calls | fleet_calls == list_command_calls("destroy", "destroy what is protected") - IDENTITY
    )


def test_the_store_says_no_call_but_those_of_its_tables():
    source = "\n".join(path.read_text() for path in (ROOT / "tandem/artifacts").glob("*.py"))
    methods = set(re.findall(r"\bclient\.([a-z_]+[a-z0-9_]*)", source)) - {"get_paginator"}
    methods |= set(re.findall(r"(?:pages|get_paginator)\(\s*\"(\w+)\"", source))
    methods |= {"create_multipart_upload", "upload_part", "complete_multipart_upload"}

    assert {f"s3.{method}" for method in methods} == spelt(
        list_command_calls("artifacts import", "artifacts gc")
    )
