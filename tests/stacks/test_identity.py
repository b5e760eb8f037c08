"""Pod Identity: readers read, each writer writes its own, only this cluster's pods are any of them, bound by name."""

from __future__ import annotations

from typing import Any

import pytest
from assemblies import COMMITTED, KEY, Template, Templates, environment, hosted, resources

from tandem.spec.names import experiment_namespace

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


def test_measuring_knows_its_results_and_its_metrics_only(stack: Template) -> None:
    assert rights(stack, "tandem-bench") == {
        "s3:ListBucket": [f"{BUCKET}?results/*"],
        "s3:GetObject": [f"{BUCKET}/results/*"],
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
    assert rights(stacks["native-us-east-2-Cluster"], "tandem-stage")["secretsmanager:GetSecretValue"] == [HUB_ARN]


@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_role_trusts_one_account_of_this_cluster(stack: Template, account: str) -> None:
    (trust,) = role(stack, account)["AssumeRolePolicyDocument"]["Statement"]

    assert trust["Condition"] == {
        "StringEquals": {
            "aws:RequestTag/eks-cluster-arn": "arn:aws:eks:us-east-2:111122223333:cluster/tandem-post-us-east-2",
            "aws:RequestTag/kubernetes-service-account": account,
        },
        "StringLike": {"aws:RequestTag/kubernetes-namespace": "tandem-*"},
    }


@pytest.mark.parametrize("name", COMMITTED)
def test_every_experiment_has_every_account_bound_to_its_role(stacks: Templates, name: str) -> None:
    bound = {
        (found["Namespace"], found["ServiceAccount"], found["RoleArn"]["Fn::ImportValue"])
        for found in resources(stacks[f"{name}-Workloads"], "AWS::EKS::PodIdentityAssociation")
    }

    spaces = [experiment_namespace(experiment) for experiment in hosted(environment(name))]
    assert bound == {(space, account, f"{name}-Cluster-RoleArn-{account}") for space in spaces for account in ACCOUNTS}


def test_flux_pulls_a_private_chart_with_a_role_of_its_own(stacks: Templates) -> None:
    template = stacks["private-charts-Workloads"]
    ((role, found),) = (
        (name, each["Properties"]) for name, each in template["Resources"].items() if each["Type"] == "AWS::IAM::Role"
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
def test_a_bucket_under_a_customer_key_is_read_and_written_by_it(stacks: Templates, account: str) -> None:
    (statement,) = [
        statement
        for policy in role(stacks["customer-keys-Cluster"], account)["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        if "kms:Decrypt" in statement["Action"]
    ]

    assert statement["Resource"] == [KEY]
    assert ("kms:GenerateDataKey" in statement["Action"]) is (account != "tandem-serve")
    assert statement["Condition"] == {"StringEquals": {"kms:ViaService": "s3.us-east-2.amazonaws.com"}}
