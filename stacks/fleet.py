"""The Fleet stack: the accelerator nodes and nothing else.

Invariant: the template always says 0 nodes; only the runtime API raises them, so no deploy ever starts
paying for an accelerator. Apart from the other stacks, so that a missing or renewed reservation touches
this template, what a dashboard says of it, and nothing else.
"""

from __future__ import annotations

from datetime import UTC, datetime

from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from stacks.accelerator import AcceleratorTemplate
from stacks.network import NetworkIds
from stacks.stack import EnvironmentStack
from tandem.guard.observe import CAPACITY_KIND_TAG
from tandem.spec import names
from tandem.spec.environment import Environment

CAPACITY_TYPES = {
    "capacity-block": "CAPACITY_BLOCK",
    "reservation": "ON_DEMAND",  # a reservation is on-demand capacity that somebody holds
    "on-demand": "ON_DEMAND",
    "spot": "SPOT",
}
_LABELS = {
    "neuron.amazonaws.com/present": "true",  # with DRA nothing else sets it, and Neuron's observers select by it
    "workload": "neuron-inference",
}
_Taint = eks.CfnNodegroup.TaintProperty
_TAINTS = (
    _Taint(key="aws.amazon.com/neuron", value="present", effect="NO_SCHEDULE"),
    # the Mountpoint CSI driver removes it once it can mount; a pod that came earlier would hang
    _Taint(key="s3.csi.aws.com/agent-not-ready", effect="NO_EXECUTE"),
)


class FleetStack(EnvironmentStack):
    """One managed node group in the one zone that has the capacity."""

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, network: NetworkIds, node_role_arn: str,
        cluster_security_group_id: str, release_version: str | None, efa_cards: int | None,
    ) -> None:  # fmt: skip
        super().__init__(
            scope, id_, environment=environment, description="Tandem: Neuron node group, 0 nodes until raised"
        )
        capacity, name = environment.capacity, names.node_group_name(environment)
        template = AcceleratorTemplate(
            self,
            "LaunchTemplate",
            capacity=capacity,
            tags=names.resource_tags(environment),
            name=name,
            vpc_id=network.vpc_id,
            cluster_security_group_id=cluster_security_group_id,
            efa_cards=(efa_cards or 0) if capacity.efa else 0,
        )
        eks.CfnNodegroup(
            self,
            "NodeGroup",
            cluster_name=names.cluster_name(environment),
            nodegroup_name=name,
            node_role=node_role_arn,
            subnets=network.subnet_ids[capacity.zone],
            ami_type="AL2023_x86_64_NEURON",
            capacity_type=CAPACITY_TYPES[capacity.kind],
            version=environment.cluster.kubernetes,
            release_version=release_version,
            launch_template=eks.CfnNodegroup.LaunchTemplateSpecificationProperty(
                id=template.id, version=template.version
            ),
            scaling_config=eks.CfnNodegroup.ScalingConfigProperty(min_size=0, desired_size=0, max_size=capacity.nodes),
            # terminate first: there is no spare accelerator to start beside the old one
            update_config=eks.CfnNodegroup.UpdateConfigProperty(max_unavailable=1, update_strategy="MINIMAL"),
            node_repair_config=eks.CfnNodegroup.NodeRepairConfigProperty(enabled=True),
            labels=_LABELS,
            tags={CAPACITY_KIND_TAG: capacity.kind, **_block_tags(environment)},
            taints=list(_TAINTS),
        )


def _block_tags(environment: Environment) -> dict[str, str]:
    """Return when the Capacity Block starts and ends, for the guard, which is not deployed anew with each block."""
    capacity = environment.capacity
    if capacity.kind != "capacity-block" or capacity.block is None:
        return {}
    return {
        names.BLOCK_STARTS_TAG: _format_utc(capacity.block.starts),
        names.BLOCK_ENDS_TAG: _format_utc(capacity.block.ends),
    }


def _format_utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
