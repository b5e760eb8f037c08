"""What all EC2 nodes share: their role and the closed half of a launch template."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.aws_location import AwsLocation
from stacks.ecr import allow_first_pulls
from stacks.role import add_role
from stacks.tags import instance_tags

ROOT_DEVICE = "/dev/xvda"  # root of the AL2023 AMIs
_Template = ec2.CfnLaunchTemplate
_NODE_POLICIES = {
    "AmazonEKSWorkerNodePolicy": "EKS requires it of every node; it describes EC2 and fetches pod identities",
    "AmazonEC2ContainerRegistryPullOnly": "nodes pull from any repository of the account, mirrors included; no push",
}

_CACHE_REASON = "a pull-through cache names repositories after what is pulled; the mirror's prefix is literal"


class NodeRole(Construct):
    """The role of a node: join, pull images, nothing of S3. The CNI and all pods have roles of their own.

    Args:
        mirrors: registries or prefixes that stand in for the published ones.

    Attributes:
        arn: the role.
        role: the resource, for ordering.
    """

    def __init__(self, scope: Construct, id_: str, *, location: AwsLocation, mirrors: Collection[str]) -> None:
        super().__init__(scope, id_)
        statements = allow_first_pulls(mirrors, location.partition)
        arns = {policy: location.aws_policy_arn(policy) for policy in _NODE_POLICIES}
        cache_arns = [arn for statement in statements for arn in statement["Resource"]]
        # no condition: EC2 tells no source of an instance's role, and the role is passed within its account alone
        self.role = add_role(
            self, "ec2.amazonaws.com", policy_name="first-pull", statements=statements,
            managed_policy_arns=list(arns.values()),
            reasons={
                **{f"AwsSolutions-IAM4[Policy::{arn}]": _NODE_POLICIES[policy] for policy, arn in arns.items()},
                **{f"AwsSolutions-IAM5[Resource::{arn}]": _CACHE_REASON for arn in cache_arns},
            },
        )  # fmt: skip
        self.arn = self.role.attr_arn


def node_template_data(
    *, instance_type: str, root_gib: int, imds_hops: int, tags: Mapping[str, str], name: str
) -> dict[str, object]:
    """Return the launch template data of any node: IMDSv2 only, encrypted root, tagged instances and volumes.

    Args:
        root_gib: size of the root volume, GiB.
        imds_hops: 1 keeps pods off the node's credentials, 2 lets them reach the metadata service.
    """
    return {
        "instance_type": instance_type,
        "metadata_options": _Template.MetadataOptionsProperty(
            http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=imds_hops
        ),
        "block_device_mappings": [
            _Template.BlockDeviceMappingProperty(
                device_name=ROOT_DEVICE,
                ebs=_Template.EbsProperty(
                    volume_size=root_gib, volume_type="gp3", encrypted=True, delete_on_termination=True
                ),
            )
        ],
        "tag_specifications": instance_tags(tags, name),
    }
