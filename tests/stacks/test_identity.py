"""Pod Identity: readers read, each writer writes its own, only this cluster's pods are any of them,
bound by name."""

from __future__ import annotations

from typing import Any

import pytest
from assemblies import COMMITTED, KEY, Template, Templates, environment, hosted, resources

from tandem.declarations.names import experiment_namespace

pytestmark = pytest.mark.cdk

BUCKET = "arn:aws:s3:::tandem-post-us-east-2-111122223333"
ACCOUNTS = ["tandem-serve", "tandem-stage", "tandem-compile", "tandem-bench"]


@pytest.fixture(scope="session")
def stack(stacks: Templates) -> Template:
    return stacks["post-us-east-2-Cluster"]


def role(stack: Template, account: str) -> dict[str, Any]:
    (name,) = [
        output["Value"]["Fn::GetAtt"][0]
        for output in stack["Outputs"].values()
        if output["Export"]["Name"].endswith(f"-Cluster-RoleArn-{account}")
    ]
    properties: dict[str, Any] = stack["Resources"][name]["Properties"]
    return properties


def rights(stack: Template, account: str) -> dict[str, list[str]]:
    """Return action -> resources, a condition on a prefix written behind the bucket."""
    found: dict[str, list[str]] = {}
    for policy in role(stack, account)["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            listed = statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix")
            where = [f"{BUCKET}?{prefix}" for prefix in listed] if listed else statement["Resource"]
            for action in statement["Action"]:
                found.setdefault(action, []).extend(where)
    return found


def test_a_server_reads_models_and_artifacts_and_writes_nothing(stack: Template) -> None:
    assert rights(stack, "tandem-serve") == {
        "s3:ListBucket": [f"{BUCKET}?models/*", f"{BUCKET}?artifacts/*"],
        "s3:GetObject": [f"{BUCKET}/models/*", f"{BUCKET}/artifacts/*"],
    }


def test_staging_writes_models_only(stack: Template) -> None:
    assert rights(stack, "tandem-stage") == {
        "s3:ListBucket": [f"{BUCKET}?models/*"],
        "s3:GetObject": [f"{BUCKET}/models/*"],
        "s3:PutObject": [f"{BUCKET}/models/*"],
        "s3:AbortMultipartUpload": [f"{BUCKET}/models/*"],
        "s3:ListBucketMultipartUploads": [BUCKET],
    }


def test_compiling_reads_models_and_writes_artifacts(stack: Template) -> None:
    assert rights(stack, "tandem-compile") == {
        "s3:ListBucket": [f"{BUCKET}?models/*", f"{BUCKET}?artifacts/*"],
        "s3:GetObject": [f"{BUCKET}/models/*", f"{BUCKET}/artifacts/*"],
        "s3:PutObject": [f"{BUCKET}/artifacts/*"],
        "s3:AbortMultipartUpload": [f"{BUCKET}/artifacts/*"],
        "s3:ListBucketMultipartUploads": [BUCKET],
    }


def test_measuring_reads_task_sets_and_writes_its_results_and_metrics_only(stack: Template) -> None:
    assert rights(stack, "tandem-bench") == {
        "s3:ListBucket": [f"{BUCKET}?tasks/*", f"{BUCKET}?results/*"],
        "s3:GetObject": [f"{BUCKET}/tasks/*", f"{BUCKET}/results/*"],
        "s3:PutObject": [f"{BUCKET}/results/*"],
        "s3:AbortMultipartUpload": [f"{BUCKET}/results/*"],
        "s3:ListBucketMultipartUploads": [BUCKET],
        "cloudwatch:PutMetricData": ["*"],
    }


def test_measuring_publishes_into_its_own_environments_namespaces_only(stack: Template) -> None:
    (statement,) = [
        statement
        for policy in role(stack, "tandem-bench")["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        if "cloudwatch:PutMetricData" in statement["Action"]
    ]

    spaces = ["Tandem/post-us-east-2", "Tandem/Simulated/post-us-east-2"]
    assert statement["Condition"] == {"StringEquals": {"cloudwatch:namespace": spaces}}
    assert statement["Action"] == ["cloudwatch:PutMetricData"]


HUB_ARN = "arn:aws:secretsmanager:us-east-2:111122223333:secret:tandem/hub-token-??????"


def test_staging_reads_the_one_secret_that_is_declared(stacks: Templates) -> None:
    assert rights(stacks["native-us-east-2-Cluster"], "tandem-stage")[
        "secretsmanager:GetSecretValue"
    ] == [HUB_ARN]


@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_role_trusts_one_account_of_this_cluster(stack: Template, account: str) -> None:
    (trust,) = role(stack, account)["AssumeRolePolicyDocument"]["Statement"]

    assert trust["Condition"] == {
        "StringEquals": {
            "aws:RequestTag/eks-cluster-arn": (
                "arn:aws:eks:us-east-2:111122223333:cluster/tandem-post-us-east-2"
            ),
            "aws:RequestTag/kubernetes-service-account": account,
        },
        "StringLike": {"aws:RequestTag/kubernetes-namespace": "tandem-*"},
    }


@pytest.mark.parametrize("name", COMMITTED)
def test_every_experiment_has_every_account_bound_to_its_role(stacks: Templates, name: str) -> None:
    bound = {
        (found["Namespace"], found["ServiceAccount"], found["RoleArn"]["Fn::ImportValue"])
        for found in resources(stacks[f"{name}-Workloads"], "AWS::EKS::PodIdentityAssociation")
        if found["ServiceAccount"] != "runner"
    }

    spaces = [experiment_namespace(experiment) for experiment in hosted(environment(name))]
    assert bound == {
        (space, account, f"{name}-Cluster-RoleArn-{account}")
        for space in spaces
        for account in ACCOUNTS
    }


def runner_role(stacks: Templates, name: str = "post-us-east-2") -> dict[str, Any]:
    """The role that the runner's account is bound to."""
    template = stacks[f"{name}-Workloads"]
    (bound,) = resources(template, "AWS::EKS::PodIdentityAssociation", ServiceAccount="runner")
    assert (bound["Namespace"], bound["ClusterName"]) == ("runner-system", f"tandem-{name}")
    properties: dict[str, Any] = template["Resources"][bound["RoleArn"]["Fn::GetAtt"][0]][
        "Properties"
    ]
    return properties


def runner_rights(stacks: Templates, name: str = "post-us-east-2") -> dict[str, set[str]]:
    """Return action -> resources of the runner."""
    (policy,) = runner_role(stacks, name)["Policies"]
    found: dict[str, set[str]] = {}
    for statement in policy["PolicyDocument"]["Statement"]:
        for action in statement["Action"]:
            found.setdefault(action, set()).update(statement["Resource"])
    return found


def test_the_runner_may_start_relabel_and_end_and_keep_its_journal(stacks: Templates) -> None:
    arn = "arn:aws:{0}:us-east-2:111122223333:{1}".format
    assert runner_rights(stacks) == {
        "s3:ListBucket": {BUCKET},
        "s3:GetObject": {
            f"{BUCKET}/{key}"
            for key in (
                "requests/*",
                "stage-requests/*",
                "runs/*",
                "runner.json",
                "stop.json",
                "lease.json",
                "runs/*/lease.json",
                "runs/*/heartbeat.json",
                "models/*",
                "artifacts/*",
                "tasks/*",
                "results/*",
            )
        },
        "s3:PutObject": {
            f"{BUCKET}/{key}"
            for key in (
                "requests/*.answer.json",
                "stage-requests/*.answer.json",
                "runs/*",
                "runner.json",
                "lease.json",
                "runs/*/lease.json",
                "stop.json",
            )
        },
        "eks:DescribeNodegroup": {
            arn("eks", "nodegroup/tandem-post-us-east-2/post-us-east-2-trn2/*")
        },
        "eks:UpdateNodegroupConfig": {
            arn("eks", "nodegroup/tandem-post-us-east-2/post-us-east-2-trn2/*")
        },
        "ec2:DescribeCapacityReservations": {"*"},
        "ec2:DescribeInstances": {"*"},
        "autoscaling:DescribeAutoScalingGroups": {"*"},
        "autoscaling:DescribeScalingActivities": {"*"},
        "autoscaling:ResumeProcesses": {
            arn("autoscaling", "autoScalingGroup:*:autoScalingGroupName/*")
        },
        "scheduler:ListSchedules": {"*"},
        **{
            f"scheduler:{verb}Schedule": {arn("scheduler", "schedule/tandem-post-us-east-2/*")}
            for verb in ("Create", "Get", "Delete")
        },
        "iam:PassRole": {"arn:aws:iam::111122223333:role/tandem-post-us-east-2-scheduler"},
        "cloudwatch:GetMetricStatistics": {"*"},
        "lambda:GetFunctionConfiguration": {
            arn("lambda", f"function:tandem-post-us-east-2-{kind}") for kind in ("stop", "reap")
        },
        "budgets:ViewBudget": {
            "arn:aws:budgets::111122223333:budget/tandem-post-us-east-2-monthly"
        },
        "sns:Publish": {arn("sns", "tandem-post-us-east-2-alarms")},
        "kms:Decrypt": {arn("kms", "key/*")},
        "kms:GenerateDataKey": {arn("kms", "key/*")},
    }


def test_what_the_runner_may_without_an_id_is_bound_by_a_condition(stacks: Templates) -> None:
    (policy,) = runner_role(stacks)["Policies"]
    conditions = {
        action: statement.get("Condition")
        for statement in policy["PolicyDocument"]["Statement"]
        for action in statement["Action"]
    }
    assert conditions["iam:PassRole"] == {
        "StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}
    }
    for action in ("ec2:DescribeInstances", "ec2:DescribeCapacityReservations"):
        assert conditions[action] == {"StringEquals": {"aws:RequestedRegion": "us-east-2"}}
    assert conditions["kms:GenerateDataKey"] == {
        "StringEquals": {
            "kms:ViaService": ["sns.us-east-2.amazonaws.com", "sqs.us-east-2.amazonaws.com"]
        },
        "ForAnyValue:StringEquals": {"kms:ResourceAliases": "alias/tandem-post-us-east-2-guard"},
    }
    assert conditions["autoscaling:ResumeProcesses"] == {
        "StringEquals": {
            "aws:ResourceTag/eks:cluster-name": "tandem-post-us-east-2",
            "aws:ResourceTag/eks:nodegroup-name": "post-us-east-2-trn2",
        }
    }


def test_the_topics_key_admits_whom_iam_admits(stacks: Templates) -> None:
    """Its policy hands these actions to the account, so that the runner's own right is enough to
    publish."""
    (key,) = resources(stacks["post-us-east-2-Guard"], "AWS::KMS::Key")
    (owner,) = [each for each in key["KeyPolicy"]["Statement"] if "AWS" in each["Principal"]]
    assert owner["Principal"] == {"AWS": "arn:aws:iam::111122223333:root"}
    assert {"kms:Decrypt", "kms:GenerateDataKey"} <= set(owner["Action"])
    assert "Condition" not in owner


def test_under_a_customers_key_the_runner_may_use_it_for_s3_alone(stacks: Templates) -> None:
    rights = runner_rights(stacks, "customer-keys")
    assert {key for key in rights["kms:GenerateDataKey"] if not key.endswith("key/*")} == {KEY}
    assert {key for key in rights["kms:Decrypt"] if not key.endswith("key/*")} == {KEY}


def test_the_runners_role_is_for_its_account_in_its_namespace(stacks: Templates) -> None:
    (trust,) = runner_role(stacks)["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Condition"] == {
        "StringEquals": {
            "aws:RequestTag/eks-cluster-arn": (
                "arn:aws:eks:us-east-2:111122223333:cluster/tandem-post-us-east-2"
            ),
            "aws:RequestTag/kubernetes-service-account": "runner",
        },
        "StringLike": {"aws:RequestTag/kubernetes-namespace": "runner-system"},
    }


def test_flux_pulls_a_private_chart_with_a_role_of_its_own(stacks: Templates) -> None:
    template = stacks["private-charts-Workloads"]
    ((role, found),) = (
        (name, each["Properties"])
        for name, each in template["Resources"].items()
        if each["Type"] == "AWS::IAM::Role" and not name.startswith("RunnerIdentity")
    )
    (bound,) = (
        each
        for each in resources(template, "AWS::EKS::PodIdentityAssociation")
        if each["ServiceAccount"] == "source-controller"
    )
    statements = found["Policies"][0]["PolicyDocument"]["Statement"]

    assert (bound["Namespace"], bound["RoleArn"]) == ("flux-system", {"Fn::GetAtt": [role, "Arn"]})
    assert [statement["Resource"] for statement in statements] == [
        ["*"],
        ["arn:aws:ecr:us-east-2:111122223333:repository/ecr-public/neuron/neuron-helm-chart"],
    ]


def test_a_node_may_join_and_pull_and_nothing_else(stacks: Templates) -> None:
    exported = stacks["post-us-east-2-Cluster"]["Outputs"]["NodeRoleArn"]["Value"]["Fn::GetAtt"][0]
    node = stacks["post-us-east-2-Cluster"]["Resources"][exported]["Properties"]

    assert "Policies" not in node
    assert [arn.rpartition("/")[2] for arn in node["ManagedPolicyArns"]] == [
        "AmazonEKSWorkerNodePolicy",
        "AmazonEC2ContainerRegistryPullOnly",
    ]


@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_bucket_under_a_customer_key_is_read_and_written_by_it(
    stacks: Templates, account: str
) -> None:
    (statement,) = [
        statement
        for policy in role(stacks["customer-keys-Cluster"], account)["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        if "kms:Decrypt" in statement["Action"]
    ]

    assert statement["Resource"] == [KEY]
    assert ("kms:GenerateDataKey" in statement["Action"]) is (account != "tandem-serve")
    assert statement["Condition"] == {
        "StringEquals": {"kms:ViaService": "s3.us-east-2.amazonaws.com"}
    }
