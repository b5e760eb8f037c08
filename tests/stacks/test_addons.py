"""Add-ons: pinned, ordered around the nodes, the CNI with network policy and a role of its own."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
import pytest
from assemblies import Template, Templates, inputs, resources
from aws_cdk import assertions

from stacks import addons

pytestmark = pytest.mark.cdk

NAMES = ["vpc-cni", "coredns", "kube-proxy", "eks-pod-identity-agent", "aws-mountpoint-s3-csi-driver"]


@pytest.fixture(scope="session")
def stack(stacks: Templates) -> Template:
    return stacks["post-us-east-2-Cluster"]


def addon(stack: Template, name: str) -> dict[str, Any]:
    (found,) = [found for found in resources(stack, "AWS::EKS::Addon") if found["AddonName"] == name]
    return found


def waits_for(stack: Template, of: str) -> set[str]:
    """Return the add-ons and the types that the resource named or typed `of` waits for."""
    (found,) = [
        each for each in stack["Resources"].values()
        if each["Type"] == of or each.get("Properties", {}).get("AddonName") == of
    ]  # fmt: skip
    earlier = [stack["Resources"][name] for name in found.get("DependsOn", [])]
    return {each["Properties"].get("AddonName", each["Type"]) for each in earlier}


@pytest.mark.parametrize("name", NAMES)
def test_a_version_is_the_one_in_the_data(stack: Template, name: str) -> None:
    known = inputs().catalogue.kubernetes.minors["1.36"].addons[name].value

    assert addon(stack, name).get("AddonVersion") == known


def test_the_cni_has_a_role_of_its_own(stack: Template) -> None:
    (association,) = addon(stack, "vpc-cni")["PodIdentityAssociations"]
    role = stack["Resources"][association["RoleArn"]["Fn::GetAtt"][0]]["Properties"]

    assert association["ServiceAccount"] == "aws-node"
    assert role["ManagedPolicyArns"] == ["arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"]


@pytest.mark.parametrize("name", ["vpc-cni", "kube-proxy", "eks-pod-identity-agent"])
def test_what_makes_a_node_ready_precedes_the_nodes(stack: Template, name: str) -> None:
    assert name in waits_for(stack, "AWS::EKS::Nodegroup")


@pytest.mark.parametrize("name", ["coredns", "aws-mountpoint-s3-csi-driver"])
def test_what_needs_a_node_follows_the_nodes(stack: Template, name: str) -> None:
    assert waits_for(stack, name) == {"AWS::EKS::Nodegroup"}


def test_a_version_nobody_knows_is_left_to_eks() -> None:
    stack = cdk.Stack(cdk.App(builtin_cloud_formation_validation=False))
    addons.add_addon(stack, "coredns", cluster_ref="there", versions={"coredns": None})

    unpinned = {"AddonVersion": assertions.Match.absent()}
    assertions.Template.from_stack(stack).has_resource_properties("AWS::EKS::Addon", unpinned)
