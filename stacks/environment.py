"""One environment as a CDK stage: its stacks, and the values that they pass to each other."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from stacks.artifacts import ArtifactsStack
from stacks.cluster import ClusterStack
from stacks.fleet import FleetStack
from stacks.guard import GuardStack
from stacks.image import ImageStack
from stacks.network import NetworkIds, NetworkStack, import_network
from stacks.observability import ObservabilityStack
from stacks.registry import RegistryStack
from stacks.workloads import ClusterContent, WorkloadsStack
from tandem.declarations import names
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.network_settings import NewNetwork
from tandem.declarations.project_image import list_hosted_images
from tandem.monitoring.agent import ADDON
from tandem.monitoring.scope import MonitoringScope


class EnvironmentStage(cdk.Stage):
    """All stacks of one environment, addressed as `<environment>/*`.

    One experiment more or less changes Workloads and Observability and no other template.

    Args:
        monitoring_scope: the environment, its experiments and their traffic.
        cluster_content: objects to apply inside the cluster; None with gitops, where a controller
            in the cluster does that.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        monitoring_scope: MonitoringScope,
        catalogue: Catalogue,
        cluster_content: ClusterContent | None,
    ) -> None:
        environment = monitoring_scope.environment
        boundary = environment.bootstrap.permissions_boundary
        super().__init__(
            scope,
            environment.name,
            env=cdk.Environment(account=environment.account, region=environment.region),
            permissions_boundary=cdk.PermissionsBoundary.from_name(boundary) if boundary else None,
        )
        self.node.set_context("@aws-cdk/core:bootstrapQualifier", environment.bootstrap.qualifier)
        # on the stage: properties of the App do not enter stages
        tags = cdk.Tags.of(self)
        for key, value in sorted(names.resource_tags(environment).items()):
            tags.add(key, value)

        minor = catalogue.kubernetes.minors[environment.cluster.kubernetes]
        addon_versions = {name: figure.value for name, figure in minor.addons.items()}
        images = list_hosted_images(scope.experiment for scope in monitoring_scope.experiments)
        kinds = names.stack_kinds(environment, [image.name for image in images])

        network_stack = None
        if isinstance(environment.network, NewNetwork):
            network_stack = NetworkStack(
                self, "Network", environment=environment, network=environment.network
            )
            network = network_stack.network
        else:
            network = import_network(environment.network)

        artifacts_stack = (
            ArtifactsStack(self, "Artifacts", environment=environment)
            if "Artifacts" in kinds
            else None
        )
        registry = RegistryStack(self, "Registry", environment=environment)
        image_stacks = {
            image.name: ImageStack(
                self,
                names.image_stack_kind(image.name),
                environment=environment,
                image=image,
                network=network,
                registry=registry,
            )
            for image in images
        }
        cluster = ClusterStack(
            self, "Cluster", environment=environment, network=network, addon_versions=addon_versions
        )
        guard = GuardStack(self, "Guard", environment=environment)
        observability = ObservabilityStack(
            self,
            "Observability",
            monitoring_scope=monitoring_scope,
            agent_version=addon_versions.get(ADDON),
        )
        workloads = self._add_workloads(
            monitoring_scope, network, catalogue, cluster, cluster_content
        )

        if network_stack:
            cluster.add_stack_dependency(network_stack)
        for image_stack in image_stacks.values():
            image_stack.add_stack_dependency(registry)
            if network_stack and environment.builds_in_vpc:
                image_stack.add_stack_dependency(network_stack)
        if artifacts_stack:
            guard.add_stack_dependency(artifacts_stack)  # the fence is in the bucket
        observability.add_stack_dependency(cluster)  # for its add-on
        observability.add_stack_dependency(guard)  # for the topic of its alarms
        workloads.add_stack_dependency(cluster)
        # a fault of its add-on must not keep a run from starting
        observability.add_stack_dependency(workloads)
        for name, image_stack in image_stacks.items():
            if name in names.CORE_IMAGES:
                workloads.add_stack_dependency(image_stack)  # its pods pull them
            else:
                # the CLI stops at a failed build, and a run needs less
                image_stack.add_stack_dependency(workloads)

        if "Fleet" in kinds:
            self._add_fleet(environment, network, catalogue, cluster=cluster, guard=guard)
        else:
            cdk.Annotations.of(cluster).add_warning_v2(
                "tandem:reservation-given",
                f"no Fleet stack: capacity.reservation_id of {environment.name} is null or the"
                " placeholder",
            )

    def _add_workloads(
        self,
        monitoring_scope: MonitoringScope,
        network: NetworkIds,
        catalogue: Catalogue,
        cluster: ClusterStack,
        cluster_content: ClusterContent | None,
    ) -> WorkloadsStack:
        """Add the stack of what runs in the cluster."""
        return WorkloadsStack(
            self,
            "Workloads",
            environment=monitoring_scope.environment,
            role_arns=cluster.pod_role_arns,
            network=network,
            experiments=[
                experiment_scope.experiment for experiment_scope in monitoring_scope.experiments
            ],
            cluster_security_group_id=cluster.security_group_id,
            cluster_content=cluster_content,
            catalogue=catalogue,
        )

    def _add_fleet(
        self,
        environment: Environment,
        network: NetworkIds,
        catalogue: Catalogue,
        *,
        cluster: ClusterStack,
        guard: GuardStack,
    ) -> None:
        """Add the stack of the accelerator nodes."""
        minor = catalogue.kubernetes.minors[environment.cluster.kubernetes]
        instance = catalogue.instances.instances[environment.capacity.instance_type]
        fleet = FleetStack(
            self,
            "Fleet",
            environment=environment,
            network=network,
            node_role_arn=cluster.node_role_arn,
            cluster_security_group_id=cluster.security_group_id,
            release_version=environment.cluster.ami_release or minor.default_release,
            efa_cards=instance.efa_cards.value,
        )
        fleet.add_stack_dependency(cluster)
        fleet.add_stack_dependency(guard)  # no nodes without a stop
