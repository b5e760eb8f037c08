"""Role and launch template of all EC2 nodes, and the system nodes for add-on controllers."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnTag
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.policy import allow_first_pulls, aws_policy_arn
from stacks.role import add_role
from tandem.declarations import names
from tandem.declarations.disk import SYSTEM_NODE_ROOT_GIB
from tandem.declarations.environment import Environment

ROOT_DEVICE = "/dev/xvda"  # root of the AL2023 AMIs
SYSTEM_IMDS_HOPS = 1  # every add-on here that reads the metadata service runs on the host's network
NODE_REASONS = {
    "*:policy/*": "EKS requires the one policy of every node, the other pulls and pushes nothing",
    "arn:*:ecr:*": (
        "a pull-through cache names repositories after what is pulled,"
        " below the mirror's literal prefix"
    ),
}
_Template = ec2.CfnLaunchTemplate


def add_node_role(scope: Construct, environment: Environment) -> iam.CfnRole:
    """Add the node role: join, pull images, nothing of S3. CNI and pods have their own roles."""
    policies = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")
    # no condition: EC2 names no source when it assumes an instance's role, and the role is passed
    # within its account alone
    return add_role(
        scope,
        "ec2.amazonaws.com",
        policy_name="first-pull",
        statements=allow_first_pulls(environment),
        managed_policy_arns=[aws_policy_arn(environment, policy) for policy in policies],
        reasons=NODE_REASONS,
    )


def add_node_template(
    scope: Construct,
    id_: str,
    environment: Environment,
    *,
    name: str,
    instance_type: str,
    root_gib: int,
    imds_hops: int,
    **data: Any,
) -> eks.CfnNodegroup.LaunchTemplateSpecificationProperty:
    """Add any node's launch template: IMDSv2 only, encrypted root, tagged instances and volumes.

    Args:
        name: of its nodes.
        root_gib: size of the root volume, GiB.
        imds_hops: 1 keeps pods from the node's credentials, 2 lets them reach the metadata service.
        data: further launch template data.

    Returns:
        The template's specification for a node group.
    """
    tags = sorted({"Name": name, **names.resource_tags(environment)}.items())
    cfn_tags = [CfnTag(key=key, value=value) for key, value in tags]
    root = _Template.EbsProperty(
        volume_size=root_gib, volume_type="gp3", encrypted=True, delete_on_termination=True
    )
    template = _Template(
        scope,
        id_,
        launch_template_data=_Template.LaunchTemplateDataProperty(
            instance_type=instance_type,
            metadata_options=_Template.MetadataOptionsProperty(
                http_endpoint="enabled",
                http_tokens="required",
                http_put_response_hop_limit=imds_hops,
            ),
            block_device_mappings=[
                _Template.BlockDeviceMappingProperty(device_name=ROOT_DEVICE, ebs=root)
            ],
            tag_specifications=[
                _Template.TagSpecificationProperty(resource_type=kind, tags=cfn_tags)
                for kind in ("instance", "volume", "network-interface")
            ],
            **data,
        ),
        # of the template itself, because the CDK's tagging does not reach it
        tag_specifications=[
            _Template.LaunchTemplateTagSpecificationProperty(
                resource_type="launch-template", tags=cfn_tags
            )
        ],
    )
    return eks.CfnNodegroup.LaunchTemplateSpecificationProperty(
        id=template.ref, version=template.attr_latest_version_number
    )


def add_system_nodes(
    scope: Construct,
    environment: Environment,
    *,
    cluster_ref: str,
    node_role_arn: str,
    subnet_ids: list[str],
) -> eks.CfnNodegroup:
    """Add the small node group over two zones, so that no accelerator is needed for controllers."""
    nodes = environment.cluster.system_nodes
    return eks.CfnNodegroup(
        scope,
        "NodeGroup",
        cluster_name=cluster_ref,
        node_role=node_role_arn,
        subnets=subnet_ids,
        ami_type="AL2023_x86_64_STANDARD",
        capacity_type="ON_DEMAND",
        # a new minor rolls the nodes after the control plane
        version=environment.cluster.kubernetes,
        launch_template=add_node_template(
            scope,
            "LaunchTemplate",
            environment,
            name=f"{names.cluster_name(environment)}-system",
            instance_type=nodes.instance_type,
            root_gib=SYSTEM_NODE_ROOT_GIB,
            imds_hops=SYSTEM_IMDS_HOPS,
        ),
        scaling_config=eks.CfnNodegroup.ScalingConfigProperty(
            min_size=nodes.count, desired_size=nodes.count, max_size=nodes.count + 1
        ),
        update_config=eks.CfnNodegroup.UpdateConfigProperty(max_unavailable=1),
        node_repair_config=eks.CfnNodegroup.NodeRepairConfigProperty(enabled=True),
        labels={"workload": "system"},
    )
