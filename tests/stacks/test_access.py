"""Access entries: four kinds of people, and the kubectl handler where there is one."""

from __future__ import annotations

from typing import Any

import pytest
from assemblies import Templates, resources

pytestmark = pytest.mark.cdk

Entry = dict[str, Any]


def entry_of(stacks: Templates, person: str) -> Entry:
    entries = resources(stacks["post-us-east-2-Cluster"], "AWS::EKS::AccessEntry")
    (entry,) = [entry for entry in entries if entry["PrincipalArn"].endswith(f"/{person}")]
    return entry


def test_an_admin_has_the_cluster_admin_policy_and_no_group(stacks: Templates) -> None:
    entry = entry_of(stacks, "PlatformAdmin")
    (policy,) = entry["AccessPolicies"]

    assert policy["PolicyArn"].rpartition("/")[2] == "AmazonEKSClusterAdminPolicy"
    assert policy["AccessScope"] == {"Type": "cluster"}
    assert "KubernetesGroups" not in entry


@pytest.mark.parametrize(
    ("person", "kind"), [("Operator", "operator"), ("MlEngineer", "engineer"), ("Viewer", "viewer")]
)
def test_the_others_have_their_group_and_no_policy(stacks: Templates, person: str, kind: str) -> None:
    entry = entry_of(stacks, person)

    assert (entry["KubernetesGroups"], "AccessPolicies" in entry) == ([f"tandem-{kind}"], False)


def test_the_function_that_applies_manifests_is_known_to_admission(stacks: Templates) -> None:
    (entry,) = resources(stacks["post-us-east-2-Workloads"], "AWS::EKS::AccessEntry")

    assert entry["KubernetesGroups"] == ["tandem-delivery"]


def test_nobody_else_enters(stacks: Templates) -> None:
    assert len(resources(stacks["post-us-east-2-Cluster"], "AWS::EKS::AccessEntry")) == 4


def test_principals_that_differ_by_a_path_have_an_entry_each(stacks: Templates) -> None:
    entries = resources(stacks["alike-admins-Cluster"], "AWS::EKS::AccessEntry")

    assert {entry["PrincipalArn"].partition("role/")[2] for entry in entries} >= {"team/Admin", "team-Admin"}
