"""The Cluster stack: control plane, people, add-ons, system nodes, pods' roles."""

from __future__ import annotations

from collections.abc import Mapping

from constructs import Construct

from stacks.access import AccessEntries
from stacks.addons import NodeAddons, WorkloadAddons
from stacks.aws_location import locate_environment
from stacks.control_plane import ControlPlane
from stacks.exports import export_value
from stacks.identity import PodRoles
from stacks.network import NetworkIds
from stacks.nodes import NodeRole
from stacks.stack import EnvironmentStack
from stacks.system_nodes import SystemNodeGroup
from tandem.spec import names
from tandem.spec.environment import Environment


class ClusterStack(EnvironmentStack):
    """An EKS cluster that is ready for accelerator nodes and has none, and knows no experiment.

    Attributes:
        node_role_arn, security_group_id: as other stacks import them.
        pod_role_arns: service account to role, as Workloads imports them.
    """

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, network: NetworkIds,
        addon_versions: Mapping[str, str | None],
    ) -> None:  # fmt: skip
        super().__init__(
            scope, id_, environment=environment, description="Tandem: EKS cluster, add-ons, system nodes, access"
        )
        location = locate_environment(environment)
        name, subnet_ids = names.cluster_name(environment), network.all_subnet_ids()
        control_plane = ControlPlane(
            self, "ControlPlane", name=name, cluster=environment.cluster, subnet_ids=subnet_ids, location=location,
            retention_days=environment.log_retention_days,
        )  # fmt: skip
        cluster_ref = control_plane.cluster_name
        AccessEntries(self, "Access", cluster_name=cluster_ref, access=environment.cluster.access, location=location)
        node_role = NodeRole(self, "NodeRole", location=location, mirrors=environment.registry_mirrors.values())
        node_addons = NodeAddons(
            self, "NodeAddons", cluster_ref=cluster_ref, cluster_name=name, location=location, versions=addon_versions
        )
        system_nodes = SystemNodeGroup(
            self,
            "SystemNodes",
            cluster=environment.cluster,
            cluster_name=cluster_ref,
            node_role_arn=node_role.arn,
            subnet_ids=subnet_ids,
            tags=names.resource_tags(environment),
            name=f"{name}-system",
        )
        for addon in node_addons.addons:
            system_nodes.node_group.add_resource_dependency(addon)
        WorkloadAddons(self, "Addons", cluster_ref=cluster_ref, versions=addon_versions, nodes=system_nodes.node_group)
        pods = PodRoles(
            self, "PodRoles", environment=environment,
            metrics_namespaces=(names.bench_namespace(environment), names.simulation_namespace(environment)),
        )  # fmt: skip
        self.node_role_arn = export_value(self, "NodeRoleArn", node_role.arn)
        self.security_group_id = export_value(self, "SecurityGroupId", control_plane.security_group_id)
        self.pod_role_arns = {
            account: export_value(self, f"RoleArn-{account}", arn) for account, arn in pods.arns.items()
        }
