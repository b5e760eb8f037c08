"""Cluster: what EKS leaves open is closed, who enters has an entry of his kind, add-ons are pinned
and in order."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
import pytest
from assemblies import GROUP, KEY, RANGE, Template, Templates, inputs, one, resources
from aws_cdk import assertions

from stacks import addons

pytestmark = pytest.mark.cdk

CLUSTER = "AWS::EKS::Cluster"
ENTRY = "AWS::EKS::AccessEntry"
ADDON = "AWS::EKS::Addon"


@pytest.fixture(scope="session")
def stack(stacks: Templates) -> Template:
    return stacks["post-us-east-2-Cluster"]


def endpoint(stacks: Templates, environment: str) -> tuple[object, ...]:
    vpc = one(stacks[f"{environment}-Cluster"], CLUSTER)["ResourcesVpcConfig"]
    return vpc["EndpointPrivateAccess"], vpc["EndpointPublicAccess"], vpc.get("PublicAccessCidrs")


def test_an_endpoint_is_as_public_as_declared_and_nodes_use_the_private_way(
    stacks: Templates,
) -> None:
    assert endpoint(stacks, "post-us-east-2") == (True, False, None)
    assert endpoint(stacks, "public-endpoint") == (True, True, ["203.0.113.0/24"])


def test_the_control_plane_has_subnets_of_its_own(stack: Template) -> None:
    subnets = one(stack, CLUSTER)["ResourcesVpcConfig"]["SubnetIds"]
    exports = [f"post-us-east-2-Network-ControlPlaneSubnet-use2-az{number}" for number in (1, 2)]
    assert subnets == [{"Fn::ImportValue": export} for export in exports]


def test_the_owner_of_a_vpc_may_name_the_control_planes_subnets(stacks: Templates) -> None:
    subnets = one(stacks["customer-keys-Cluster"], CLUSTER)["ResourcesVpcConfig"]["SubnetIds"]
    assert subnets == ["subnet-0000000000000000c", "subnet-0000000000000000d"]


def test_system_nodes_stay_in_the_first_two_zones(stack: Template) -> None:
    subnets = one(stack, "AWS::EKS::Nodegroup")["Subnets"]
    exports = [f"post-us-east-2-Network-Subnet-use2-az{number}" for number in (1, 2)]
    assert subnets == [{"Fn::ImportValue": export} for export in exports]


@pytest.mark.parametrize(("kind", "groups"), [("Cluster", 1), ("Registry", 1)])
def test_logs_have_the_declared_key(stacks: Templates, kind: str, groups: int) -> None:
    keys = [
        group.get("KmsKeyId")
        for group in resources(stacks[f"customer-keys-{kind}"], "AWS::Logs::LogGroup")
    ]
    assert keys == [KEY] * groups


def test_no_cluster_is_open_to_the_world(stacks: Templates) -> None:
    configs = [
        found["ResourcesVpcConfig"]
        for each in stacks.values()
        for found in resources(each, CLUSTER)
    ]

    opened = [
        config
        for config in configs
        if config.get("EndpointPublicAccess") is not False
        and "0.0.0.0/0" in config.get("PublicAccessCidrs", ["0.0.0.0/0"])
    ]
    assert (opened, len(configs) > 20) == ([], True)


def test_named_clients_alone_reach_the_private_endpoint_by_https(
    stacks: Templates, stack: Template
) -> None:
    rules = resources(stacks["clients-Cluster"], "AWS::EC2::SecurityGroupIngress")
    assert [rule.get("CidrIp") or rule.get("SourceSecurityGroupId") for rule in rules] == [
        RANGE,
        GROUP,
    ]
    assert {(rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) for rule in rules} == {
        ("tcp", 443, 443)
    }
    assert resources(stack, "AWS::EC2::SecurityGroupIngress") == []


def test_secrets_logs_and_rights_are_kept_by_the_cluster_itself(stack: Template) -> None:
    (body,) = [found for found in stack["Resources"].values() if found["Type"] == CLUSTER]
    (encryption,) = body["Properties"]["EncryptionConfig"]
    key = encryption["Provider"]["KeyArn"]["Fn::GetAtt"][0]
    access = body["Properties"]["AccessConfig"]

    assert (encryption["Resources"], stack["Resources"][key]["Type"]) == (
        ["secrets"],
        "AWS::KMS::Key",
    )
    assert [stack["Resources"][name]["Type"] for name in body["DependsOn"]] == [
        "AWS::Logs::LogGroup"
    ]
    assert access == {"AuthenticationMode": "API", "BootstrapClusterCreatorAdminPermissions": False}


@pytest.mark.parametrize(
    ("environment", "protected"), [("post-us-east-2", True), ("unprotected", False)]
)
def test_deletion_is_protected_as_declared(
    stacks: Templates, environment: str, protected: bool
) -> None:
    assert one(stacks[f"{environment}-Cluster"], CLUSTER)["DeletionProtection"] is protected


def test_an_admin_has_eks_own_policy_and_the_others_a_group_each(stack: Template) -> None:
    entries = {
        entry["PrincipalArn"].rpartition("/")[2]: (
            [policy["PolicyArn"].rpartition("/")[2] for policy in entry.get("AccessPolicies", [])],
            entry.get("KubernetesGroups", []),
        )
        for entry in resources(stack, ENTRY)
    }

    assert entries == {
        "PlatformAdmin": (["AmazonEKSClusterAdminPolicy"], []),
        "Operator": ([], ["tandem-operator"]),
        "MlEngineer": ([], ["tandem-engineer"]),
        "Viewer": ([], ["tandem-viewer"]),
    }


def test_principals_that_differ_by_a_path_have_an_entry_each(stacks: Templates) -> None:
    entries = resources(stacks["alike-admins-Cluster"], ENTRY)
    assert {entry["PrincipalArn"].partition("role/")[2] for entry in entries} >= {
        "team/Admin",
        "team-Admin",
    }


def addon(stack: Template, name: str) -> dict[str, Any]:
    (found,) = [found for found in resources(stack, ADDON) if found["AddonName"] == name]
    return found


def waits_for(stack: Template, of: str) -> set[str]:
    """Return the add-ons and the types that the resource named or typed `of` waits for."""
    (body,) = [
        each
        for each in stack["Resources"].values()
        if each["Type"] == of or each.get("Properties", {}).get("AddonName") == of
    ]
    earlier = [stack["Resources"][name] for name in body.get("DependsOn", [])]
    return {each["Properties"].get("AddonName", each["Type"]) for each in earlier}


def test_each_addon_has_the_version_of_the_data(stack: Template) -> None:
    known = inputs().catalogue.kubernetes.minors["1.36"].addons
    for name in (
        "vpc-cni",
        "coredns",
        "kube-proxy",
        "eks-pod-identity-agent",
        "aws-mountpoint-s3-csi-driver",
    ):
        assert addon(stack, name).get("AddonVersion") == known[name].value


def test_a_version_nobody_knows_is_left_to_eks() -> None:
    stack = cdk.Stack(cdk.App(builtin_cloud_formation_validation=False))
    addons.add_addon(stack, "coredns", cluster_ref="there", versions={"coredns": None})
    unpinned = {"AddonVersion": assertions.Match.absent()}
    assertions.Template.from_stack(stack).has_resource_properties(ADDON, unpinned)


def test_the_cni_has_a_role_of_its_own(stack: Template) -> None:
    (association,) = addon(stack, "vpc-cni")["PodIdentityAssociations"]
    role = stack["Resources"][association["RoleArn"]["Fn::GetAtt"][0]]["Properties"]
    assert association["ServiceAccount"] == "aws-node"
    assert role["ManagedPolicyArns"] == ["arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"]


def test_what_makes_nodes_ready_precedes_them_and_what_needs_them_follows(stack: Template) -> None:
    assert waits_for(stack, "AWS::EKS::Nodegroup") >= {
        "vpc-cni",
        "kube-proxy",
        "eks-pod-identity-agent",
    }
    for name in ("coredns", "aws-mountpoint-s3-csi-driver"):
        assert waits_for(stack, name) == {"AWS::EKS::Nodegroup"}
