"""The small node group that runs the add-ons' controllers, so that no accelerator is needed for them."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from stacks.nodes import node_template_data
from stacks.tags import template_tags
from tandem.spec.disk import SYSTEM_NODE_ROOT_GIB
from tandem.spec.environment import ClusterSettings

IMDS_HOPS = 1  # every add-on here that reads the metadata service runs on the host's network


class SystemNodeGroup(Construct):
    """A managed node group of ordinary instances over all subnets.

    Attributes:
        node_group: the resource, for ordering.
    """

    def __init__(
        self, scope: Construct, id_: str, *, cluster: ClusterSettings, cluster_name: str, node_role_arn: str,
        subnet_ids: list[str], tags: Mapping[str, str], name: str,
    ) -> None:  # fmt: skip
        super().__init__(scope, id_)
        nodes = cluster.system_nodes
        data = node_template_data(
            instance_type=nodes.instance_type, root_gib=SYSTEM_NODE_ROOT_GIB, imds_hops=IMDS_HOPS, tags=tags, name=name
        )
        template = ec2.CfnLaunchTemplate(
            self, "LaunchTemplate",
            launch_template_data=ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(**data),  # type: ignore[arg-type]
            tag_specifications=template_tags(tags, name),
        )  # fmt: skip
        self.node_group = eks.CfnNodegroup(
            self,
            "NodeGroup",
            cluster_name=cluster_name,
            node_role=node_role_arn,
            subnets=subnet_ids,
            ami_type="AL2023_x86_64_STANDARD",
            capacity_type="ON_DEMAND",
            version=cluster.kubernetes,  # a new minor rolls the nodes after the control plane
            launch_template=eks.CfnNodegroup.LaunchTemplateSpecificationProperty(
                id=template.ref, version=template.attr_latest_version_number
            ),
            scaling_config=eks.CfnNodegroup.ScalingConfigProperty(
                min_size=nodes.count, desired_size=nodes.count, max_size=nodes.count + 1
            ),
            update_config=eks.CfnNodegroup.UpdateConfigProperty(max_unavailable=1),
            node_repair_config=eks.CfnNodegroup.NodeRepairConfigProperty(enabled=True),
            labels={"workload": "system"},
        )
