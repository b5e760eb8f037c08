"""Pod Identity: who writes which prefix, and who is bound in which namespace."""

from __future__ import annotations

from typing import Any

import pytest
from assemblies import COMMITTED, Template, environment, hosted, of_type, resources

from tandem.declarations.names import bucket_name, experiment_namespace

pytestmark = pytest.mark.cdk

WRITTEN_PREFIXES: dict[str, list[str]] = {
    "tandem-serve": [],
    "tandem-stage": ["models/*"],
    "tandem-compile": ["artifacts/*"],
    "tandem-bench": ["results/*"],
}


def list_statements(stack: Template, account: str) -> list[dict[str, Any]]:
    """Return what the role of a service account may do."""
    (role_id,) = [
        output["Value"]["Fn::GetAtt"][0]
        for output in stack["Outputs"].values()
        if output["Export"]["Name"].endswith(f"-Cluster-RoleArn-{account}")
    ]
    (policy,) = stack["Resources"][role_id]["Properties"]["Policies"]
    return policy["PolicyDocument"]["Statement"]


@pytest.mark.parametrize("name", COMMITTED)
@pytest.mark.parametrize("account", WRITTEN_PREFIXES)
def test_account_writes_its_own_prefix_alone(stacks, name, account):
    bucket = f"arn:aws:s3:::{bucket_name(environment(name))}"
    writes = [
        statement["Resource"]
        for statement in list_statements(stacks[f"{name}-Cluster"], account)
        if "s3:PutObject" in statement["Action"]
    ]
    assert writes == [[f"{bucket}/{prefix}"] for prefix in WRITTEN_PREFIXES[account]]


def test_only_the_bench_reads_prompts(stacks):
    readers = [
        account
        for account in WRITTEN_PREFIXES
        if "/suites/*" in str(list_statements(stacks[f"{COMMITTED[0]}-Cluster"], account))
    ]
    assert readers == ["tandem-bench"]


def test_no_role_of_a_pod_deletes_objects(stacks):
    texts = [
        str(role)
        for _, role in of_type(stacks, "AWS::IAM::Role")
        if "pods.eks.amazonaws.com" in str(role["AssumeRolePolicyDocument"])
    ]
    assert len(texts) > len(WRITTEN_PREFIXES)
    assert [text for text in texts if "s3:DeleteObject" in text] == []


@pytest.mark.parametrize("name", COMMITTED)
def test_every_experiment_has_every_account_bound_to_its_role(stacks, name):
    bindings = {
        (binding["Namespace"], binding["ServiceAccount"], binding["RoleArn"]["Fn::ImportValue"])
        for binding in resources(stacks[f"{name}-Workloads"], "AWS::EKS::PodIdentityAssociation")
        if binding["ServiceAccount"] != "runner"
    }

    assert bindings == {
        (experiment_namespace(experiment), account, f"{name}-Cluster-RoleArn-{account}")
        for experiment in hosted(environment(name))
        for account in WRITTEN_PREFIXES
    }
