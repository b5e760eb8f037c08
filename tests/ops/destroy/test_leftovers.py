"""Orphans: one of each kind is found and told how to remove it; what is a neighbour's or another tool's is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from small_stacks import ACCOUNT, Small, declared

from tandem.ops.faults import AccessDeniedError, OperationError
from tandem.ops.leftovers import SEARCHES, search_leftovers
from tandem.ops.ownership import ResourceOwnership
from tandem.spec import names

ENVIRONMENT = "orphan"
NEIGHBOUR = "orphan-too"  # begins with the same name
TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})
Plant = Callable[[Small, str], str]


def tagged(kind: str, tags: dict[str, str]) -> list[dict]:
    rows = [{"Key": key, "Value": value} for key, value in tags.items()]
    return [{"ResourceType": kind, "Tags": rows}]


def marks(name: str) -> dict[str, dict[str, str]]:
    return {
        "ours": {names.OWNER_TAG: name}, "cni": {"cluster.k8s.amazonaws.com/name": f"tandem-{name}"},
        "in-tree": {f"kubernetes.io/cluster/tandem-{name}": "owned"}, "eks": {"eks:cluster-name": f"tandem-{name}"},
    }  # fmt: skip


def subnet(ec2) -> str:
    found = ec2.describe_subnets()["Subnets"]
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    return (
        found[0]["SubnetId"] if found else ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    )


def instance(one, name):
    said = one.client("ec2").run_instances(
        ImageId="ami-1", MinCount=1, MaxCount=1, TagSpecifications=tagged("instance", marks(name)["eks"])
    )
    return said["Instances"][0]["InstanceId"]


def interface(one, name):
    ec2 = one.client("ec2")
    made = ec2.create_network_interface(SubnetId=subnet(ec2))["NetworkInterface"]["NetworkInterfaceId"]
    ec2.create_tags(Resources=[made], Tags=[{"Key": key, "Value": value} for key, value in marks(name)["cni"].items()])
    return made


def eks_interface(one, name):
    ec2 = one.client("ec2")
    said = ec2.create_network_interface(SubnetId=subnet(ec2), Description=f"Amazon EKS tandem-{name}")
    return said["NetworkInterface"]["NetworkInterfaceId"]


def volume(one, name):
    specifications = tagged("volume", marks(name)["in-tree"])
    return one.client("ec2").create_volume(
        AvailabilityZone="us-east-2a", Size=1, TagSpecifications=specifications
    )["VolumeId"]  # fmt: skip


def snapshot(one, name):
    ec2 = one.client("ec2")
    of = ec2.create_volume(AvailabilityZone="us-east-2a", Size=1)["VolumeId"]
    return ec2.create_snapshot(VolumeId=of, TagSpecifications=tagged("snapshot", marks(name)["in-tree"]))["SnapshotId"]


def address(one, name):
    ec2 = one.client("ec2")
    made = ec2.allocate_address(Domain="vpc")["AllocationId"]
    ec2.create_tags(Resources=[made], Tags=[{"Key": names.OWNER_TAG, "Value": name}])
    return made


def security_group(one, name):
    ec2 = one.client("ec2")
    return ec2.create_security_group(GroupName=f"eks-cluster-sg-tandem-{name}-1234567", Description="EKS")["GroupId"]


def vpc(one, name):
    specifications = tagged("vpc", marks(name)["ours"])
    return one.client("ec2").create_vpc(CidrBlock="10.9.0.0/16", TagSpecifications=specifications)["Vpc"]["VpcId"]


def launch_template(one, name):
    said = one.client("ec2").create_launch_template(
        LaunchTemplateName=f"tandem-{name}-nodes", LaunchTemplateData={"InstanceType": "m7i.large"}
    )
    return said["LaunchTemplate"]["LaunchTemplateId"]


def load_balancer(one, name):
    elb = one.client("elbv2")
    tags = [{"Key": "elbv2.k8s.aws/cluster", "Value": f"tandem-{name}"}]
    said = elb.create_load_balancer(Name=f"k8s-{name}", Subnets=[subnet(one.client("ec2"))], Tags=tags)
    return said["LoadBalancers"][0]["LoadBalancerArn"]


def target_group(one, name):
    tags = [{"Key": "elbv2.k8s.aws/cluster", "Value": f"tandem-{name}"}]
    said = one.client("elbv2").create_target_group(
        Name=f"k8s-{name}", Protocol="TCP", Port=80, VpcId="vpc-1", Tags=tags
    )
    return said["TargetGroups"][0]["TargetGroupArn"]


def log_group(one, name):
    made = f"/aws/eks/tandem-{name}/cluster"
    one.client("logs").create_log_group(logGroupName=made)
    return made


def function_log_group(one, name):
    made = f"/aws/lambda/{name}-Guard-Reap1234"
    one.client("logs").create_log_group(logGroupName=made)
    return made


def schedule(one, name):
    scheduler, group = one.client("scheduler"), f"tandem-{name}"
    scheduler.create_schedule_group(Name=group)
    target = {"Arn": f"arn:aws:sqs:us-east-2:{ACCOUNT}:q", "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/r"}
    scheduler.create_schedule(
        Name="stop-r1", GroupName=group, ScheduleExpression="at(2036-01-01T00:00:00)", Target=target,
        FlexibleTimeWindow={"Mode": "OFF"},
    )  # fmt: skip
    return f"{group}/stop-r1"


def schedule_group(_one, name):
    return f"tandem-{name}"  # the schedule's


def rule(one, name):
    made = f"{name}-Guard-ReapEvery5"
    one.client("events").put_rule(Name=made, ScheduleExpression="rate(5 minutes)")
    return made


def role(one, name):
    made = f"{name}-Guard-StopRole-ABC123"
    one.client("iam").create_role(
        RoleName=made, AssumeRolePolicyDocument=TRUST, Tags=[{"Key": names.OWNER_TAG, "Value": name}]
    )
    return made


def policy(one, name):
    statement = {"Effect": "Allow", "Action": "eks:DescribeCluster", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    return one.client("iam").create_policy(PolicyName=f"tandem-{name}-reader", PolicyDocument=document)["Policy"]["Arn"]


def repository(one, name):
    made = f"tandem-{name}-tools"
    one.client("ecr").create_repository(repositoryName=made)
    return made


def key(one, name):
    tags = [{"TagKey": names.OWNER_TAG, "TagValue": name}]
    return one.client("kms").create_key(Description="secrets", Tags=tags)["KeyMetadata"]["KeyId"]


def dashboard(one, name):
    made = f"tandem-{name}-machine"
    one.client("cloudwatch").put_dashboard(DashboardName=made, DashboardBody='{"widgets": []}')
    return made


def alarm(one, name):
    made = f"{name}-errors"
    one.client("cloudwatch").put_metric_alarm(
        AlarmName=made, Namespace=f"Tandem/{name}", MetricName="errors", Statistic="Sum", Period=60,
        EvaluationPeriods=1, Threshold=1, ComparisonOperator="GreaterThanThreshold",
    )  # fmt: skip
    return made


def topic(one, name):
    one.client("sns").create_topic(Name=f"tandem-{name}-guard")
    return f"tandem-{name}-guard"


def queue(one, name):
    one.client("sqs").create_queue(QueueName=f"tandem-{name}-dead-letters")
    return f"tandem-{name}-dead-letters"


def function(one, name):
    made = f"tandem-{name}-stop"
    one.client("lambda").create_function(
        FunctionName=made, Role=f"arn:aws:iam::{ACCOUNT}:role/r", Runtime="python3.13", Handler="h.h",
        Code={"ZipFile": b"PK\x05\x06" + b"\0" * 18},
    )  # fmt: skip
    return made


def project(one, name):
    made = f"tandem-{name}-tools"
    one.client("codebuild").create_project(
        name=made, source={"type": "NO_SOURCE"}, artifacts={"type": "NO_ARTIFACTS"},
        environment={"type": "LINUX_CONTAINER", "image": "i", "computeType": "BUILD_GENERAL1_SMALL"},
        serviceRole=f"arn:aws:iam::{ACCOUNT}:role/r",
    )  # fmt: skip
    return made


def budget(one, name):
    made = f"tandem-{name}"
    one.client("budgets").create_budget(AccountId=ACCOUNT, Budget={
        "BudgetName": made, "BudgetType": "COST", "TimeUnit": "MONTHLY",
        "BudgetLimit": {"Amount": "1", "Unit": "USD"},
    })  # fmt: skip
    return made


def cluster(one, name):
    made = f"tandem-{name}"
    one.client("eks").create_cluster(
        name=made, roleArn=f"arn:aws:iam::{ACCOUNT}:role/r", resourcesVpcConfig={"subnetIds": ["subnet-1"]}
    )
    return made


def node_group(one, name):
    one.client("eks").create_nodegroup(
        clusterName=f"tandem-{name}", nodegroupName="late", subnets=["subnet-1"],
        nodeRole=f"arn:aws:iam::{ACCOUNT}:role/r", scalingConfig={"minSize": 0, "desiredSize": 0, "maxSize": 1},
    )  # fmt: skip
    return "late"


def association(one, name):
    said = one.client("eks").create_pod_identity_association(
        clusterName=f"tandem-{name}", namespace="tandem-post", serviceAccount="tandem-serve",
        roleArn=f"arn:aws:iam::{ACCOUNT}:role/r",
    )  # fmt: skip
    return said["association"]["associationId"]


PLANTS: list[tuple[str, Plant]] = [
    ("instance", instance), ("network interface", interface), ("network interface", eks_interface), ("volume", volume),
    ("snapshot", snapshot), ("elastic IP", address), ("security group", security_group), ("VPC", vpc),
    ("launch template", launch_template), ("load balancer", load_balancer), ("target group", target_group),
    ("log group", log_group), ("log group", function_log_group), ("schedule", schedule),
    ("schedule group", schedule_group), ("EventBridge rule", rule), ("role", role), ("policy", policy),
    ("ECR repository", repository), ("KMS key", key), ("dashboard", dashboard), ("alarm", alarm), ("SNS topic", topic),
    ("SQS queue", queue), ("Lambda function", function), ("CodeBuild project", project), ("budget", budget),
    ("cluster", cluster), ("node group", node_group), ("Pod Identity association", association),
]  # fmt: skip
IDS = [plant.__name__ for _, plant in PLANTS]


@pytest.fixture(scope="module")
def planted(endpoint, tmp_path_factory):
    """One orphan of each kind, the same of a neighbour, and what the search found of both."""
    folder = tmp_path_factory.mktemp("planted")
    both = {name: Small(environment=declared(folder, name), endpoint=endpoint, folder=folder)
            for name in (ENVIRONMENT, NEIGHBOUR)}  # fmt: skip
    names_of = {name: [plant(one, name) for _, plant in PLANTS] for name, one in both.items()}
    found = {name: search_leftovers(one.account(), list(both)) for name, one in both.items()}
    return SimpleNamespace(names=names_of, found=found, one=both[ENVIRONMENT])


@pytest.mark.parametrize("number", range(len(PLANTS)), ids=IDS)
def test_an_orphan_of_each_kind_is_found_with_the_command_that_removes_it(planted, number):
    kind, name = PLANTS[number][0], planted.names[ENVIRONMENT][number]

    (found,) = [one for one in planted.found[ENVIRONMENT].orphans if (one.kind, one.name) == (kind, name)]

    assert "aws " in found.remove
    assert name.rpartition("/")[2] in found.remove


@pytest.mark.parametrize("number", range(len(PLANTS)), ids=IDS)
def test_nothing_of_a_neighbour_whose_name_begins_alike_is_found(planted, number):
    theirs = planted.names[NEIGHBOUR][number]
    kind = PLANTS[number][0]

    found = {(one.kind, one.name) for one in planted.found[ENVIRONMENT].orphans}

    assert (kind, theirs) not in found or theirs == planted.names[ENVIRONMENT][number]
    assert (kind, theirs) in {(one.kind, one.name) for one in planted.found[NEIGHBOUR].orphans}


def test_a_node_group_is_listed_before_its_instances_which_it_would_replace(planted):
    kinds = list(dict.fromkeys(one.kind for one in planted.found[ENVIRONMENT].orphans))

    assert kinds[:4] == ["node group", "instance", "Pod Identity association", "cluster"]


def test_every_kind_was_searched(planted):
    assert planted.found[ENVIRONMENT].search_failures == ()


def test_what_stays_on_purpose_is_no_orphan(planted):
    kms, key_id = planted.one.client("kms"), planted.names[ENVIRONMENT][IDS.index("key")]
    kms.schedule_key_deletion(KeyId=key_id, PendingWindowInDays=30)

    left = search_leftovers(planted.one.account(), [NEIGHBOUR])

    (kept,) = [one for one in left.permanent_resources if one.kind == "KMS key"]
    assert (kept.name, kept.remove) == (key_id, "")
    assert "KMS deletes it on" in kept.note


def test_the_policies_of_people_stay_and_another_kinds_does_not(planted):
    iam, name = planted.one.client("iam"), planted.one.environment.name
    statement = {"Effect": "Allow", "Action": "eks:DescribeCluster", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    made = {
        end: iam.create_policy(PolicyName=f"tandem-{name}-{end}", PolicyDocument=document)["Policy"]["Arn"]
        for end in (*names.PEOPLE, "auditor")
    }

    left = search_leftovers(planted.one.account(), [NEIGHBOUR])

    kept = {one.name for one in left.permanent_resources if one.kind == "policy"}
    orphans = {one.name for one in left.orphans if one.kind == "policy"}
    assert kept == {made[kind] for kind in names.PEOPLE}
    assert orphans & set(made.values()) == {made["auditor"]}


@pytest.mark.parametrize("kind", ["cluster", "node group", "Pod Identity association"])
def test_what_is_perhaps_anothers_is_removed_only_by_who_has_looked_whose_it_is(planted, kind):
    [command] = [one.remove for one in planted.found[ENVIRONMENT].orphans if one.kind == kind]

    assert command.startswith(f"no tag {names.OWNER_TAG}={ENVIRONMENT}: see whose it is (aws eks describe-")


@pytest.mark.parametrize("kind", ["cluster", "node group", "Pod Identity association"])
def test_what_is_ours_by_its_tag_has_its_command_alone(small, kind):
    one = small()
    tags = {"tags": {names.OWNER_TAG: one.name}}
    eks, made = one.client("eks"), names.cluster_name(one.environment)
    role = f"arn:aws:iam::{ACCOUNT}:role/r"
    eks.create_cluster(name=made, roleArn=role, resourcesVpcConfig={"subnetIds": ["subnet-1"]}, **tags)
    node_group(one, one.name)
    association(one, one.name)
    group = eks.describe_nodegroup(clusterName=made, nodegroupName="late")["nodegroup"]
    eks.tag_resource(resourceArn=group["nodegroupArn"], **tags)
    found = SEARCHES["clusters"](one.account(), ResourceOwnership.discover(one.account()))

    [command] = [left.remove for left in found if left.kind == kind]

    assert command.startswith("aws eks delete-")


def test_an_alarm_of_another_tool_that_begins_with_the_same_name_is_not_ours(planted):
    planted.one.client("cloudwatch").put_metric_alarm(
        AlarmName=f"{ENVIRONMENT}-cpu", Namespace="AWS/EC2", MetricName="CPUUtilization", Statistic="Average",
        Period=60, EvaluationPeriods=1, Threshold=90, ComparisonOperator="GreaterThanThreshold",
    )  # fmt: skip

    assert f"{ENVIRONMENT}-cpu" not in {
        one.name for one in search_leftovers(planted.one.account(), [NEIGHBOUR]).orphans
    }


def test_a_terminated_instance_is_gone(planted):
    node = instance(planted.one, ENVIRONMENT)
    planted.one.client("ec2").terminate_instances(InstanceIds=[node])

    found = {one.name: one.note for one in search_leftovers(planted.one.account(), [NEIGHBOUR]).orphans}

    assert node not in found or "shutting-down" in found[node]


@pytest.mark.parametrize("kind", sorted(set(SEARCHES) - {"stacks"}))
def test_a_kind_that_may_not_be_searched_is_told_with_the_right_that_is_missing(planted, kind):
    asked: list[str] = []
    owned = ResourceOwnership.discover(planted.one.account(), [NEIGHBOUR])
    list(SEARCHES[kind](planted.one.account(asked=asked), owned))
    faults = {}
    for operation in set(asked):
        with pytest.raises(OperationError) as denied:
            list(SEARCHES[kind](planted.one.account(denied=operation), owned))
        faults[operation] = str(denied.value)

    assert asked
    assert all("is denied" in said and "allow " in said and operation in said for operation, said in faults.items())


def test_a_key_that_shuts_this_identity_out_is_anothers_and_hides_no_other(planted, monkeypatch):
    account, ours = planted.one.account(), planted.names[ENVIRONMENT][IDS.index("key")]
    shut = account.client("kms").create_key(Description="closed")["KeyMetadata"]["KeyId"]
    ask = account.ask

    def asked(_self, service, operation, where, **parameters):
        if parameters.get("KeyId") == shut:
            raise AccessDeniedError("DescribeKey is denied", where=where, change="allow kms:DescribeKey")
        return ask(service, operation, where, **parameters)

    monkeypatch.setattr(type(account), "ask", asked)

    found = [one.name for one in SEARCHES["KMS keys"](account, ResourceOwnership.discover(account, [NEIGHBOUR]))]

    assert (ours in found, shut in found) == (True, False)


def test_a_denied_kind_does_not_end_the_search_of_the_others(planted):
    left = search_leftovers(planted.one.account(denied="ListKeys"), [NEIGHBOUR])

    assert [one.kind for one in left.search_failures] == ["KMS keys"]
    assert any(one.kind == "snapshot" for one in left.orphans)


@pytest.mark.parametrize(
    ("name", "ours"),
    [("tandem-post", True), ("tandem-post-tools", True), ("/aws/eks/tandem-post/cluster", True),
     ("tandem-poster", False), ("tandem-post-us-east-2-tools", False), ("my-tandem-post", False), ("post", False)],
)  # fmt: skip
def test_a_name_counts_to_its_last_part_and_never_where_it_is_a_neighbours(name, ours):
    owned = ResourceOwnership(name="post", cluster="tandem-post", neighbours=("post-us-east-2",))

    assert owned.has_own_name(name) is ours


@pytest.mark.parametrize(
    ("name", "kind"),
    [("post-Image-Logs-ABC", "Image"), ("/aws/lambda/post-Workloads-Kubectl", "Workloads"), ("post-images", ""),
     ("post-us-Image-Logs", ""), ("repost-Image-Logs", "")],
)  # fmt: skip
def test_a_generated_name_is_told_by_its_stack(name, kind):
    assert ResourceOwnership(name="post", cluster="tandem-post", neighbours=()).find_stack_kind(name) == kind
