"""Cluster: who enters, and what EKS chooses."""

from __future__ import annotations

import pytest
from assemblies import GROUP, RANGE, of_type, places, resources

pytestmark = pytest.mark.cdk


def test_no_cluster_is_open_to_the_world(stacks):
    configs = [cluster["ResourcesVpcConfig"] for _, cluster in of_type(stacks, "AWS::EKS::Cluster")]

    assert len(configs) == len(places())
    assert [
        config
        for config in configs
        if config.get("EndpointPublicAccess") is not False
        and "0.0.0.0/0" in config.get("PublicAccessCidrs", ["0.0.0.0/0"])
    ] == []


def test_public_endpoint_keeps_the_private_way(stacks):
    (cluster,) = resources(stacks["reservation-public-Cluster"], "AWS::EKS::Cluster")
    endpoint = cluster["ResourcesVpcConfig"]
    assert endpoint["EndpointPrivateAccess"] is True
    assert endpoint["PublicAccessCidrs"] == ["203.0.113.0/24"]


def test_named_clients_alone_reach_the_private_endpoint(stacks):
    rules = resources(stacks["closed-Cluster"], "AWS::EC2::SecurityGroupIngress")
    sources = [rule.get("CidrIp") or rule.get("SourceSecurityGroupId") for rule in rules]
    assert sources == [RANGE, GROUP]


def test_clients_reach_the_endpoint_by_https(stacks):
    rules = resources(stacks["closed-Cluster"], "AWS::EC2::SecurityGroupIngress")
    ports = {(rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) for rule in rules}
    assert ports == {("tcp", 443, 443)}


def test_principals_that_differ_by_a_path_have_an_entry_each(stacks):
    entries = resources(stacks["efa-nat-per-zone-Cluster"], "AWS::EKS::AccessEntry")
    roles = {entry["PrincipalArn"].partition("role/")[2] for entry in entries}
    assert {"team/Admin", "team-Admin"} <= roles


def test_deletion_is_protected_as_declared(stacks):
    (cluster,) = resources(stacks["spot-unprotected-Cluster"], "AWS::EKS::Cluster")
    assert cluster["DeletionProtection"] is False
