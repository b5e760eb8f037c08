"""EFA: one network card per interface, for traffic between nodes. Within one node NeuronLink carries it all."""

from __future__ import annotations

from typing import Any

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.endpoints import loopback_egress_rule
from stacks.tags import name_tags

_Template = ec2.CfnLaunchTemplate
_ALL_PROTOCOLS = "-1"


class EfaInterfaces(Construct):
    """The interfaces, a security group that admits itself, and a cluster placement group where one belongs.

    A reservation fixes its own placement: a Capacity Block needs no group, and on-demand reservations match
    only inside the group they were made in (EC2 user guide, "Work with Capacity Blocks" and "Create Capacity
    Reservations in cluster placement groups").

    Attributes:
        template_data: what the launch template adds.
    """

    def __init__(
        self, scope: Construct, id_: str, *, cards: int, vpc_id: str, cluster_security_group_id: str,
        has_placement_group: bool, name: str,
    ) -> None:  # fmt: skip
        super().__init__(scope, id_)
        group = ec2.CfnSecurityGroup(
            self, "SecurityGroup", vpc_id=vpc_id, group_description="EFA traffic between accelerator nodes",
            security_group_egress=[loopback_egress_rule()], tags=name_tags(f"{name}-efa"),
        )  # fmt: skip
        own_group_id = group.attr_group_id
        ec2.CfnSecurityGroupIngress(
            self,
            "FromItself",
            group_id=own_group_id,
            ip_protocol=_ALL_PROTOCOLS,
            source_security_group_id=own_group_id,
            description="EFA",
        )
        ec2.CfnSecurityGroupEgress(
            self,
            "ToItself",
            group_id=own_group_id,
            ip_protocol=_ALL_PROTOCOLS,
            destination_security_group_id=own_group_id,
            description="EFA",
        )
        # interfaces named here replace the default ones, and with them the cluster's group that EKS would add
        groups = [cluster_security_group_id, own_group_id]
        self.template_data: dict[str, Any] = {
            "network_interfaces": [_build_interface(card, groups) for card in range(cards)]
        }
        if has_placement_group:
            placement = ec2.CfnPlacementGroup(self, "Placement", strategy="cluster")
            self.template_data["placement"] = _Template.PlacementProperty(group_name=placement.attr_group_name)


def _build_interface(card: int, groups: list[str]) -> _Template.NetworkInterfaceProperty:
    """Return the interface of one card: the first carries IP too, the others nothing but EFA and no address."""
    return _Template.NetworkInterfaceProperty(
        network_card_index=card,
        device_index=0 if card == 0 else 1,
        interface_type="efa" if card == 0 else "efa-only",
        groups=groups,
        delete_on_termination=True,
    )
