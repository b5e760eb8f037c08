"""The Fleet stack: the accelerator nodes and nothing else.

Invariant: the template always says 0 nodes; only the runtime API raises them, so no deploy ever
starts paying for an accelerator. The stack is separate: without a reservation all others deploy. A
new reservation changes this template, the runner's copy of the declarations in Workloads, and the
block's hours on a dashboard. The instance type is in the launch template only: EKS demands that for
Capacity Blocks. The CDK's own node group knows no Trainium 2 (it refuses the type for this AMI, or
installs a device plugin that conflicts with DRA).
"""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnTag, Fn
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from stacks.network import NetworkIds
from stacks.nodes import add_node_template
from stacks.stack import EnvironmentStack
from tandem.declarations import names
from tandem.declarations.environment import CapacitySettings, Environment
from tandem.guard.capacity_block import BLOCK_ENDS_TAG, BLOCK_STARTS_TAG, RESERVATION_TAG
from tandem.guard.observe import CAPACITY_KIND_TAG

# Images, emptyDirs and pods' logs live on the local NVMe array, so the root holds the operating
# system and the Neuron AMI's drivers (20 GiB by default).
ROOT_GIB = 100
# Neuron's software in the container may query the metadata service for the instance type; no source
# shows the contrary. A pod that reads the node's role can pull images and has no S3.
IMDS_HOPS = 2
_MIME_BOUNDARY = "tandem"
# nodeadm's NodeConfig; a managed node group adds the cluster's part after it (amazon-eks-ami,
# nodeadm/doc/api.md). The startup taint is in kubelet's list alone, because EKS sets a node group's
# taints again on live nodes. The driver removes it in its first ten minutes only, so there it would
# stay, and NoExecute would evict the servers. The Neuron taint is in kubelet's list and in the node
# group: whichever of the two holds, no other pod takes the node.
USER_DATA = f"""MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="{_MIME_BOUNDARY}"

--{_MIME_BOUNDARY}
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      registerWithTaints:
      - {{key: {names.NEURON_TAINT}, value: present, effect: NoSchedule}}
      - {{key: {names.STARTUP_TAINT}, effect: NoExecute}}
  instance:
    localStorage:
      strategy: RAID0

--{_MIME_BOUNDARY}--
"""
_LABELS = {
    # with DRA nothing else sets it, and Neuron's observers select by it
    "neuron.amazonaws.com/present": "true",
    "workload": "neuron-inference",
}
_TAINT = eks.CfnNodegroup.TaintProperty(
    key=names.NEURON_TAINT, value="present", effect="NO_SCHEDULE"
)
_Template = ec2.CfnLaunchTemplate


class FleetStack(EnvironmentStack):
    """One managed node group in the one zone that has the capacity."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        network: NetworkIds,
        node_role_arn: str,
        cluster_security_group_id: str,
        release_version: str | None,
        efa_cards: int | None,
    ) -> None:
        super().__init__(
            scope,
            id_,
            environment=environment,
            description="Tandem: Neuron node group, 0 nodes until raised",
        )
        capacity = environment.capacity
        name = names.node_group_name(environment)
        template_scope = Construct(self, "LaunchTemplate")
        data = _market_options(capacity) | {"user_data": Fn.base64(USER_DATA)}
        if capacity.efa and efa_cards:
            efa_scope = Construct(template_scope, "Efa")
            data |= _add_efa_interfaces(
                efa_scope, efa_cards, network, cluster_security_group_id, environment
            )
        eks.CfnNodegroup(
            self,
            "NodeGroup",
            cluster_name=names.cluster_name(environment),
            nodegroup_name=name,
            node_role=node_role_arn,
            subnets=network.subnet_ids[capacity.zone],
            ami_type="AL2023_x86_64_NEURON",
            capacity_type=capacity.eks_type,
            version=environment.cluster.kubernetes,
            release_version=release_version,
            launch_template=add_node_template(
                template_scope,
                "Resource",
                environment,
                name=name,
                instance_type=capacity.instance_type,
                root_gib=ROOT_GIB,
                imds_hops=IMDS_HOPS,
                **data,
            ),
            scaling_config=eks.CfnNodegroup.ScalingConfigProperty(
                min_size=0, desired_size=0, max_size=capacity.nodes
            ),
            # terminate first: there is no spare accelerator for a new node next to the old one
            update_config=eks.CfnNodegroup.UpdateConfigProperty(
                max_unavailable=1, update_strategy="MINIMAL"
            ),
            node_repair_config=eks.CfnNodegroup.NodeRepairConfigProperty(enabled=True),
            labels=_LABELS,
            tags={CAPACITY_KIND_TAG: capacity.kind, **_reservation_tags(capacity)},
            taints=[_TAINT],
        )


def _market_options(capacity: CapacitySettings) -> dict[str, Any]:
    """Return the purchase option; spot is on the node group, as EKS refuses it in the template."""
    if not capacity.needs_reservation:
        return {}
    target = _Template.CapacityReservationTargetProperty(
        capacity_reservation_id=capacity.reservation_id
    )
    reservation = _Template.CapacityReservationSpecificationProperty(
        capacity_reservation_target=target
    )
    options: dict[str, Any] = {"capacity_reservation_specification": reservation}
    if capacity.kind == "capacity-block":
        options["instance_market_options"] = _Template.InstanceMarketOptionsProperty(
            market_type="capacity-block"
        )
    return options


def _add_efa_interfaces(
    scope: Construct,
    cards: int,
    network: NetworkIds,
    cluster_group_id: str,
    environment: Environment,
) -> dict[str, Any]:
    """Add EFA interfaces, one per network card; inside a node NeuronLink carries the traffic.

    A reservation fixes its own placement. A Capacity Block needs no group (EC2 user guide, "Work
    with Capacity Blocks"). An on-demand reservation matches only inside the group it was made in
    ("Create Capacity Reservations in cluster placement groups").

    Returns:
        Additions to the launch template.
    """
    # without any rule EC2 adds one that allows everything
    nowhere = ec2.CfnSecurityGroup.EgressProperty(
        ip_protocol="-1", cidr_ip="127.0.0.1/32", description="nowhere"
    )
    group = ec2.CfnSecurityGroup(
        scope,
        "SecurityGroup",
        vpc_id=network.vpc_id,
        group_description="EFA traffic between accelerator nodes",
        security_group_egress=[nowhere],
        tags=[CfnTag(key="Name", value=f"{names.node_group_name(environment)}-efa")],
    )
    group_id = group.attr_group_id
    rule: dict[str, Any] = {"group_id": group_id, "ip_protocol": "-1", "description": "EFA"}
    ec2.CfnSecurityGroupIngress(scope, "FromItself", source_security_group_id=group_id, **rule)
    ec2.CfnSecurityGroupEgress(scope, "ToItself", destination_security_group_id=group_id, **rule)
    interfaces = [
        _Template.NetworkInterfaceProperty(
            network_card_index=card,
            device_index=min(card, 1),
            # the first carries IP too, the others have no address
            interface_type="efa-only" if card else "efa",
            # these replace the default interfaces, to which EKS would add the cluster's group
            groups=[cluster_group_id, group_id],
            delete_on_termination=True,
        )
        for card in range(cards)
    ]
    if environment.capacity.needs_reservation:
        return {"network_interfaces": interfaces}
    placement = ec2.CfnPlacementGroup(scope, "Placement", strategy="cluster")
    placement_property = _Template.PlacementProperty(group_name=placement.attr_group_name)
    return {"network_interfaces": interfaces, "placement": placement_property}


def _reservation_tags(capacity: CapacitySettings) -> dict[str, str]:
    """Return the tags that tell the guard the reservation and the hours of a Capacity Block.

    A new block changes these tags, so Guard needs no deploy. The hours are the plan: the guard
    reads from EC2 when the block of this id really ends.
    """
    if not capacity.needs_reservation or capacity.reservation_id is None:
        return {}
    tags = {RESERVATION_TAG: capacity.reservation_id}
    if capacity.kind == "capacity-block" and capacity.block is not None:
        moments = {BLOCK_STARTS_TAG: capacity.block.starts, BLOCK_ENDS_TAG: capacity.block.ends}
        tags |= {tag: f"{moment:%Y-%m-%dT%H:%M:%SZ}" for tag, moment in moments.items()}
    return tags
