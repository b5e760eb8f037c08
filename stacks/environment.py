"""One environment as a CDK stage: its stacks, and the values that they pass to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from tandem.declarations.project_image import ProjectImage, list_hosted_images
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
        for key, value in sorted(names.resource_tags(environment).items()):
            cdk.Tags.of(self).add(key, value)

        experiments = [member.experiment for member in monitoring_scope.experiments]
        images = list_hosted_images(experiments)
        kinds = names.stack_kinds(environment, [image.name for image in images])
        minor = catalogue.kubernetes.minors[environment.cluster.kubernetes]
        addon_versions = {name: figure.value for name, figure in minor.addons.items()}

        network_stack, network = self._add_network(environment)
        image_stacks = self._add_image_stacks(environment, images, network, network_stack)
        cluster = ClusterStack(
            self, "Cluster", environment=environment, network=network, addon_versions=addon_versions
        )
        if network_stack:
            cluster.add_stack_dependency(network_stack)
        guard = GuardStack(self, "Guard", environment=environment)
        if "Artifacts" in kinds:
            artifacts = ArtifactsStack(self, "Artifacts", environment=environment)
            guard.add_stack_dependency(artifacts)  # the fence is in the bucket

        workloads = WorkloadsStack(
            self,
            "Workloads",
            environment=environment,
            role_arns=cluster.pod_role_arns,
            network=network,
            experiments=experiments,
            cluster_security_group_id=cluster.security_group_id,
            cluster_content=cluster_content,
            catalogue=catalogue,
        )
        workloads.add_stack_dependency(cluster)
        _order_builds(image_stacks, workloads)

        observability = ObservabilityStack(
            self,
            "Observability",
            monitoring_scope=monitoring_scope,
            agent_version=addon_versions.get(ADDON),
        )
        observability.add_stack_dependency(cluster)  # for its add-on
        observability.add_stack_dependency(guard)  # for the topic of its alarms
        # a fault of its add-on must not keep a run from starting
        observability.add_stack_dependency(workloads)

        if "Fleet" in kinds:
            fleet = self._add_fleet(environment, network, catalogue, cluster)
            fleet.add_stack_dependency(guard)  # no nodes without a stop
        else:
            cdk.Annotations.of(cluster).add_warning_v2(
                "tandem:reservation-given",
                f"no Fleet stack: capacity.reservation_id of {environment.name}"
                " is null or the placeholder",
            )

    def _add_network(self, environment: Environment) -> tuple[NetworkStack | None, NetworkIds]:
        """Add the stack of a new network; return it, or None, and the ids of the network."""
        declared = environment.network
        if not isinstance(declared, NewNetwork):
            return None, import_network(declared)
        stack = NetworkStack(self, "Network", environment=environment, network=declared)
        return stack, stack.network

    def _add_image_stacks(
        self,
        environment: Environment,
        images: Sequence[ProjectImage],
        network: NetworkIds,
        network_stack: NetworkStack | None,
    ) -> dict[str, ImageStack]:
        """Add the registry and a build for each image; return the builds by their images."""
        registry = RegistryStack(self, "Registry", environment=environment)
        stacks = {}
        for image in images:
            stack = ImageStack(
                self,
                names.image_stack_kind(image.name),
                environment=environment,
                image=image,
                network=network,
                registry=registry,
            )
            stack.add_stack_dependency(registry)
            if network_stack and environment.builds_in_vpc:
                stack.add_stack_dependency(network_stack)
            stacks[image.name] = stack
        return stacks

    def _add_fleet(
        self,
        environment: Environment,
        network: NetworkIds,
        catalogue: Catalogue,
        cluster: ClusterStack,
    ) -> FleetStack:
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
        return fleet


def _order_builds(image_stacks: Mapping[str, ImageStack], workloads: WorkloadsStack) -> None:
    """Build what its pods pull before Workloads, and the rest after it.

    The CLI stops at a failed build, and a run needs no more than the core images.
    """
    for name, stack in image_stacks.items():
        if name in names.CORE_IMAGES:
            workloads.add_stack_dependency(stack)
        else:
            stack.add_stack_dependency(workloads)
