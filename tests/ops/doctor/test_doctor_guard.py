"""Whether the guard knows what it guards: capacity kind, suspended processes, schedules of nobody."""

from __future__ import annotations

import io
import json
import shlex
import zipfile

import pytest
from doctor_world import ACCOUNT, NOW, World, bucket, cluster, node_group, schedule

from tandem.guard.observe import CAPACITY_KIND_TAG
from tandem.spec import names

ROLE = f"arn:aws:iam::{ACCOUNT}:role/Operator"


@pytest.fixture(autouse=True)
def on_demand(world: World) -> None:
    """Declare a kind that EKS takes without a launch template."""
    world.change(capacity={"kind": "on-demand", "reservation_id": None, "block": None})


def deploy_fleet(world: World, kind: str | None = "on-demand", *, capacity_type: str = "ON_DEMAND") -> None:
    cluster(world)
    bucket(world)
    tags = {names.OWNER_TAG: world.environment.name, **({CAPACITY_KIND_TAG: kind} if kind else {})}
    node_group(world, tags=tags, capacity_type=capacity_type)


def deploy_guard(world: World, kind: str) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("handler.py", "handler = None")
    world.endpoint.client("lambda").create_function(
        FunctionName=names.guard_function_name(world.environment, "stop"), Runtime="python3.13", Role=ROLE,
        Handler="handler.handler", Code={"ZipFile": archive.getvalue()},
        Environment={"Variables": {"TANDEM_CAPACITY_KIND": kind}},
    )  # fmt: skip


def put(world: World, key: str, said: dict[str, object]) -> None:
    bucket_name = names.bucket_name(world.environment)
    world.endpoint.client("s3").put_object(Bucket=bucket_name, Key=key, Body=json.dumps(said).encode())


def scaling_group(world: World) -> str:
    described = world.endpoint.client("eks").describe_nodegroup(
        clusterName=names.cluster_name(world.environment), nodegroupName=names.node_group_name(world.environment)
    )
    return str(described["nodegroup"]["resources"]["autoScalingGroups"][0]["name"])


def test_before_the_first_deploy_the_guard_has_nothing_to_know(world: World) -> None:
    assert [line.level for line in world.lines("capacity-kind", "scaling", "schedules")] == ["ok"] * 3


def test_one_kind_everywhere_is_ok_and_says_what_the_budget_does(world: World) -> None:
    deploy_fleet(world)
    deploy_guard(world, "on-demand")

    line = world.only("capacity-kind")

    assert line.level == "ok"
    assert line.said.endswith("at its limit the budget stops the fleet")


def test_a_fleet_of_another_kind_fails_with_what_the_budget_would_do(world: World) -> None:
    deploy_fleet(world, "capacity-block")
    deploy_guard(world, "on-demand")

    line = world.only("capacity-kind")

    assert (line.level, line.code) == ("fail", 3)
    assert "Fleet is deployed as capacity-block: at its limit the budget only tells people" in line.said
    name = world.environment.name
    assert line.command == f"npx cdk deploy {name}/Fleet -c env={name}"


def test_a_guard_of_another_kind_fails_and_is_to_be_deployed(world: World) -> None:
    deploy_fleet(world)
    deploy_guard(world, "spot")

    line = world.only("capacity-kind")

    assert (line.level, line.code) == ("fail", 3)
    assert "Guard is deployed with spot" in line.said
    assert line.command.startswith(f"npx cdk deploy {world.environment.name}/Guard")


def test_what_eks_buys_in_another_way_fails(world: World) -> None:
    deploy_fleet(world, capacity_type="SPOT")

    line = world.only("capacity-kind")

    assert (line.level, "EKS buys SPOT" in line.said) == ("fail", True)


def test_a_fleet_of_an_earlier_release_is_a_warning(world: World) -> None:
    deploy_fleet(world, None)
    deploy_guard(world, "on-demand")

    line = world.only("capacity-kind")

    assert (line.level, line.do) == ("warn", "deploy Fleet")


def test_without_the_tag_the_guards_kind_decides_what_the_budget_does(world: World) -> None:
    deploy_fleet(world, None)
    deploy_guard(world, "capacity-block")

    said = [line.said for line in world.lines("capacity-kind") if line.level == "fail"]

    assert ["the budget only tells people" in line for line in said] == [True]


def test_the_kind_of_anothers_node_group_is_not_compared(world: World) -> None:
    cluster(world)
    node_group(world, tags={"owner": "somebody", CAPACITY_KIND_TAG: "spot"})

    assert world.levels("capacity-kind") == ["unknown"]


def test_nothing_suspended_is_ok(world: World) -> None:
    deploy_fleet(world)
    world.facts.suspended = []

    assert world.levels("scaling") == ["ok"]


def test_launches_that_a_stranger_suspended_fail_with_the_command_that_resumes_them(world: World) -> None:
    deploy_fleet(world)
    world.facts.suspended = ["Launch"]

    line = world.only("scaling")

    assert (line.level, line.code) == ("fail", 3)
    assert "every start refuses" in line.said
    assert shlex.split(line.command)[-4:] == [
        "--auto-scaling-group-name", scaling_group(world), "--scaling-processes", "Launch",
    ]  # fmt: skip


def test_launches_that_a_stop_of_ours_suspended_are_resumed_by_a_start(world: World) -> None:
    deploy_fleet(world)
    world.facts.suspended = ["Launch"]
    at = NOW.isoformat()
    put(world, "stop.json", {
        "schema": 1, "state": "stopped", "who": "reap", "why": "idle", "run": None, "at": at, "passes": 3,
        "last_look": at, "instances": [], "terminated": [], "told": "", "told_at": None,
        "suspended": [scaling_group(world)],
    })  # fmt: skip

    line = world.only("scaling")

    assert line.level == "ok"
    assert "the next start resumes it" in line.said


def test_another_suspended_process_is_a_warning(world: World) -> None:
    deploy_fleet(world)
    world.facts.suspended = ["Terminate", "HealthCheck"]

    line = world.only("scaling")

    assert line.level == "warn"
    assert shlex.split(line.command)[-2:] == ["Terminate", "HealthCheck"]


def lease(world: World, name: str) -> None:
    at = NOW.isoformat()
    put(world, "lease.json", {"schema": 1, "run": "r-1"})
    put(world, "runs/r-1/lease.json", {
        "schema": 1, "run": "r-1", "who": "somebody", "experiment": None, "node_label": {}, "created": at,
        "deadline": NOW.replace(hour=20).isoformat(), "beats": False, "schedule": name,
    })  # fmt: skip


def test_the_schedule_of_the_lease_is_no_stranger(world: World) -> None:
    bucket(world)
    lease(world, "stop-r-1")
    schedule(world, "stop-r-1", size=0)

    assert world.only("schedules").said.endswith("has no schedule but the lease's own")


def test_a_recurring_schedule_that_raises_fails_with_the_command_that_deletes_it(world: World) -> None:
    bucket(world)
    schedule(world, "strange", "rate(5 minutes)", size=4)

    line = world.only("schedules")

    assert (line.level, line.code) == ("fail", 3)
    assert "raises the fleet to 4 nodes again and again, behind every fence" in line.said
    assert shlex.split(line.command)[-4:] == [
        "--group-name", names.schedule_group_name(world.environment), "--name", "strange",
    ]  # fmt: skip


@pytest.mark.parametrize(("size", "says"), [(0, "sets the fleet to 0 nodes"), (2, "to 2 nodes"), (None, "calls arn:")])
def test_a_schedule_of_no_lease_fails_because_a_start_refuses_beside_it(
    world: World, size: int | None, says: str
) -> None:
    bucket(world)
    schedule(world, "stop-ended", size=size)

    line = world.only("schedules")

    assert line.level == "fail"
    assert says in line.said
    assert "every start refuses beside it" in line.said


def test_the_schedule_of_a_proof_is_a_warning(world: World) -> None:
    bucket(world)
    schedule(world, "prove-stop-20261121120000-abcdef", size=0)

    assert world.levels("schedules") == ["warn"]


def test_a_recurring_schedule_with_the_name_of_a_proof_is_none(world: World) -> None:
    bucket(world)
    schedule(world, "prove-stop-20261121120000-abcdef", "rate(1 minutes)", size=1)

    assert world.levels("schedules") == ["fail"]
