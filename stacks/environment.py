"""One environment as a CDK stage: which stacks it has, and what each hears of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from constructs import Construct

from stacks.artifacts import ArtifactsStack
from stacks.cluster import ClusterStack
from stacks.fleet import FleetStack
from stacks.image import ImageStack
from stacks.network import Network, NetworkStack, existing
from stacks.workloads import Charts, HelmRelease, WorkloadsStack
from tandem.spec import names
from tandem.spec.built_image import needed
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment, NewNetwork
from tandem.spec.experiment import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What runs inside the cluster, as plain values.

    Args:
        driver: the Neuron DRA chart.
        charts: experiment -> chart -> Kubernetes objects, in the order they are applied.
    """

    driver: HelmRelease
    charts: Charts


class EnvironmentStage(cdk.Stage):
    """All stacks of one environment, addressed as `<environment>/*`.

    Args:
        experiments: those it hosts.
        inside: what to apply inside the cluster; None with gitops, where a controller in the cluster does.
    """

    def __init__(
        self, scope: Construct, *, environment: Environment, experiments: Sequence[Experiment],
        catalogue: Catalogue, inside: Inside | None,
    ) -> None:  # fmt: skip
        boundary = environment.bootstrap.permissions_boundary
        super().__init__(
            scope,
            environment.name,
            env=cdk.Environment(account=environment.account, region=environment.region),
            permissions_boundary=cdk.PermissionsBoundary.from_name(boundary) if boundary else None,
        )
        # on the stage: what is put on the App does not enter stages
        for key, value in sorted(environment.tags.items()):
            cdk.Tags.of(self).add(key, value)
        minor = catalogue.kubernetes.minors[environment.cluster.kubernetes]
        network = self._network(environment)
        kinds = names.stack_kinds(environment)
        if "Artifacts" in kinds:
            ArtifactsStack(self, "Artifacts", environment=environment)
        ImageStack(self, "Image", environment=environment, images=needed(experiments))
        cluster = ClusterStack(
            self, "Cluster", environment=environment, network=network,
            addon_versions={name: figure.value for name, figure in minor.addons.items()},
            namespaces=[names.namespace(experiment) for experiment in experiments],
        )  # fmt: skip
        self._after(cluster, "Network")
        if "Fleet" in kinds:
            FleetStack(
                self, "Fleet", environment=environment, network=network, node_role_arn=cluster.node_role_arn,
                cluster_security_group_id=cluster.security_group_id, release_version=minor.ami_release.value,
                efa_cards=catalogue.instances.instances[environment.capacity.instance_type].efa_cards.value,
            ).add_stack_dependency(cluster)  # fmt: skip
        else:
            cdk.Annotations.of(cluster).add_warning_v2(
                "tandem:reservation-given",
                f"no Fleet stack: capacity.reservation_id of {environment.name} is null or the placeholder",
            )
        if inside is not None:
            self._workloads(environment, network, cluster, inside)

    def _network(self, environment: Environment) -> Network:
        if isinstance(environment.network, NewNetwork):
            return NetworkStack(self, "Network", environment=environment, network=environment.network).network
        return existing(environment.network)

    def _after(self, stack: cdk.Stack, kind: str) -> None:
        """Order `stack` after the stack of `kind`, where the environment has one."""
        earlier = self.node.try_find_child(kind)
        if isinstance(earlier, cdk.Stack):
            stack.add_stack_dependency(earlier)

    def _workloads(self, environment: Environment, network: Network, cluster: ClusterStack, inside: Inside) -> None:
        stack = WorkloadsStack(
            self, "Workloads", environment=environment, network=network,
            cluster_security_group_id=cluster.security_group_id, driver=inside.driver, charts=inside.charts,
        )  # fmt: skip
        stack.add_stack_dependency(cluster)
        self._after(stack, "Image")  # what it starts pulls the images of ours
