"""Access entries: four kinds of people, and the kubectl handler where there is one."""

from __future__ import annotations

from typing import Any

import pytest
from assemblies import Templates, resources

pytestmark = pytest.mark.cdk

CLUSTER_WIDE = {"Type": "cluster"}


def granted(stacks: Templates, person: str) -> tuple[str, dict[str, Any]]:
    entries = resources(stacks["post-us-east-2-Cluster"], "AWS::EKS::AccessEntry")
    (entry,) = [entry for entry in entries if entry["PrincipalArn"].endswith(f"/{person}")]
    (policy,) = entry["AccessPolicies"]
    return policy["PolicyArn"].rpartition("/")[2], policy["AccessScope"]


def test_an_admin_may_do_everything(stacks: Templates) -> None:
    assert granted(stacks, "PlatformAdmin") == ("AmazonEKSClusterAdminPolicy", CLUSTER_WIDE)


def test_an_operator_edits_everywhere_and_grants_nothing(stacks: Templates) -> None:
    assert granted(stacks, "Operator") == ("AmazonEKSEditPolicy", CLUSTER_WIDE)


def test_an_engineer_edits_every_experiments_namespace_and_no_other(stacks: Templates) -> None:
    scope = {"Type": "namespace", "Namespaces": ["tandem-*"]}

    assert granted(stacks, "MlEngineer") == ("AmazonEKSEditPolicy", scope)


def test_a_viewer_reads_everywhere(stacks: Templates) -> None:
    assert granted(stacks, "Viewer") == ("AmazonEKSViewPolicy", CLUSTER_WIDE)


def test_nobody_else_enters(stacks: Templates) -> None:
    assert len(resources(stacks["post-us-east-2-Cluster"], "AWS::EKS::AccessEntry")) == 4


def test_principals_that_differ_by_a_path_have_an_entry_each(stacks: Templates) -> None:
    entries = resources(stacks["alike-admins-Cluster"], "AWS::EKS::AccessEntry")

    assert {entry["PrincipalArn"].partition("role/")[2] for entry in entries} >= {"team/Admin", "team-Admin"}
