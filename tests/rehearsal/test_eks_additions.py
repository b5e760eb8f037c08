"""EKS beyond plain MiniStack, seen through boto3."""

from __future__ import annotations

import pytest
from twin_resources import cluster, launch_template, nodegroup

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


def test_labels_are_added_and_removed(endpoint, deploy):
    eks = endpoint.client("eks")
    deploy(nodegroup("labelled", Labels={"a": "1", "b": "2"}))
    fleet = {"clusterName": "labelled", "nodegroupName": "fleet"}
    eks.update_nodegroup_config(
        **fleet, labels={"addOrUpdateLabels": {"c": "3"}, "removeLabels": ["a"]}
    )
    node_group = eks.describe_nodegroup(**fleet)["nodegroup"]
    assert node_group["labels"] == {"b": "2", "c": "3"}


def test_a_node_group_takes_the_default_version_of_its_launch_template(endpoint, deploy):
    template = {"Id": {"Ref": "Template"}}
    nodes = nodegroup("versionless", LaunchTemplate=template)
    deploy({**nodes, "Template": launch_template("cr-0123456789abcdef0")})

    node_group = endpoint.client("eks").describe_nodegroup(
        clusterName="versionless", nodegroupName="fleet"
    )["nodegroup"]
    assert node_group["launchTemplate"]["version"] == "1"


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


@pytest.mark.parametrize(
    "changed",
    [
        {"ConfigurationValues": '{"a":1}'},
        {
            "PodIdentityAssociations": [
                {"ServiceAccount": "sa", "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]}}
            ]
        },
    ],
)
def test_an_addon_is_updated_in_place(deploy, check_resources, changed):
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
    first = check_resources(stack.name)["Addon"].physical_id
    deploy(addon(**changed), stack.name, update=True)

    assert (
        check_resources(stack.name)["Addon"].differences,
        check_resources(stack.name)["Addon"].physical_id,
    ) == (
        (),
        first,
    )
