"""Orphans: one of each kind is found and told how to remove it; what is a neighbour's or another
tool's is not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from small_stacks import ACCOUNT, Small, declared, find_leftovers

from tandem.declarations import names
from tandem.errors import TandemError
from tandem.ops.faults import AccessDeniedError
from tandem.ops.leftovers import SEARCHES
from tandem.ops.ownership import ResourceOwnership

ENVIRONMENT = "orphan"
NEIGHBOUR = "orphan-too"  # begins with the same name
TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})
ROLE = f"arn:aws:iam::{ACCOUNT}:role/r"
Plants = Iterator[tuple[str, str]]
"""Kind of each thing that was made, and the name by which it is listed."""


def plant_in_ec2(world: Small, name: str) -> Plants:
    ec2 = world.client("ec2")
    cluster = f"tandem-{name}"
    owner = {names.OWNER_TAG: name}
    in_tree = {f"kubernetes.io/cluster/{cluster}": "owned"}
    eks = {"eks:cluster-name": cluster}

    def tagged(kind: str, tags: dict[str, str]) -> dict[str, Any]:
        rows = [{"Key": key, "Value": value} for key, value in tags.items()]
        return {"TagSpecifications": [{"ResourceType": kind, "Tags": rows}]}

    instances = ec2.run_instances(
        ImageId="ami-1", MinCount=1, MaxCount=1, **tagged("instance", eks)
    )["Instances"]
    yield "instance", instances[0]["InstanceId"]
    subnet = instances[0]["SubnetId"]
    interface = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]
    ec2.create_tags(
        Resources=[interface["NetworkInterfaceId"]],
        Tags=[{"Key": "cluster.k8s.amazonaws.com/name", "Value": cluster}],
    )
    yield "network interface", interface["NetworkInterfaceId"]
    interface = ec2.create_network_interface(SubnetId=subnet, Description=f"Amazon EKS {cluster}")[
        "NetworkInterface"
    ]
    yield "network interface", interface["NetworkInterfaceId"]
    volume = ec2.create_volume(AvailabilityZone="us-east-2a", Size=1, **tagged("volume", in_tree))[
        "VolumeId"
    ]
    yield "volume", volume
    yield (
        "snapshot",
        ec2.create_snapshot(VolumeId=volume, **tagged("snapshot", in_tree))["SnapshotId"],
    )
    yield (
        "elastic IP",
        ec2.allocate_address(Domain="vpc", **tagged("elastic-ip", owner))["AllocationId"],
    )
    group = f"eks-cluster-sg-{cluster}-1234567"
    yield "security group", ec2.create_security_group(GroupName=group, Description="EKS")["GroupId"]
    yield "VPC", ec2.create_vpc(CidrBlock="10.9.0.0/16", **tagged("vpc", owner))["Vpc"]["VpcId"]
    yield (
        "launch template",
        ec2.create_launch_template(
            LaunchTemplateName=f"{cluster}-nodes", LaunchTemplateData={"InstanceType": "m7i.large"}
        )["LaunchTemplate"]["LaunchTemplateId"],
    )
    elb = world.client("elbv2")
    tags = {"Tags": [{"Key": "elbv2.k8s.aws/cluster", "Value": cluster}]}
    balancer = elb.create_load_balancer(Name=f"k8s-{name}", Subnets=[subnet], **tags)
    yield "load balancer", balancer["LoadBalancers"][0]["LoadBalancerArn"]
    target = elb.create_target_group(
        Name=f"k8s-{name}", Protocol="TCP", Port=80, VpcId="vpc-1", **tags
    )
    yield "target group", target["TargetGroups"][0]["TargetGroupArn"]


def plant_by_name(world: Small, name: str) -> Plants:
    for log_group in (f"/aws/eks/tandem-{name}/cluster", f"/aws/lambda/{name}-Guard-Reap1234"):
        world.client("logs").create_log_group(logGroupName=log_group)
        yield "log group", log_group
    scheduler = world.client("scheduler")
    group = f"tandem-{name}"
    scheduler.create_schedule_group(Name=group)
    scheduler.create_schedule(
        Name=f"tandem-{name}-by-hand",
        ScheduleExpression="at(2036-01-01T00:00:00)",
        Target={"Arn": f"arn:aws:sqs:us-east-2:{ACCOUNT}:q", "RoleArn": ROLE},
        FlexibleTimeWindow={"Mode": "OFF"},
    )
    yield "schedule", f"tandem-{name}-by-hand"
    yield "schedule group", group
    world.client("events").put_rule(
        Name=f"{name}-Guard-ReapEvery5", ScheduleExpression="rate(5 minutes)"
    )
    yield "EventBridge rule", f"{name}-Guard-ReapEvery5"
    tags = [{"Key": names.OWNER_TAG, "Value": name}]
    role = f"{name}-Guard-StopRole-ABC123"
    world.client("iam").create_role(RoleName=role, AssumeRolePolicyDocument=TRUST, Tags=tags)
    yield "role", role
    yield "policy", make_policy(world, f"tandem-{name}-reader")
    world.client("ecr").create_repository(repositoryName=f"tandem-{name}-tools")
    yield "ECR repository", f"tandem-{name}-tools"
    key = world.client("kms").create_key(
        Description="keys", Tags=[{"TagKey": names.OWNER_TAG, "TagValue": name}]
    )
    yield "KMS key", key["KeyMetadata"]["KeyId"]
    world.client("cloudwatch").put_dashboard(
        DashboardName=f"tandem-{name}-machine", DashboardBody='{"widgets": []}'
    )
    yield "dashboard", f"tandem-{name}-machine"
    world.client("cloudwatch").put_metric_alarm(
        AlarmName=f"{name}-errors",
        Namespace=f"Tandem/{name}",
        MetricName="m",
        Statistic="Sum",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanThreshold",
    )
    yield "alarm", f"{name}-errors"
    yield "SNS topic", world.client("sns").create_topic(Name=f"tandem-{name}-guard")["TopicArn"]
    yield (
        "SQS queue",
        world.client("sqs").create_queue(QueueName=f"tandem-{name}-dead-letters")["QueueUrl"],
    )
    world.client("lambda").create_function(
        FunctionName=f"tandem-{name}-stop",
        Role=ROLE,
        Runtime="python3.13",
        Handler="h.h",
        Code={"ZipFile": b"PK\x05\x06" + b"\0" * 18},
    )
    yield "Lambda function", f"tandem-{name}-stop"
    world.client("codebuild").create_project(
        name=f"tandem-{name}-tools",
        source={"type": "NO_SOURCE"},
        artifacts={"type": "NO_ARTIFACTS"},
        serviceRole=ROLE,
        environment={
            "type": "LINUX_CONTAINER",
            "image": "i",
            "computeType": "BUILD_GENERAL1_SMALL",
        },
    )
    yield "CodeBuild project", f"tandem-{name}-tools"
    limit = {
        "BudgetType": "COST",
        "TimeUnit": "MONTHLY",
        "BudgetLimit": {"Amount": "1", "Unit": "USD"},
    }
    world.client("budgets").create_budget(
        AccountId=ACCOUNT, Budget={"BudgetName": f"tandem-{name}", **limit}
    )
    yield "budget", f"tandem-{name}"


def plant_in_eks(world: Small, name: str, **tags: Any) -> Plants:
    eks = world.client("eks")
    eks.create_cluster(
        name=f"tandem-{name}", roleArn=ROLE, resourcesVpcConfig={"subnetIds": ["subnet-1"]}, **tags
    )
    yield "cluster", f"tandem-{name}"
    sizes = {"minSize": 0, "desiredSize": 0, "maxSize": 1}
    eks.create_nodegroup(
        clusterName=f"tandem-{name}",
        nodegroupName="late",
        subnets=["s-1"],
        nodeRole=ROLE,
        scalingConfig=sizes,
        **tags,
    )
    yield "node group", "late"


def make_policy(world: Small, name: str) -> str:
    statement = {"Effect": "Allow", "Action": "eks:DescribeCluster", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    return str(
        world.client("iam").create_policy(PolicyName=name, PolicyDocument=document)["Policy"]["Arn"]
    )


@pytest.fixture(scope="module")
def orphan_worlds(endpoint, tmp_path_factory):
    """One orphan of each kind, the same of a neighbour, and what the search found of both."""
    folder = tmp_path_factory.mktemp("planted")
    worlds = {
        name: Small(environment=declared(folder, name), endpoint=endpoint, folder=folder)
        for name in (ENVIRONMENT, NEIGHBOUR)
    }
    plants = {
        name: [
            row
            for plant in (plant_in_ec2, plant_by_name, plant_in_eks)
            for row in plant(world, name)
        ]
        for name, world in worlds.items()
    }
    leftovers = {
        name: find_leftovers(world.account(), list(worlds)) for name, world in worlds.items()
    }
    return SimpleNamespace(plants=plants, leftovers=leftovers, world=worlds[ENVIRONMENT])


def key_of(orphan_worlds) -> str:
    return dict(orphan_worlds.plants[ENVIRONMENT])["KMS key"]


def search(orphan_worlds):
    return find_leftovers(orphan_worlds.world.account(), [NEIGHBOUR])


def test_orphan_of_each_kind_has_its_command(orphan_worlds):
    commands = {
        (resource.kind, resource.name): resource.remove
        for resource in orphan_worlds.leftovers[ENVIRONMENT].orphans
    }

    assert orphan_worlds.leftovers[ENVIRONMENT].failures == {}
    assert set(orphan_worlds.plants[ENVIRONMENT]) - set(commands) == set()
    for kind, name in orphan_worlds.plants[ENVIRONMENT]:
        assert "aws " in commands[kind, name]
        assert name.rpartition("/")[2] in commands[kind, name]


def test_nothing_of_a_neighbour_whose_name_begins_alike_is_found(orphan_worlds):
    leftovers, theirs = (
        {(resource.kind, resource.name) for resource in orphan_worlds.leftovers[name].orphans}
        for name in (ENVIRONMENT, NEIGHBOUR)
    )
    assert set(orphan_worlds.plants[NEIGHBOUR]) <= theirs
    # names within a cluster
    assert leftovers & set(orphan_worlds.plants[NEIGHBOUR]) <= set(
        orphan_worlds.plants[ENVIRONMENT]
    )


def test_what_stays_on_purpose_is_no_orphan(orphan_worlds):
    orphan_worlds.world.client("kms").schedule_key_deletion(
        KeyId=key_of(orphan_worlds), PendingWindowInDays=30
    )
    (resource,) = [
        resource for resource in search(orphan_worlds).kept if resource.kind == "KMS key"
    ]
    assert (resource.name, resource.remove) == (key_of(orphan_worlds), "")
    assert "KMS deletes it on" in resource.note


def test_the_policies_of_people_stay_and_another_kinds_does_not(orphan_worlds):
    arns = {
        end: make_policy(orphan_worlds.world, f"tandem-{ENVIRONMENT}-{end}")
        for end in (*names.PEOPLE, "auditor")
    }

    remainder = search(orphan_worlds)

    assert {resource.name for resource in remainder.kept if resource.kind == "policy"} == {
        arns[kind] for kind in names.PEOPLE
    }
    assert {resource.name for resource in remainder.orphans} & set(arns.values()) == {
        arns["auditor"]
    }


IN_A_CLUSTER = {"cluster", "node group"}


def test_untagged_resource_asks_for_its_owner_first(orphan_worlds):
    commands = [
        resource.remove
        for resource in orphan_worlds.leftovers[ENVIRONMENT].orphans
        if resource.kind in IN_A_CLUSTER
    ]
    question = (
        rf"no tag {names.OWNER_TAG}={ENVIRONMENT}: see whose it is "
        r"\(aws eks describe-(\S+ .+)\), and only if it is yours aws eks delete-\1"
    )
    assert [bool(re.fullmatch(question, command)) for command in commands] == [True] * 2


def test_a_terminated_instance_is_gone(orphan_worlds):
    node = dict(orphan_worlds.plants[ENVIRONMENT])["instance"]
    orphan_worlds.world.client("ec2").terminate_instances(InstanceIds=[node])
    leftovers = {resource.name: resource.note for resource in search(orphan_worlds).orphans}
    assert node not in leftovers or "shutting-down" in leftovers[node]


@pytest.mark.parametrize("kind", sorted(set(SEARCHES) - {"stacks"}))
def test_denied_search_names_the_missing_right(orphan_worlds, kind):
    operations: list[str] = []
    ownership = ResourceOwnership.discover(orphan_worlds.world.account(), [NEIGHBOUR])
    list(SEARCHES[kind](orphan_worlds.world.account(asked=operations), ownership))
    faults = {}
    for operation in set(operations):
        with pytest.raises(TandemError) as denial:
            list(SEARCHES[kind](orphan_worlds.world.account(denied=operation), ownership))
        faults[operation] = str(denial.value)

    assert operations
    assert all(
        "is denied" in text and "allow " in text and operation in text
        for operation, text in faults.items()
    )


def test_key_that_denies_us_hides_no_other(orphan_worlds, monkeypatch):
    account = orphan_worlds.world.account()
    ours = key_of(orphan_worlds)
    shut = account.client("kms").create_key(Description="closed")["KeyMetadata"]["KeyId"]
    ask = account.ask

    def asked(_self, service, operation, where, **parameters):
        if parameters.get("KeyId") == shut:
            raise AccessDeniedError(
                "DescribeKey is denied", where=where, change="allow kms:DescribeKey"
            )
        return ask(service, operation, where, **parameters)

    monkeypatch.setattr(type(account), "ask", asked)

    leftovers = [
        resource.name
        for resource in SEARCHES["KMS keys"](
            account, ResourceOwnership.discover(account, [NEIGHBOUR])
        )
    ]

    assert ours in leftovers
    assert shut not in leftovers


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("tandem-post", True),
        ("tandem-post-tools", True),
        ("/aws/eks/tandem-post/cluster", True),
        ("tandem-poster", False),
        ("tandem-post-us-east-2-tools", False),
        ("my-tandem-post", False),
        ("post", False),
    ],
)
def test_name_counts_to_its_last_part(name, ours):
    ownership = ResourceOwnership(
        name="post", cluster="tandem-post", neighbours=("post-us-east-2",)
    )
    assert ownership.has_own_name(name) is ours


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("post-Registry-Logs-ABC", "Registry"),
        ("post-ImageLmEval-BuildRole", "ImageLmEval"),
        ("/aws/lambda/post-Workloads-Kubectl", "Workloads"),
        ("post-images", ""),
        ("post-us-Registry-Logs", ""),
        ("repost-Registry-Logs", ""),
    ],
)
def test_a_generated_name_is_told_by_its_stack(name, kind):
    assert (
        ResourceOwnership(name="post", cluster="tandem-post", neighbours=()).find_stack_kind(name)
        == kind
    )


@pytest.mark.parametrize(
    ("namespace", "is_own"),
    [
        ("Tandem/post", True),
        ("Tandem/Guard/post", True),
        ("Tandem/Simulated/post", True),
        ("Tandem/Guard/post-too", False),
        ("Tandem/Guard", False),
        ("AWS/EC2", False),
    ],
)
def test_an_alarm_is_ours_by_the_namespace_of_its_metric(namespace, is_own):
    ownership = ResourceOwnership(name="post", cluster="tandem-post", neighbours=("post-too",))
    assert ownership.mentions_environment([namespace]) == is_own
