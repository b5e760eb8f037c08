"""The objects of Argo CD, for an environment that it delivers.

Invariant: one Application per experiment from an ApplicationSet, one each for the Neuron DRA chart,
people, runner and these objects. No sync ever changes the number of a server's pods, and a pending
pod is no fault. The order of an experiment's objects is in their sync-wave annotations: base 0,
claims 1, storage 2, servers and CronJobs 3. Applications that wait for each other are behind a
feature flag of Argo CD. The cluster is named `in-cluster`: plain Argo CD knows that name, and the
EKS capability lets its own cluster be registered under it
(docs.aws.amazon.com/eks/latest/userguide/argocd-register-clusters.html, 2026-11-21). Charts from an
`oci://` address need Argo CD 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from charts import people, runner
from charts.chart import GITOPS, Resource
from charts.gitops_chart import GitopsChart
from charts.roles import RBAC
from tandem.declarations import names
from tandem.declarations.driver_release import RELEASE, RELEASE_NAMESPACE
from tandem.declarations.environment import GitopsDelivery
from tandem.declarations.experiment import Experiment
from tandem.declarations.platform import DraChart
from tandem.ops.people.cluster_rights import RUNNER_NAMESPACE

ARGOCD_API = "argoproj.io/v1alpha1"
CLUSTER = "in-cluster"
FINALIZER = "resources-finalizer.argocd.argoproj.io"
RETRY = {"limit": 5, "backoff": {"duration": "10s", "factor": 2, "maxDuration": "5m"}}
SYNC_AUTOMATION = {"prune": True, "selfHeal": True}

# `group/kind` of the charts' objects; this project admits nothing else to the cluster
CLUSTER_KINDS = ("Namespace", "PersistentVolume")
NAMESPACED_KINDS = (
    "ConfigMap",
    "PersistentVolumeClaim",
    "ResourceQuota",
    "Service",
    "ServiceAccount",
    "apps/Deployment",
    "batch/CronJob",
    "networking.k8s.io/NetworkPolicy",
    f"{RBAC}/Role",
    f"{RBAC}/RoleBinding",
    "resource.k8s.io/ResourceClaimTemplate",
)
# kinds of charts/people.py
PEOPLE_CLUSTER_KINDS = (f"{RBAC}/ClusterRole", f"{RBAC}/ClusterRoleBinding")
# an AppProject without a list of namespaced kinds admits all of them (argo-cd app_project_types.go)
NO_NAMESPACED_KIND = {"namespaceResourceBlacklist": [{"group": "*", "kind": "*"}]}
# kinds of charts/runner.py and charts/runner_pod.py
RUNNER_CLUSTER_KINDS = ("Namespace", *PEOPLE_CLUSTER_KINDS)
RUNNER_NAMESPACED_KINDS = (
    "ConfigMap",
    "ServiceAccount",
    "apps/Deployment",
    "networking.k8s.io/NetworkPolicy",
)
# cluster-wide objects of the Neuron chart with its DRA driver on (templates/dra-driver, chart
# 1.9.0)
DRIVER_CLUSTER_KINDS = ("Namespace", *PEOPLE_CLUSTER_KINDS, "resource.k8s.io/DeviceClass")


class ArgocdChart(GitopsChart):
    """All objects of Argo CD for one environment."""

    def add_objects(self) -> None:
        """Add the objects, in the order of their application."""
        name = self.environment_name
        # a person who changes an experiment changes no right outside its namespace
        platform_project = f"{name}-platform"
        people_project = f"{name}-{people.FOLDER}"
        runner_project = f"{name}-{runner.FOLDER}"
        repository = [self.delivery.repo_url]
        platform_namespaces = [
            self.delivery.namespace,
            RELEASE_NAMESPACE,
            self.driver.namespace.value,
        ]
        namespaces = [names.experiment_namespace(experiment) for experiment in self.experiments]
        gitops_source = _build_source(self.delivery, GITOPS)
        people_source = _build_source(self.delivery, people.FOLDER)
        runner_source = _build_source(self.delivery, runner.FOLDER)

        projects = {
            platform_project: _build_project(
                [self.delivery.repo_url, self.driver.repository],
                platform_namespaces,
                DRIVER_CLUSTER_KINDS,
            ),
            name: _build_project(repository, namespaces, CLUSTER_KINDS, NAMESPACED_KINDS),
            # an Application names a namespace, also one of cluster-wide objects alone
            people_project: (
                _build_project(repository, [self.delivery.namespace], PEOPLE_CLUSTER_KINDS)
                | NO_NAMESPACED_KIND
            ),
            runner_project: _build_project(
                repository, [RUNNER_NAMESPACE], RUNNER_CLUSTER_KINDS, RUNNER_NAMESPACED_KINDS
            ),
        }
        for project_name, project in projects.items():
            # Argo CD cannot finish the deletion of an Application whose project is gone
            self._add_resource("AppProject", project_name, project, wave=0, finalizers=[FINALIZER])

        gitops = _build_application(platform_project, gitops_source, self.delivery.namespace)
        self._add_resource("Application", f"{name}-gitops", gitops, wave=1)
        # without a finalizer: pods could not return their devices if the driver went first
        dra = _build_application(
            platform_project, _build_driver_source(self.driver), RELEASE_NAMESPACE
        )
        self._add_resource("Application", f"{name}-neuron-dra", dra, wave=1)
        rights = _build_application(people_project, people_source, self.delivery.namespace)
        self._add_resource("Application", people_project, rights, wave=2, finalizers=[FINALIZER])
        running = _build_application(runner_project, runner_source, RUNNER_NAMESPACE)
        self._add_resource("Application", runner_project, running, wave=2, finalizers=[FINALIZER])
        self._add_resource(
            "ApplicationSet",
            name,
            _build_application_set(name, self.delivery, self.experiments),
            wave=2,
        )

    def _add_resource(
        self, kind: str, name: str, spec: Resource, *, wave: int, finalizers: Sequence[str] = ()
    ) -> None:
        self.add_custom_resource(
            ARGOCD_API,
            kind,
            name,
            spec,
            application=self.environment_name,
            wave=wave,
            finalizers=finalizers,
        )


def _build_source(delivery: GitopsDelivery, folder: str) -> Resource:
    path = f"{delivery.path}/{folder}"
    return {"repoURL": delivery.repo_url, "targetRevision": delivery.revision, "path": path}


def _build_driver_source(driver: DraChart) -> Resource:
    return {
        "repoURL": driver.repository,
        "targetRevision": driver.version.value,
        "path": ".",
        "helm": {"releaseName": RELEASE, "valuesObject": driver.values.value},
    }


def _build_project(
    sources: list[str],
    namespaces: list[str],
    cluster_kinds: Sequence[str],
    namespaced_kinds: Sequence[str] = (),
) -> Resource:
    def list_kinds(kinds: Sequence[str]) -> list[Resource]:
        parts = [kind.rpartition("/") for kind in kinds]
        return [{"group": group, "kind": kind} for group, _, kind in parts]

    return {
        "sourceRepos": sources,
        "destinations": [{"name": CLUSTER, "namespace": namespace} for namespace in namespaces],
        "clusterResourceWhitelist": list_kinds(cluster_kinds),
        **(
            {"namespaceResourceWhitelist": list_kinds(namespaced_kinds)} if namespaced_kinds else {}
        ),
    }


def _build_application(project: str, source: Resource, namespace: str) -> Resource:
    return {
        "project": project,
        "source": source,
        "destination": {"name": CLUSTER, "namespace": namespace},
        "syncPolicy": {
            "automated": SYNC_AUTOMATION,
            "syncOptions": ["ServerSideApply=true"],
            "retry": RETRY,
        },
    }


def _build_application_set(
    name: str, delivery: GitopsDelivery, experiments: Sequence[Experiment]
) -> Resource:
    elements = [
        {"experiment": experiment.name, "namespace": names.experiment_namespace(experiment)}
        for experiment in experiments
    ]
    spec = _build_application(name, _build_source(delivery, "{{.experiment}}"), "{{.namespace}}")
    # the runner owns the number of pods; without RespectIgnoreDifferences a sync would still apply
    # the field
    spec["ignoreDifferences"] = [
        {"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]}
    ]
    spec["syncPolicy"]["syncOptions"] += ["RespectIgnoreDifferences=true"]
    return {
        "goTemplate": True,
        "goTemplateOptions": ["missingkey=error"],
        "generators": [{"list": {"elements": elements}}],
        "template": {
            "metadata": {"name": f"{name}-{{{{.experiment}}}}", "finalizers": [FINALIZER]},
            "spec": spec,
        },
    }
