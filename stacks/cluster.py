"""The Cluster stack: control plane, people, add-ons, system nodes, pods' roles."""

from __future__ import annotations

from collections.abc import Mapping

from constructs import Construct

from stacks.access import AccessEntries
from stacks.addons import NodeAddons, WorkloadAddons
from stacks.control_plane import ControlPlane
from stacks.exports import export
from stacks.identity import PodRoles
from stacks.network import Network
from stacks.nodes import NodeRole
from stacks.place import place_of
from stacks.stack import EnvironmentStack
from stacks.system_nodes import SystemNodes
from tandem.spec import names
from tandem.spec.environment import Environment


class ClusterStack(EnvironmentStack):
    """An EKS cluster that is ready for accelerator nodes and has none, and knows no experiment.

    Attributes:
        node_role_arn, security_group_id: as other stacks import them.
        pod_role_arns: service account to role, as Workloads imports them.
    """

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, network: Network,
        addon_versions: Mapping[str, str | None],
    ) -> None:  # fmt: skip
        super().__init__(
            scope, id_, environment=environment, description="Tandem: EKS cluster, add-ons, system nodes, access"
        )
        place = place_of(environment)
        name, subnet_ids = names.cluster(environment), network.all_subnet_ids()
        plane = ControlPlane(
            self, "ControlPlane", name=name, cluster=environment.cluster, subnet_ids=subnet_ids, place=place,
            retention_days=environment.log_retention_days,
        )  # fmt: skip
        ref = plane.cluster_name
        AccessEntries(self, "Access", cluster_name=ref, access=environment.cluster.access, place=place)
        node_role = NodeRole(self, "NodeRole", place=place, mirrors=environment.registry_mirrors.values())
        before = NodeAddons(
            self, "NodeAddons", cluster_ref=ref, cluster_name=name, place=place, versions=addon_versions
        )
        system = SystemNodes(
            self, "SystemNodes", cluster=environment.cluster, cluster_name=ref,
            node_role_arn=node_role.arn, subnet_ids=subnet_ids, tags=names.tags(environment), name=f"{name}-system",
        )  # fmt: skip
        for addon in before.addons:
            system.node_group.add_resource_dependency(addon)
        WorkloadAddons(self, "Addons", cluster_ref=ref, versions=addon_versions, nodes=system.node_group)
        pods = PodRoles(
            self, "PodRoles", environment=environment,
            metrics_namespaces=(names.bench_namespace(environment), names.simulated_namespace(environment)),
        )  # fmt: skip
        self.node_role_arn = export(self, "NodeRoleArn", node_role.arn)
        self.security_group_id = export(self, "SecurityGroupId", plane.security_group_id)
        self.pod_role_arns = {account: export(self, f"RoleArn-{account}", arn) for account, arn in pods.arns.items()}
