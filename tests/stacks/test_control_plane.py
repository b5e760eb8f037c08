"""The control plane: what EKS leaves open by default is closed, said outright."""

from __future__ import annotations

from typing import Any

import pytest
from assemblies import GROUP, RANGE, Template, Templates, one, resources

pytestmark = pytest.mark.cdk


@pytest.fixture(scope="session")
def cluster(stacks: Templates) -> dict[str, Any]:
    return one(stacks["post-us-east-2-Cluster"], "AWS::EKS::Cluster")


@pytest.fixture(scope="session")
def stack(stacks: Templates) -> Template:
    return stacks["post-us-east-2-Cluster"]


def test_a_private_endpoint_is_closed_to_the_internet(cluster: dict[str, Any]) -> None:
    vpc = cluster["ResourcesVpcConfig"]

    assert (vpc["EndpointPrivateAccess"], vpc["EndpointPublicAccess"]) == (True, False)


def test_a_public_endpoint_admits_the_named_ranges_only(stacks: Templates) -> None:
    vpc = one(stacks["public-endpoint-Cluster"], "AWS::EKS::Cluster")["ResourcesVpcConfig"]

    assert (vpc["EndpointPublicAccess"], vpc["PublicAccessCidrs"]) == (True, ["203.0.113.0/24"])


def test_nodes_use_the_private_way_to_a_public_endpoint(stacks: Templates) -> None:
    assert one(stacks["public-endpoint-Cluster"], "AWS::EKS::Cluster")["ResourcesVpcConfig"]["EndpointPrivateAccess"]


def test_no_cluster_is_open_to_the_world(stacks: Templates) -> None:
    clusters = [found for template in stacks.values() for found in resources(template, "AWS::EKS::Cluster")]

    opened = [
        found["Name"]
        for found in clusters
        if found["ResourcesVpcConfig"].get("EndpointPublicAccess") is not False
        and "0.0.0.0/0" in found["ResourcesVpcConfig"].get("PublicAccessCidrs", ["0.0.0.0/0"])
    ]
    assert opened == []


def test_rights_come_from_access_entries_alone(cluster: dict[str, Any]) -> None:
    access = cluster["AccessConfig"]

    assert access == {"AuthenticationMode": "API", "BootstrapClusterCreatorAdminPermissions": False}


def test_the_log_group_is_there_before_the_cluster(stack: Template) -> None:
    (cluster,) = [found for found in stack["Resources"].values() if found["Type"] == "AWS::EKS::Cluster"]

    assert [stack["Resources"][name]["Type"] for name in cluster["DependsOn"]] == ["AWS::Logs::LogGroup"]


def test_secrets_are_wrapped_by_a_customer_key(cluster: dict[str, Any], stack: Template) -> None:
    (encryption,) = cluster["EncryptionConfig"]
    key = encryption["Provider"]["KeyArn"]["Fn::GetAtt"][0]

    assert encryption["Resources"] == ["secrets"]
    assert stack["Resources"][key]["Type"] == "AWS::KMS::Key"


@pytest.mark.parametrize(("environment", "protected"), [("post-us-east-2", True), ("unprotected", False)])
def test_deletion_is_protected_as_declared(stacks: Templates, environment: str, protected: bool) -> None:
    assert one(stacks[f"{environment}-Cluster"], "AWS::EKS::Cluster")["DeletionProtection"] is protected


def test_named_clients_reach_the_private_endpoint_by_https_alone(stacks: Templates) -> None:
    rules = [
        rule
        for rule in resources(stacks["clients-Cluster"], "AWS::EC2::SecurityGroupIngress")
        if "Kubernetes API" in rule["Description"]
    ]

    assert [rule.get("CidrIp") or rule.get("SourceSecurityGroupId") for rule in rules] == [RANGE, GROUP]
    assert {(rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) for rule in rules} == {("tcp", 443, 443)}


def test_without_clients_only_the_cluster_reaches_its_endpoint(stacks: Templates) -> None:
    assert resources(stacks["post-us-east-2-Cluster"], "AWS::EC2::SecurityGroupIngress") == []
