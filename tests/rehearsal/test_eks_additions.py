"""EKS beyond plain MiniStack, seen through boto3."""

from __future__ import annotations

import pytest
from twin_resources import ROLE, cluster, launch_template, nodegroup

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]


def test_a_protected_cluster_refuses_its_deletion(endpoint, deploy, refusal):
    deploy(cluster("protected", DeletionProtection=True))
    assert (
        refusal(endpoint.client("eks").delete_cluster, name="protected")
        == "InvalidRequestException"
    )


def test_a_cluster_goes_when_its_protection_is_lifted(endpoint, deploy, delete):
    stack = deploy(cluster("lifted", DeletionProtection=True))
    deploy(cluster("lifted", DeletionProtection=False), stack.name, update=True)
    assert delete(stack) == "DELETE_COMPLETE"
    assert "lifted" not in endpoint.client("eks").list_clusters()["clusters"]


def test_rejects_the_deletion_of_a_cluster_with_node_groups(endpoint, deploy, refusal):
    deploy(nodegroup("with-nodes"))
    assert (
        refusal(endpoint.client("eks").delete_cluster, name="with-nodes")
        == "ResourceInUseException"
    )


def test_rejects_a_cluster_property_that_eks_does_not_know(deploy):
    reasons = deploy(cluster("odd", Colour="blue")).reasons
    assert "Encountered unsupported property Colour in AWS::EKS::Cluster" in reasons


def test_labels_are_added_and_removed(endpoint, deploy):
    eks = endpoint.client("eks")
    deploy(nodegroup("labelled", Labels={"a": "1", "b": "2"}))
    fleet = {"clusterName": "labelled", "nodegroupName": "fleet"}
    eks.update_nodegroup_config(
        **fleet, labels={"addOrUpdateLabels": {"c": "3"}, "removeLabels": ["a"]}
    )
    node_group = eks.describe_nodegroup(**fleet)["nodegroup"]
    assert node_group["labels"] == {"b": "2", "c": "3"}


def test_a_node_group_follows_its_launch_template(endpoint, deploy):
    def fleet(reservation):
        template = {
            "Id": {"Ref": "Template"},
            "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
        }
        nodes = nodegroup("following", CapacityType="CAPACITY_BLOCK", LaunchTemplate=template)
        return {**nodes, "Template": launch_template(reservation)}

    stack = deploy(fleet("cr-0123456789abcdef0"))
    deploy(fleet("cr-0fedcba9876543210"), stack.name, update=True)

    node_group = endpoint.client("eks").describe_nodegroup(
        clusterName="following", nodegroupName="fleet"
    )["nodegroup"]
    assert (node_group["launchTemplate"]["version"], node_group["capacityType"]) == (
        "2",
        "CAPACITY_BLOCK",
    )


def test_rejects_a_capacity_block_without_a_launch_template(deploy):
    reasons = deploy(nodegroup("no-template", CapacityType="CAPACITY_BLOCK")).reasons
    assert any(
        "A launch template is required for capacity type CAPACITY_BLOCK" in reason
        for reason in reasons
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"AddonVersion": "v2"},
        {"ConfigurationValues": '{"a":1}'},
        {
            "PodIdentityAssociations": [
                {"ServiceAccount": "sa", "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]}}
            ]
        },
    ],
)
def test_an_addon_is_updated_in_place(deploy, held, changed):
    name = f"addon-{next(iter(changed)).lower()}"

    def addon(**more):
        properties = {
            "ClusterName": {"Ref": "Cluster"},
            "AddonName": "vpc-cni",
            "AddonVersion": "v1",
            **more,
        }
        return {**cluster(name), "Addon": {"Type": "AWS::EKS::Addon", "Properties": properties}}

    stack = deploy(addon())
    first = held(stack.name)["Addon"].physical_id
    deploy(addon(**changed), stack.name, update=True)

    assert (held(stack.name)["Addon"].differences, held(stack.name)["Addon"].physical_id) == (
        (),
        first,
    )


def test_an_access_entry_loses_the_policies_that_its_template_drops(deploy, held):
    view = {
        "PolicyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy",
        "AccessScope": {"Type": "cluster"},
    }
    edit = {**view, "PolicyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSEditPolicy"}

    def entry(*policies):
        properties = {
            "ClusterName": {"Ref": "Cluster"},
            "PrincipalArn": "arn:aws:iam::222233334444:role/R",
            "AccessPolicies": list(policies),
        }
        return {
            **cluster("entries"),
            "Entry": {"Type": "AWS::EKS::AccessEntry", "Properties": properties},
        }

    stack = deploy(entry(view, edit))
    deploy(entry(view), stack.name, update=True)

    assert held(stack.name)["Entry"].differences == ()


def test_a_pod_identity_takes_another_role_in_place(deploy, held):
    def identity(role):
        properties = {
            "ClusterName": {"Ref": "Cluster"},
            "Namespace": "n",
            "ServiceAccount": "s",
            "RoleArn": {"Fn::GetAtt": [role, "Arn"]},
        }
        return {
            **cluster("identities"),
            "Other": ROLE["Role"],
            "Identity": {"Type": "AWS::EKS::PodIdentityAssociation", "Properties": properties},
        }

    stack = deploy(identity("Role"))
    first = held(stack.name)["Identity"].physical_id
    deploy(identity("Other"), stack.name, update=True)

    assert (held(stack.name)["Identity"].differences, held(stack.name)["Identity"].physical_id) == (
        (),
        first,
    )
