"""The Workloads stack: all that an experiment needs in the cluster, except what GitOps syncs.

Invariant: this is the only stack with a kubectl provider; with gitops it has none. Then it holds
only the Pod Identity associations of experiments and runner, and that of Flux if Flux pulls the
chart from private ECR. They precede the pods that need them, because a pod that started before its
association never gets credentials. The stack depends on Cluster, so it is deleted first, while the
nodes, the add-ons and its own access to the cluster still exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aws_cdk import Duration
from aws_cdk import aws_eks_v2 as eks
from constructs import Construct, IDependable

from stacks.identity import add_chart_reader, add_pod_identities, add_runner_identity
from stacks.kubectl import KubectlAccess
from stacks.network import NetworkIds
from stacks.policy import PrivateRepository
from stacks.stack import EnvironmentStack
from tandem.declarations import names
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.driver_release import RELEASE, RELEASE_NAMESPACE, build_driver_release
from tandem.declarations.environment import Environment, GitopsDelivery
from tandem.declarations.experiment import Experiment

Objects = Sequence[Mapping[str, Any]]
# charts whose objects are many, large and independent of each other
CHARTS_SPLIT_BY_NAME = frozenset({"stage", "compile", "serve"})
HELM_TIMEOUT = Duration.minutes(10)  # within the handler's own 15, so that helm's error is reported


class KubernetesChart(Protocol):
    """A chart as `add_cdk8s_chart` of an EKS cluster takes it: a cdk8s.Chart."""

    def to_json(self) -> list[Any]:
        """Return the objects of the chart, in the order of their application."""


Charts = Mapping[str, KubernetesChart]  # by their ids, in the order of their application


@dataclass(frozen=True, kw_only=True)
class ClusterContent:
    """Charts that the CDK applies inside the cluster in addition to the Neuron DRA driver.

    Args:
        experiments: the charts of each experiment, by its name.
        people: their rights in the whole cluster.
        runner: the runner, its rights first.
    """

    experiments: Mapping[str, Charts]
    people: Charts
    runner: Charts


class WorkloadsStack(EnvironmentStack):
    """Pod Identity of experiments and runner; if the CDK delivers, Neuron DRA driver and charts.

    Args:
        experiments: of the environment.
        role_arns: service account to role.
        cluster_content: objects to apply inside the cluster; None with gitops.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: Environment,
        experiments: Sequence[Experiment],
        role_arns: Mapping[str, str],
        network: NetworkIds,
        cluster_security_group_id: str,
        cluster_content: ClusterContent | None,
        catalogue: Catalogue,
    ) -> None:
        super().__init__(
            scope,
            id_,
            environment=environment,
            description=(
                "Tandem: Pod Identity of experiments and runner, and where the CDK delivers,"
                " the manifests"
            ),
        )
        identities_scope = Construct(self, "PodIdentities")
        identities = {
            experiment.name: add_pod_identities(
                Construct(identities_scope, experiment.name),
                cluster_name=names.cluster_name(environment),
                namespace=names.experiment_namespace(experiment),
                role_arns=role_arns,
            )
            for experiment in experiments
        }
        runner_identity = add_runner_identity(Construct(self, "RunnerIdentity"), environment)

        delivery = environment.delivery
        driver = build_driver_release(environment, catalogue)
        chart = PrivateRepository.parse_reference(driver.repository)
        if isinstance(delivery, GitopsDelivery) and delivery.tool == "flux" and chart:
            add_chart_reader(
                Construct(self, "ChartReader"),
                environment,
                namespace=delivery.namespace,
                chart=chart,
            )

        if cluster_content is None:
            return
        kubectl = KubectlAccess(
            self,
            "Kubectl",
            environment=environment,
            subnet_ids=network.base_subnet_ids(),
            security_group_id=cluster_security_group_id,
            chart_repository=driver.repository,
        )
        release = eks.HelmChart(
            self,
            "NeuronDra",
            cluster=kubectl.cluster,
            release=RELEASE,
            namespace=RELEASE_NAMESPACE,
            create_namespace=False,
            chart=driver.repository.rpartition("/")[2],
            repository=driver.repository,
            version=driver.version.value,
            values=dict(driver.values.value),
            timeout=HELM_TIMEOUT,
        )
        release.node.add_dependency(kubectl.ready)

        experiment_scopes = [
            _add_charts(Construct(self, name), kubectl, charts, [release, identities[name]])
            for name, charts in cluster_content.experiments.items()
        ]
        _add_charts(Construct(self, "People"), kubectl, cluster_content.people, [])
        # after the experiments, so that a teardown ends the runner before it deletes what the
        # runner works on
        earlier = [*experiment_scopes, runner_identity]
        _add_charts(Construct(self, "Runner"), kubectl, cluster_content.runner, earlier)


def _add_charts(
    scope: Construct,
    kubectl: KubectlAccess,
    charts: Charts,
    earlier: Sequence[IDependable],
) -> Construct:
    """Add charts, each after the one before, deleted in reverse; return `scope`.

    `add_cdk8s_chart` would send a chart whole, and fail where an object is there already. Objects
    whose number grows with the variants are sent name by name. CloudFormation sends the properties
    of a custom resource, old and new, in one invocation of 256 KiB. By number, an object that moved
    to another resource would be deleted by its former resource before the new one makes it.
    """
    previous_manifests: list[eks.KubernetesManifest] = []
    for chart_id, chart in charts.items():
        manifests = [
            eks.KubernetesManifest(
                scope,
                piece_id,
                cluster=kubectl.cluster,
                manifest=piece_objects,
                overwrite=True,  # `kubectl create` would fail if the cluster already has the object
                # deletes what is no longer rendered, of the kinds in stacks/kubectl_settings
                prune=True,
            )
            for piece_id, piece_objects in split_chart(chart_id, chart.to_json()).items()
        ]
        for manifest in manifests:
            manifest.node.add_dependency(kubectl.ready, *earlier, *previous_manifests)
        previous_manifests = manifests or previous_manifests
    return scope


def split_chart(chart_id: str, objects: Objects) -> dict[str, list[Mapping[str, Any]]]:
    """Return the custom resources of one chart: id -> objects, in their order."""
    if chart_id not in CHARTS_SPLIT_BY_NAME:
        return {chart_id: list(objects)}
    objects_by_id: dict[str, list[Mapping[str, Any]]] = {}
    for body in objects:
        objects_by_id.setdefault(f"{chart_id}-{body['metadata']['name']}", []).append(body)
    return objects_by_id
