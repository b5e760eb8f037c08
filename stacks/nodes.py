"""What all EC2 nodes share: their role and the closed half of a launch template."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.ecr import first_pulls
from stacks.nag import acknowledge
from stacks.place import Place
from stacks.policy import allow, document
from stacks.tags import of_launched

ROOT_DEVICE = "/dev/xvda"  # root of the AL2023 AMIs
_Template = ec2.CfnLaunchTemplate
_NODE_POLICIES = {
    "AmazonEKSWorkerNodePolicy": "EKS requires it of every node; it describes EC2 and fetches pod identities",
    "AmazonEC2ContainerRegistryPullOnly": "nodes pull from any repository of the account, mirrors included; no push",
}

_CACHED = "a pull-through cache names repositories after what is pulled; the mirror's prefix is literal"


def _inline(fetches: list[dict[str, Any]]) -> iam.CfnRole.PolicyProperty:
    return iam.CfnRole.PolicyProperty(policy_name="first-pull", policy_document=document(*fetches))


class NodeRole(Construct):
    """The role of a node: join, pull images, nothing of S3. The CNI and all pods have roles of their own.

    Args:
        mirrors: registries or prefixes that stand in for the published ones.

    Attributes:
        arn: the role.
        role: the resource, for ordering.
    """

    def __init__(self, scope: Construct, id_: str, *, place: Place, mirrors: Collection[str]) -> None:
        super().__init__(scope, id_)
        fetches = first_pulls(mirrors, place.partition)
        arns = {policy: place.managed_policy(policy) for policy in _NODE_POLICIES}
        self.role = iam.CfnRole(
            self,
            "Role",
            # no condition: EC2 tells no source of an instance's role, and the role is passed within its account alone
            assume_role_policy_document=document(allow(["sts:AssumeRole"], service="ec2.amazonaws.com")),
            managed_policy_arns=list(arns.values()),
            policies=[_inline(fetches)] if fetches else None,
        )
        acknowledge(
            self.role,
            {
                **{f"AwsSolutions-IAM4[Policy::{arn}]": _NODE_POLICIES[policy] for policy, arn in arns.items()},
                **{f"AwsSolutions-IAM5[Resource::{arn}]": _CACHED for fetch in fetches for arn in fetch["Resource"]},
            },
        )
        self.arn = self.role.attr_arn


def closed_instance(
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
        "tag_specifications": of_launched(tags, name),
    }
