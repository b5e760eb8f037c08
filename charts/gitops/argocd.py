"""Argo CD: one Application per experiment from an ApplicationSet, one each for the Neuron DRA chart, people and these.

Invariant: no sync ever touches the number of a server's pods, and a pending pod is no fault.

The order of an experiment's objects is in their sync-wave annotations (base 0, claims 1, storage 2, and 3 for what
runs), not in Applications that wait for each other, which Argo CD does only behind a feature flag. The cluster is
named `in-cluster`: plain Argo CD knows that name, and the EKS capability lets its own cluster be registered under
it (docs.aws.amazon.com/eks/latest/userguide/argocd-register-clusters.html, 2026-11-21). Charts from an
`oci://` address need Argo CD 3.1.
"""

from __future__ import annotations

from charts.driver import RELEASE, RELEASE_NAMESPACE, DriverRelease
from charts.manifest import Object, build_object, object_labels, sync_wave
from charts.people import FOLDER as PEOPLE_FOLDER
from tandem.spec import names
from tandem.spec.environment import GitopsDelivery
from tandem.spec.experiment import Experiment

API = "argoproj.io/v1alpha1"
CLUSTER = "in-cluster"
FINALIZER = "resources-finalizer.argocd.argoproj.io"
RETRY = {"limit": 5, "backoff": {"duration": "10s", "factor": 2, "maxDuration": "5m"}}
SYNC_AUTOMATION = {"prune": True, "selfHeal": True}

# what the charts render, and nothing else may enter the cluster by this project
CLUSTER_KINDS = [("", "Namespace"), ("", "PersistentVolume")]
NAMESPACED_KINDS = [
    ("", "ConfigMap"),
    ("", "PersistentVolumeClaim"),
    ("", "ResourceQuota"),
    ("", "Service"),
    ("", "ServiceAccount"),
    ("apps", "Deployment"),
    ("batch", "CronJob"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("resource.k8s.io", "ResourceClaimTemplate"),
]
# what charts/people.py renders
PEOPLE_CLUSTER_KINDS = [
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
]
PEOPLE_NAMESPACED_KINDS = [
    ("", "ConfigMap"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
]
# cluster-wide objects of the Neuron chart with its DRA driver on (templates/dra-driver, chart 1.9.0)
DRIVER_CLUSTER_KINDS = [
    ("", "Namespace"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("resource.k8s.io", "DeviceClass"),
]


def build_argocd(
    name: str, delivery: GitopsDelivery, experiments: list[Experiment], driver: DriverRelease
) -> list[Object]:
    """Return everything Argo CD is told about the environment `name`."""
    platform_project = f"{name}-platform"
    people_project = f"{name}-people"  # a project of its own: whoever changes an experiment changes no right
    platform_namespaces = [delivery.namespace, RELEASE_NAMESPACE, driver.namespace]
    namespaces = [names.experiment_namespace(experiment) for experiment in experiments]
    revision_source = {"repoURL": delivery.repo_url, "targetRevision": delivery.revision}
    gitops_source = revision_source | {"path": f"{delivery.path}/gitops"}
    people_source = revision_source | {"path": f"{delivery.path}/{PEOPLE_FOLDER}"}
    platform_sources, sources = [delivery.repo_url, driver.repository], [delivery.repo_url]
    rows: list[tuple[str, str, int, Object]] = [
        (
            "AppProject", platform_project, 0,
            _build_project(platform_sources, platform_namespaces, DRIVER_CLUSTER_KINDS, None),
        ),
        ("AppProject", name, 0, _build_project(sources, namespaces, CLUSTER_KINDS, NAMESPACED_KINDS)),
        (
            "AppProject", people_project, 0,
            _build_project(sources, namespaces, PEOPLE_CLUSTER_KINDS, PEOPLE_NAMESPACED_KINDS),
        ),
        (
            "Application", f"{name}-gitops", 1,
            _build_application_spec(platform_project, gitops_source, delivery.namespace),
        ),
        (
            "Application", f"{name}-neuron-dra", 1,
            _build_application_spec(platform_project, _chart_source(driver), RELEASE_NAMESPACE),
        ),
        # to the first namespace, because an Application names one; each object names its own. A sync that comes before
        # the namespaces do is tried again
        ("Application", people_project, 2, _build_application_spec(people_project, people_source, namespaces[0])),
        ("ApplicationSet", name, 2, _build_application_set(name, revision_source, delivery.path, experiments)),
    ]  # fmt: skip
    return [
        build_object(
            API, kind, object_name, {"spec": spec}, namespace=delivery.namespace,
            labels=object_labels(name, "gitops"), annotations=sync_wave(wave),
            # Argo CD cannot finish the deletion of an Application whose project is gone. The driver's Application has
            # none: pods could not give their devices back once the driver went first
            finalizers=[FINALIZER] if kind == "AppProject" or object_name == people_project else [],
        )
        for kind, object_name, wave, spec in rows
    ]  # fmt: skip


def _build_project(
    sources: list[str],
    namespaces: list[str],
    cluster_kinds: list[tuple[str, str]],
    namespace_kinds: list[tuple[str, str]] | None,
) -> Object:
    def list_kinds(pairs: list[tuple[str, str]]) -> list[Object]:
        return [{"group": group, "kind": kind} for group, kind in pairs]

    return {
        "sourceRepos": sources,
        "destinations": [{"name": CLUSTER, "namespace": namespace} for namespace in namespaces],
        "clusterResourceWhitelist": list_kinds(cluster_kinds),
        **({"namespaceResourceWhitelist": list_kinds(namespace_kinds)} if namespace_kinds else {}),
    }


def _build_application_spec(project: str, source: Object, namespace: str) -> Object:
    return {
        "project": project,
        "source": source,
        "destination": {"name": CLUSTER, "namespace": namespace},
        "syncPolicy": {"automated": SYNC_AUTOMATION, "syncOptions": ["ServerSideApply=true"], "retry": RETRY},
    }


def _chart_source(driver: DriverRelease) -> Object:
    return {
        "repoURL": driver.repository,
        "targetRevision": driver.version,
        "path": ".",
        "helm": {"releaseName": RELEASE, "valuesObject": driver.values},
    }


def _build_application_set(name: str, revision_source: Object, path: str, experiments: list[Experiment]) -> Object:
    elements = [
        {"experiment": experiment.name, "namespace": names.experiment_namespace(experiment)}
        for experiment in experiments
    ]
    source = revision_source | {"path": f"{path}/{{{{.experiment}}}}"}
    spec = _build_application_spec(name, source, "{{.namespace}}")
    # the runner owns the number of pods; without RespectIgnoreDifferences a sync would still apply the field
    spec["ignoreDifferences"] = [{"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]}]
    spec["syncPolicy"]["syncOptions"] += ["RespectIgnoreDifferences=true"]
    return {
        "goTemplate": True,
        "goTemplateOptions": ["missingkey=error"],
        "generators": [{"list": {"elements": elements}}],
        "template": {"metadata": {"name": f"{name}-{{{{.experiment}}}}", "finalizers": [FINALIZER]}, "spec": spec},
    }
