"""The Network stack: a VPC of this environment's own. An existing one needs no stack."""

from __future__ import annotations

from dataclasses import dataclass

from constructs import Construct

from stacks.endpoints import VpcEndpoints
from stacks.exports import export_value
from stacks.flow_logs import FlowLogs
from stacks.stack import EnvironmentStack
from stacks.vpc import EnvironmentVpc
from tandem.spec import names
from tandem.spec.environment import Environment, ExistingNetwork, NewNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkIds:
    """What the other stacks need to know of a network.

    Args:
        vpc_id: literal, or an import.
        subnet_ids: zone id to its private subnets.
    """

    vpc_id: str
    subnet_ids: dict[str, list[str]]

    def all_subnet_ids(self) -> list[str]:
        """Return the private subnets of all zones."""
        return [subnet_id for zone in self.subnet_ids.values() for subnet_id in zone]


def import_network(network: ExistingNetwork) -> NetworkIds:
    """Take a VPC by the ids its owner gave; routes, flow logs and endpoints, S3's too, stay the owner's."""
    zones = sorted({subnet.zone for subnet in network.subnets})
    by_zone = {zone: [subnet.id for subnet in network.subnets if subnet.zone == zone] for zone in zones}
    return NetworkIds(vpc_id=network.vpc_id, subnet_ids=by_zone)


class NetworkStack(EnvironmentStack):
    """VPC, private subnets by zone id, NAT, endpoints, flow logs.

    Attributes:
        network: the network as other stacks import it.
    """

    def __init__(self, scope: Construct, id_: str, *, environment: Environment, network: NewNetwork) -> None:
        super().__init__(
            scope, id_, environment=environment, description="Tandem: VPC, private subnets, endpoints, flow logs"
        )
        name = names.cluster_name(environment)
        # beside the accelerators: another zone's outage cannot cut them off, and their bytes cross no zone
        vpc = EnvironmentVpc(self, "Vpc", network=network, nat_zone=environment.capacity.zone, name=name)
        VpcEndpoints(self, "Endpoints", vpc=vpc, network=network, environment=environment, name=name)
        FlowLogs(
            self,
            "FlowLogs",
            vpc_id=vpc.vpc_id,
            account=environment.account,
            retention_days=environment.log_retention_days,
        )
        self.network = NetworkIds(
            vpc_id=export_value(self, "VpcId", vpc.vpc_id),
            subnet_ids={
                zone: [export_value(self, f"Subnet-{zone}", subnet_id)] for zone, subnet_id in vpc.subnet_ids.items()
            },
        )
