"""What EKS offers, what is deployed, and what a Fleet update would do to it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from doctor_world import NOW, World, bucket, cluster, node_group

from rehearsal.aws.fleet_behavior import FleetBehavior
from tandem.spec import names


def test_a_minor_in_standard_support_is_ok(world: World) -> None:
    line = world.only("minor")

    assert line.level == "ok"
    assert "standard support ends on 2027-08-02" in line.said


@pytest.mark.parametrize(
    ("status", "days", "level"),
    [("STANDARD_SUPPORT", 89, "warn"), ("EXTENDED_SUPPORT", -5, "warn"), ("UNSUPPORTED", -400, "fail")],
)
def test_the_support_of_a_minor_decides(world: World, status: str, days: int, level: str) -> None:
    ends = (NOW + timedelta(days=days)).timestamp()
    world.facts.minors["1.36"] = {"versionStatus": status, "endOfStandardSupportDate": ends}

    assert world.levels("minor")[0] == level


def test_a_minor_that_eks_does_not_know_is_bad_input(world: World) -> None:
    world.facts.minors = {}

    assert (world.only("minor").level, world.only("minor").code) == ("fail", 2)


def test_an_end_of_support_that_moved_is_printed_to_be_written(world: World) -> None:
    ends = datetime(2027, 9, 1, tzinfo=NOW.tzinfo).timestamp()
    world.facts.minors["1.36"] = {"versionStatus": "STANDARD_SUPPORT", "endOfStandardSupportDate": ends}

    assert "{value: 2027-09-01, source: KEY}" in world.lines("minor")[1].command


def test_add_ons_that_are_offered_as_pinned_are_ok(world: World) -> None:
    assert world.only("addons").said == "6 of 6 add-ons are offered for 1.36 as pinned"


def test_an_add_on_that_is_no_longer_offered_prints_what_to_write(world: World) -> None:
    world.facts.addons["coredns"] = ["v9.9.9-eksbuild.2", "v9.9.9-eksbuild.1"]
    world.facts.default_addon["coredns"] = "v9.9.9-eksbuild.1"

    line = next(line for line in world.lines("addons") if line.level == "fail")

    assert line.code == 2
    assert line.command == (
        'tandem/spec/data/platform/kubernetes.yaml: minors."1.36".addons.coredns: '
        "{value: v9.9.9-eksbuild.1, source: KEY}"
    )


def test_an_add_on_that_is_not_offered_at_all_fails(world: World) -> None:
    world.facts.addons["vpc-cni"] = []

    assert world.levels("addons") == ["fail", "ok"]


def test_an_add_on_that_is_not_pinned_is_a_warning_with_what_to_write(world: World) -> None:
    world.change(cluster={"kubernetes": "1.34"})
    world.facts.addons["aws-mountpoint-s3-csi-driver"] = ["v2.9.9-eksbuild.1"]

    warned = [line for line in world.lines("addons") if line.level == "warn"]

    assert [line.command.rpartition("{")[2] for line in warned] == ["value: v2.9.9-eksbuild.1, source: KEY}"]


def put(world: World, key: str, said: dict[str, Any]) -> None:
    s3, bucket = world.endpoint.client("s3"), names.bucket_name(world.environment)
    s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(said).encode())


def lease(world: World, hours: float) -> None:
    at = NOW.isoformat()
    put(world, "lease.json", {"schema": 1, "run": "r-1"})
    put(world, "runs/r-1/lease.json", {
        "schema": 1, "run": "r-1", "who": "somebody", "experiment": None, "node_label": {}, "created": at,
        "deadline": (NOW + timedelta(hours=hours)).isoformat(), "beats": False, "schedule": "stop-r-1",
    })  # fmt: skip


@pytest.fixture
def deployed(world: World) -> World:
    """A cluster of the environment's own, its node group at 0, its bucket."""
    world.endpoint.set_fleet(FleetBehavior(start_delay_s=0.05, stop_delay_s=0.05))
    cluster(world)
    node_group(world)
    bucket(world)
    return world


def test_before_the_first_deploy_there_is_no_cluster(world: World) -> None:
    assert [line.level for line in world.lines("control-plane", "fleet")] == ["ok", "ok"]


def test_a_cluster_of_the_environments_own_is_ok(deployed: World) -> None:
    assert "is ACTIVE with Kubernetes 1.36" in deployed.only("control-plane").said


def test_a_cluster_of_another_tool_is_bad_input(world: World) -> None:
    cluster(world, tags={"owner": "somebody"})

    line = world.only("control-plane")

    assert (line.level, line.code) == ("fail", 2)
    assert "has no tag tandem:environment" in line.said


def test_a_cluster_of_another_minor_is_a_warning(world: World) -> None:
    cluster(world, version="1.35")

    assert "runs 1.35, declared is 1.36" in world.only("control-plane").said


def test_a_fleet_at_zero_is_ok(deployed: World) -> None:
    assert deployed.only("fleet").said.endswith("is ours, at 0, without an instance")


def test_a_live_lease_warns_that_a_fleet_update_takes_the_fleet(deployed: World) -> None:
    lease(deployed, 2)

    line = deployed.only("fleet")

    assert line.level == "warn"
    assert "a deploy that updates Fleet sets it to 0" in line.said
    assert line.command.startswith("npx cdk diff ")


def test_a_lease_that_is_over_is_no_reason_to_wait(deployed: World) -> None:
    lease(deployed, -1)

    assert deployed.levels("fleet") == ["ok"]


def test_a_raised_fleet_without_a_lease_is_a_warning(deployed: World) -> None:
    deployed.endpoint.client("eks").update_nodegroup_config(
        clusterName=names.cluster_name(deployed.environment), nodegroupName=names.node_group_name(deployed.environment),
        scalingConfig={"minSize": 0, "desiredSize": 1, "maxSize": 1},
    )  # fmt: skip

    line = deployed.only("fleet")

    assert line.level == "warn"
    assert line.command == f"tandem stop --env {deployed.environment.name}"


def test_a_fence_is_a_warning_and_names_who_set_it(deployed: World) -> None:
    at = NOW.isoformat()
    put(deployed, "stop.json", {
        "schema": 1, "state": "stopped", "who": "reap", "why": "idle", "run": None, "at": at, "passes": 3,
        "last_look": at, "instances": [], "terminated": [], "told": "", "told_at": None,
    })  # fmt: skip

    line = deployed.only("fleet")

    assert line.level == "warn"
    assert "behind a fence, of reap: idle" in line.said


def test_a_node_group_of_another_tool_is_bad_input(world: World) -> None:
    cluster(world)
    bucket(world)
    node_group(world, tags={"owner": "somebody"})

    line = world.only("fleet")

    assert (line.level, line.code) == ("fail", 2)


def test_a_bucket_that_is_gone_beside_a_node_group_is_unknown(world: World) -> None:
    cluster(world)
    node_group(world)

    line = world.only("fleet")

    assert (line.level, line.code) == ("unknown", 3)
