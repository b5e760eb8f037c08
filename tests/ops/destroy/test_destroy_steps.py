"""The steps of a teardown on deployed stacks: order, ownership, protections, what forbids it, what
is stuck."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from fleet_seen import fence_objects
from small_stacks import DEPLOYED, QUICK, find_leftovers, templates

from tandem.declarations import names
from tandem.errors import InputError, TandemError
from tandem.ops.destroy import fleet
from tandem.ops.destroy.stack_deletion import TeardownSettings, require_idle_stack
from tandem.ops.destroy.stacks import DELETION_ORDER
from tandem.ops.destroy.steps import destroy_environment
from tandem.ops.destroy.survey import survey_teardown
from tandem.ops.faults import AccessDeniedError

pytestmark = pytest.mark.proof
DELETED = [kind for kind in DELETION_ORDER if kind in DEPLOYED]


def taken_down(world, **how):
    destroy_environment(world.account(**how), QUICK, world.said.append)


def survey(world, **how):
    return survey_teardown(world.account(**how), gitops_gone=False)


def test_every_stack_goes_in_its_order(small):
    world = small().deploy()

    taken_down(world)
    leftovers = find_leftovers(world.account())
    kinds = [
        re.sub(r".*-(\w+): gone", r"\1", line) for line in world.said if line.endswith(": gone")
    ]
    again = survey(world)
    taken_down(world)

    assert (kinds, again.stacks) == (DELETED, {})
    assert world.stacks() == {"Artifacts": "CREATE_COMPLETE"}
    assert (leftovers.orphans, leftovers.failures) == ([], {})
    assert [resource.kind for resource in leftovers.kept] == [
        "KMS key",
        "bucket",
        "bucket",
        "log group",
        "stack",
    ]
    assert find_leftovers(world.account()) == leftovers


@pytest.mark.parametrize(
    ("kinds", "leftovers"),
    [(("Network", "Artifacts", "Cluster"), {"Artifacts"}), (("Network",), set())],
)
def test_half_a_deployment_goes_too(small, kinds, leftovers):
    world = small().deploy(kinds)
    survey(world)
    taken_down(world)
    assert set(world.stacks()) == leftovers


@pytest.mark.parametrize("owner", ["another", "nobody"])
def test_foreign_stack_of_the_same_name_stops_the_teardown(small, owner):
    world = small().deploy(("Artifacts",))
    world.create("Registry", templates(world.environment)["Registry"], owner)
    before = world.stacks()

    with pytest.raises(
        InputError,
        match=rf"{world.name}-Registry: this stack has no tag tandem:environment={world.name}",
    ) as refusal:
        survey(world)
    assert (
        f"(aws cloudformation describe-stacks --stack-name {world.name}-Registry)"
        in refusal.value.change
    )
    with pytest.raises(InputError, match="is left alone"):
        taken_down(world)

    assert world.stacks() == before


def test_live_lease_forbids_a_teardown(small):
    world = small().deploy()
    world.lease()

    words = rf"run r1 of arn:.*Operator holds a lease until .* tandem stop --env {world.name}"
    with pytest.raises(InputError, match=words):
        survey(world)


def test_a_lease_that_came_after_the_look_keeps_the_fleet(small):
    world = small().deploy()
    survey(world)
    world.lease()

    with pytest.raises(InputError, match="holds a lease"):
        taken_down(world)

    assert "Fleet" in world.stacks()


SPOILT = {"lease.json": "not a lease", "stop.json": "not a fence"}
FENCE = fence_objects(state="stopped")


@pytest.mark.parametrize(
    ("hours", "objects", "refusal"),
    [
        (-1, {}, ""),
        (1, FENCE, ""),
        (None, {"lease.json": "not a lease", **FENCE}, ""),
        (None, {"lease.json": "not a lease"}, "whether a run holds the fleet is not known"),
        (None, SPOILT, "tandem stop --env"),
    ],
)
def test_unreadable_lease_forbids_a_teardown(small, hours, objects, refusal):
    world = small().deploy()
    if hours:
        world.lease(hours=hours)
    for key, body in objects.items():
        world.put(key, body)

    with (
        pytest.raises(TandemError, match=refusal) if refusal else contextlib.nullcontext()
    ) as fault:
        survey(world)

    assert not refusal or fault.value.exit_code == 3


@pytest.mark.parametrize(
    ("state", "leaving", "refusal"),
    [
        ("running", False, True),
        ("running", True, True),
        ("shutting-down", False, True),
        ("shutting-down", True, False),
    ],
)
def test_leaving_node_hinders_no_second_run(small, monkeypatch, state, leaving, refusal):
    world = small().deploy(("Artifacts",))
    monkeypatch.setattr(fleet, "list_nodes", lambda *_: {"i-1": state})
    with pytest.raises(InputError) if refusal else contextlib.nullcontext():
        fleet.require_parked_fleet(world.account(), datetime.now(UTC), is_leaving=leaving)


def test_guard_never_goes_while_a_node_of_the_cluster_lives(small):
    world = small().deploy(("Artifacts", "Guard"))
    resource = world.client("ec2").run_instances(
        ImageId="ami-1",
        MinCount=1,
        MaxCount=1,
        InstanceType="m7i.large",
        TagSpecifications=[
            {
                "ResourceType": "instance",
                "Tags": [
                    {"Key": "eks:cluster-name", "Value": names.cluster_name(world.environment)}
                ],
            }
        ],
    )["Instances"][0]["InstanceId"]

    with pytest.raises(TandemError, match=r"EC2 still lists i-.* terminate-instances"):
        destroy_environment(
            world.account(), TeardownSettings(poll_s=0.02, timeout_s=0.2), world.said.append
        )
    stacks = world.stacks()
    world.client("ec2").terminate_instances(InstanceIds=[resource])
    taken_down(world)

    assert "Guard" in stacks
    assert any(resource in line for line in world.said)
    assert "Guard" not in world.stacks()


def test_foreign_node_group_in_the_cluster_is_left(small):
    world = small().deploy(("Artifacts", "Cluster"))
    cluster = names.cluster_name(world.environment)
    world.client("eks").create_nodegroup(
        clusterName=cluster,
        nodegroupName="theirs",
        subnets=["subnet-1"],
        nodeRole="arn:aws:iam::222233334444:role/x",
    )

    with pytest.raises(
        InputError, match=r"theirs.*Another tool made them, and they are left alone"
    ):
        survey(world)
    with pytest.raises(
        InputError,
        match=(
            r"node groups without the tag .*theirs.*\(aws eks describe-nodegroup .*"
            r" --nodegroup-name theirs\)"
        ),
    ):
        taken_down(world)

    assert world.client("eks").list_nodegroups(clusterName=cluster)["nodegroups"] == ["theirs"]


def test_a_protected_cluster_without_our_tag_keeps_its_protection(small):
    world = small().deploy(("Artifacts",))
    world.create("Cluster", {"Role": templates(world.environment)["Cluster"]["Role"]}, world.name)
    world.client("eks").create_cluster(
        name=names.cluster_name(world.environment),
        roleArn="arn:aws:iam::222233334444:role/x",
        deletionProtection=True,
        resourcesVpcConfig={"subnetIds": ["subnet-1"]},
    )

    with pytest.raises(
        InputError,
        match=r"this cluster is protected and has no tag .*\(aws eks describe-cluster --name \S+\)",
    ):
        taken_down(world)

    assert world.client("eks").describe_cluster(name=names.cluster_name(world.environment))[
        "cluster"
    ]["deletionProtection"]


def test_a_protection_is_lifted_only_when_its_stack_goes(small):
    world = small().deploy()
    with pytest.raises(AccessDeniedError):
        taken_down(world, denied="UpdateTerminationProtection")

    pages = world.client("cloudformation").get_paginator("describe_stacks").paginate()
    protected_names = {
        row["StackName"]
        for page in pages
        for row in page["Stacks"]
        if row.get("EnableTerminationProtection")
    }

    assert {f"{world.name}-{kind}" for kind in DELETED} <= protected_names


def resource_of(world, kind):
    rows = world.client("cloudformation").describe_stack_resources(
        StackName=f"{world.name}-Network"
    )["StackResources"]
    return next(row["PhysicalResourceId"] for row in rows if row["ResourceType"] == kind)


def tag_resource(world, resource, key, value):
    world.client("ec2").create_tags(Resources=[resource], Tags=[{"Key": key, "Value": value}])


def group_in_the_vpc(world):
    vpc = resource_of(world, "AWS::EC2::VPC")
    resource = world.client("ec2").create_security_group(
        GroupName=f"k8s-{world.name}", Description="of a load balancer", VpcId=vpc
    )
    return resource["GroupId"]


def interface_in_the_vpc(world, cluster):
    subnet = resource_of(world, "AWS::EC2::Subnet")
    answer = world.client("ec2").create_network_interface(SubnetId=subnet)
    resource = answer["NetworkInterface"]["NetworkInterfaceId"]
    tag_resource(world, resource, "cluster.k8s.amazonaws.com/name", cluster)
    return resource


def test_only_interfaces_of_this_clusters_cni_are_removed(small):
    world = small().deploy(("Artifacts", "Network"))
    cluster = names.cluster_name(world.environment)
    ours = interface_in_the_vpc(world, cluster)
    theirs = interface_in_the_vpc(world, "another")
    tag_resource(world, group_in_the_vpc(world), f"kubernetes.io/cluster/{cluster}", "owned")

    taken_down(world)

    leftovers = {
        row["NetworkInterfaceId"]
        for row in world.client("ec2").describe_network_interfaces()["NetworkInterfaces"]
    }
    assert ours not in leftovers
    assert theirs in leftovers


def test_stuck_stack_names_resource_reason_and_change(small):
    world = small().deploy()
    group = group_in_the_vpc(world)

    with pytest.raises(TandemError) as stuck:
        taken_down(world)
    again = [line for line in world.said if "was not deleted" in line]
    world.client("ec2").delete_security_group(GroupId=group)
    taken_down(world)

    assert (stuck.value.exit_code, stuck.value.where) == (3, f"{world.name}-Network")
    assert re.search(r"Vpc \(AWS::EC2::VPC vpc-\w+\): .*DependencyViolation", str(stuck.value))
    assert (
        f"aws cloudformation delete-stack --stack-name {world.name}-Network --retain-resources Vpc"
        in str(stuck.value)
    )
    assert again
    assert world.stacks() == {"Artifacts": "CREATE_COMPLETE"}


@pytest.mark.parametrize(
    "operation",
    [
        "DescribeStacks",
        "ListStackResources",
        "DescribeCluster",
        "ListNodegroups",
        "DescribeNodegroup",
        "DescribeInstances",
        "GetObject",
    ],
)
def test_call_denied_while_looking_changes_nothing(small, operation):
    world = small().deploy()
    before = world.stacks()

    with pytest.raises(TandemError) as refusal:
        survey(world, denied=operation)

    assert refusal.value.exit_code == 3
    assert operation in str(refusal.value)
    assert world.stacks() == before


def test_unreadable_size_names_the_missing_right(small):
    world = small().deploy()

    result = survey(world, denied="ListObjectVersions")

    (bucket,) = (stays for stays in result.permanent_resources if stays.note.startswith("models,"))
    assert (bucket.size, bucket.usd_month) == (None, None)
    assert "s3:ListBucketVersions" in bucket.note


@pytest.mark.parametrize(
    "operation",
    [
        "UpdateTerminationProtection",
        "DeleteStack",
        "UpdateClusterConfig",
        "DescribeUpdate",
        "DescribeInstances",
    ],
)
def test_teardown_continues_after_a_denied_call(small, operation):
    world = small().deploy()

    with pytest.raises(AccessDeniedError, match=operation) as refusal:
        taken_down(world, denied=operation)
    taken_down(world)

    assert refusal.value.exit_code == 3
    assert world.stacks() == {"Artifacts": "CREATE_COMPLETE"}
    assert find_leftovers(world.account()).orphans == []


def test_old_versions_count_and_the_declared_price_makes_the_cost(small):
    def priced(document):
        document["artifacts"] = {"usd_per_gb_month": 8.0, "usd_per_gb_month_date": "2026-11-01"}

    world = small(change=priced).deploy()
    for body in ("x" * 2**19, "y" * 2**19):
        world.put("models/a", body)

    result = survey(world)

    (bucket,) = (stays for stays in result.permanent_resources if stays.note.startswith("models,"))
    assert (bucket.size, bucket.usd_month) == (2**20, pytest.approx(8 / 1024))
    (logs,) = [stays for stays in result.permanent_resources if stays.kind == "log group"]
    assert logs.usd_month is None


def test_a_deploy_that_runs_is_not_torn_away(small):
    world = small().deploy(("Artifacts", "Network"))
    busy = next(iter(survey(world).stacks))
    with pytest.raises(TandemError, match="it is in UPDATE_IN_PROGRESS: somebody deploys"):
        require_idle_stack(replace(busy, status="UPDATE_IN_PROGRESS"))
