"""One environment as a CDK stage: which stacks it has, and what each hears of the others."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from stacks.artifacts import ArtifactsStack
from stacks.cluster import ClusterStack
from stacks.fleet import FleetStack
from stacks.guard import GuardStack
from stacks.image import ImageStack
from stacks.network import NetworkStack, import_network
from stacks.observability import ObservabilityStack
from stacks.workloads import ClusterContent, WorkloadsStack
from tandem.monitoring.agent import ADDON
from tandem.monitoring.scope import MonitoringScope
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import NewNetwork


class EnvironmentStage(cdk.Stage):
    """All stacks of one environment, addressed as `<environment>/*`.

    Another experiment, or one less, changes Workloads and Observability and no other template.

    Args:
        monitoring_scope: the environment, the experiments it hosts and their traffic.
        cluster_content: what to apply inside the cluster; None with gitops, where a controller in the cluster does.
    """

    def __init__(
        self, scope: Construct, *, monitoring_scope: MonitoringScope, catalogue: Catalogue,
        cluster_content: ClusterContent | None,
    ) -> None:  # fmt: skip
        environment = monitoring_scope.environment
        boundary = environment.bootstrap.permissions_boundary
        super().__init__(
            scope,
            environment.name,
            env=cdk.Environment(account=environment.account, region=environment.region),
            permissions_boundary=cdk.PermissionsBoundary.from_name(boundary) if boundary else None,
        )
        # on the stage: what is put on the App does not enter stages
        for key, value in sorted(names.resource_tags(environment).items()):
            cdk.Tags.of(self).add(key, value)
        minor = catalogue.kubernetes.minors[environment.cluster.kubernetes]
        addon_versions = {name: figure.value for name, figure in minor.addons.items()}
        if isinstance(environment.network, NewNetwork):
            network = NetworkStack(self, "Network", environment=environment, network=environment.network).network
        else:
            network = import_network(environment.network)
        kinds = names.stack_kinds(environment)
        if "Artifacts" in kinds:
            ArtifactsStack(self, "Artifacts", environment=environment)
        image = ImageStack(self, "Image", environment=environment, network=network)
        if environment.builds_in_vpc:
            self._order_after(image, "Network")
        cluster = ClusterStack(self, "Cluster", environment=environment, network=network, addon_versions=addon_versions)
        self._order_after(cluster, "Network")
        guard = GuardStack(self, "Guard", environment=environment)
        self._order_after(guard, "Artifacts")  # the fence lies there
        if "Fleet" in kinds:
            fleet = FleetStack(
                self, "Fleet", environment=environment, network=network, node_role_arn=cluster.node_role_arn,
                cluster_security_group_id=cluster.security_group_id, release_version=minor.ami_release.value,
                efa_cards=catalogue.instances.instances[environment.capacity.instance_type].efa_cards.value,
            )  # fmt: skip
            fleet.add_stack_dependency(cluster)
            fleet.add_stack_dependency(guard)  # nothing is raised where nothing stops it
        else:
            cdk.Annotations.of(cluster).add_warning_v2(
                "tandem:reservation-given",
                f"no Fleet stack: capacity.reservation_id of {environment.name} is null or the placeholder",
            )
        observability = ObservabilityStack(
            self, "Observability", monitoring_scope=monitoring_scope, agent_version=addon_versions.get(ADDON)
        )
        observability.add_stack_dependency(cluster)  # its add-on
        observability.add_stack_dependency(guard)  # the topic that its alarms tell
        workloads = WorkloadsStack(
            self, "Workloads", environment=environment, role_arns=cluster.pod_role_arns, network=network,
            experiments=[experiment_scope.experiment for experiment_scope in monitoring_scope.experiments],
            cluster_security_group_id=cluster.security_group_id, cluster_content=cluster_content,
            catalogue=catalogue,
        )  # fmt: skip
        workloads.add_stack_dependency(cluster)
        self._order_after(workloads, "Image")  # what it starts pulls the images of ours

    def _order_after(self, stack: cdk.Stack, kind: str) -> None:
        """Order `stack` after the stack of `kind`, where the environment has one."""
        earlier_stack = self.node.try_find_child(kind)
        if isinstance(earlier_stack, cdk.Stack):
            stack.add_stack_dependency(earlier_stack)
