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


def test_a_cluster_lies_in_the_vpc_of_its_subnets_with_a_group_of_its_own(endpoint, deploy, held):
    stack = deploy(cluster("placed"))
    network = endpoint.client("eks").describe_cluster(name="placed")["cluster"][
        "resourcesVpcConfig"
    ]

    groups = endpoint.client("ec2").describe_security_groups(
        GroupIds=[network["clusterSecurityGroupId"]]
    )

    vpc = held(stack.name)["Vpc"].physical_id
    assert [network["vpcId"], groups["SecurityGroups"][0]["VpcId"]] == [vpc, vpc]


def test_rejects_a_cluster_property_that_eks_does_not_know(deploy):
    reasons = deploy(cluster("odd", Colour="blue")).reasons
    assert "Encountered unsupported property Colour in AWS::EKS::Cluster" in reasons


def test_an_update_lists_each_size_that_was_asked_for(endpoint, deploy):
    eks = endpoint.client("eks")
    deploy(nodegroup("sized"))
    fleet = {"clusterName": "sized", "nodegroupName": "fleet"}

    made = eks.update_nodegroup_config(**fleet, scalingConfig={"minSize": 0, "desiredSize": 0})[
        "update"
    ]

    update = eks.describe_update(name="sized", nodegroupName="fleet", updateId=made["id"])["update"]
    assert (update["type"], update["params"]) == (
        "ConfigUpdate",
        [{"type": "MinSize", "value": "0"}, {"type": "DesiredSize", "value": "0"}],
    )


@pytest.mark.parametrize("kind", ["cluster", "nodegroup"])
def test_tags_are_added_and_removed_as_a_describe_call_tells(endpoint, deploy, kind):
    eks = endpoint.client("eks")
    name = f"tagged-{kind}"
    deploy(
        nodegroup(name, Tags={"kept": "1", "gone": "2"}) if kind == "nodegroup" else cluster(name)
    )

    def described():
        if kind == "cluster":
            return eks.describe_cluster(name=name)["cluster"]
        return eks.describe_nodegroup(clusterName=name, nodegroupName="fleet")["nodegroup"]

    arn = described()["arn" if kind == "cluster" else "nodegroupArn"]
    eks.tag_resource(resourceArn=arn, tags={"kept": "1", "gone": "3", "gone-too": "4"})
    before = described()["tags"]
    eks.untag_resource(resourceArn=arn, tagKeys=["gone", "gone-too"])

    assert (before["gone"], before["gone-too"]) == ("3", "4")
    assert described()["tags"].items() >= {("kept", "1")}
    assert not described()["tags"].keys() & {"gone", "gone-too"}
    assert eks.list_tags_for_resource(resourceArn=arn)["tags"] == described()["tags"]


def test_labels_and_taints_are_added_and_removed(endpoint, deploy):
    eks = endpoint.client("eks")
    deploy(nodegroup("labelled", Labels={"a": "1", "b": "2"}))
    fleet = {"clusterName": "labelled", "nodegroupName": "fleet"}
    taint = {"key": "t", "value": "v", "effect": "NO_SCHEDULE"}
    eks.update_nodegroup_config(
        **fleet, labels={"addOrUpdateLabels": {"c": "3"}, "removeLabels": ["a"]}
    )
    eks.update_nodegroup_config(**fleet, taints={"addOrUpdateTaints": [taint]})

    found = eks.describe_nodegroup(**fleet)["nodegroup"]

    assert (found["labels"], found["taints"]) == ({"b": "2", "c": "3"}, [taint])


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

    found = endpoint.client("eks").describe_nodegroup(
        clusterName="following", nodegroupName="fleet"
    )["nodegroup"]
    assert (found["launchTemplate"]["version"], found["capacityType"]) == ("2", "CAPACITY_BLOCK")


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
