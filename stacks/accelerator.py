"""The launch template of the accelerator nodes.

Invariant: the instance type stands here only. EKS demands that of Capacity Blocks, and the CDK's own node
group knows no Trainium 2 (it refuses the type for this AMI, or installs a device plugin that fights DRA).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import Fn
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.efa import EfaInterfaces
from stacks.nodes import node_template_data
from stacks.tags import template_tags
from tandem.spec.environment import CapacitySettings

_Template = ec2.CfnLaunchTemplate

# Images, emptyDirs and pods' logs live on the local NVMe array, so the root holds the operating system and the
# Neuron AMI's drivers (20 GiB by default).
ROOT_GIB = 100
# Neuron's software in the container may ask the metadata service for the instance type, and no source shows
# that it does not; a pod that reads the node's role finds image pulls there and no S3.
IMDS_HOPS = 2

BOUNDARY = "tandem"
# nodeadm's NodeConfig; a managed node group merges the cluster's part in (amazon-eks-ami, nodeadm/doc/api.md)
USER_DATA = f"""MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="{BOUNDARY}"

--{BOUNDARY}
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  instance:
    localStorage:
      strategy: RAID0

--{BOUNDARY}--
"""


class AcceleratorTemplate(Construct):
    """Instance type, market, reservation, disks, metadata, tags, and EFA cards where asked for.

    Attributes:
        id, version: for the node group.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        capacity: CapacitySettings,
        tags: Mapping[str, str],
        name: str,
        vpc_id: str,
        cluster_security_group_id: str,
        efa_cards: int,
    ) -> None:
        super().__init__(scope, id_)
        data = node_template_data(
            instance_type=capacity.instance_type, root_gib=ROOT_GIB, imds_hops=IMDS_HOPS, tags=tags, name=name
        )
        data |= _market_options(capacity) | {"user_data": Fn.base64(USER_DATA)}
        if efa_cards:
            efa = EfaInterfaces(
                self, "Efa", cards=efa_cards, vpc_id=vpc_id, cluster_security_group_id=cluster_security_group_id,
                has_placement_group=capacity.kind in {"spot", "on-demand"}, name=name,
            )  # fmt: skip
            data |= efa.template_data
        template = _Template(
            self, "Resource", tag_specifications=template_tags(tags, name),
            launch_template_data=_Template.LaunchTemplateDataProperty(**data),  # type: ignore[arg-type]
        )  # fmt: skip
        self.id, self.version = template.ref, template.attr_latest_version_number


def _market_options(capacity: CapacitySettings) -> dict[str, Any]:
    """Return how the instances are bought; spot is said on the node group, EKS refuses it in the template."""
    if not capacity.needs_reservation:
        return {}
    target = _Template.CapacityReservationTargetProperty(capacity_reservation_id=capacity.reservation_id)
    reservation = _Template.CapacityReservationSpecificationProperty(capacity_reservation_target=target)
    if capacity.kind == "reservation":
        return {"capacity_reservation_specification": reservation}
    return {
        "capacity_reservation_specification": reservation,
        "instance_market_options": _Template.InstanceMarketOptionsProperty(market_type="capacity-block"),
    }
