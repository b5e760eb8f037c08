"""Argo CD: one Application per experiment from an ApplicationSet, one each for the Neuron DRA chart, people and these.

Invariant: no sync ever touches the number of a server's pods, and a pending pod is no fault.

The order of an experiment's objects is in their sync-wave annotations (base 0, claims 1, storage 2, and 3 for what
runs), not in Applications that wait for each other, which Argo CD does only behind a feature flag. The cluster is
named `in-cluster`: plain Argo CD knows that name, and the EKS capability lets its own cluster be registered under
it (docs.aws.amazon.com/eks/latest/userguide/argocd-register-clusters.html, 2026-11-21). Charts from an
`oci://` address need Argo CD 3.1.
"""

from __future__ import annotations

from typing import Any

import cdk8s
from constructs import Construct

from charts.driver import RELEASE, RELEASE_NAMESPACE, Driver
from charts.manifest import labels, manifest, wave
from charts.people import FOLDER as PEOPLE_FOLDER
from tandem.spec import names
from tandem.spec.environment import Environment, GitopsDelivery
from tandem.spec.experiment import Experiment

API = "argoproj.io/v1alpha1"
CLUSTER = "in-cluster"
FINALIZER = "resources-finalizer.argocd.argoproj.io"
RETRY = {"limit": 5, "backoff": {"duration": "10s", "factor": 2, "maxDuration": "5m"}}
AUTOMATED = {"prune": True, "selfHeal": True}

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

Body = dict[str, Any]


class ArgoCdChart(cdk8s.Chart):
    """Everything Argo CD is told about one environment."""

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, experiments: list[Experiment], driver: Driver
    ) -> None:
        super().__init__(scope, id_, disable_resource_name_hashes=True)
        name, delivery = environment.name, environment.delivery
        assert isinstance(delivery, GitopsDelivery)  # nobody asks for this chart where the CDK delivers
        platform = f"{name}-platform"
        people = f"{name}-people"  # a project of its own: whoever changes an experiment changes no right
        platform_spaces = [delivery.namespace, RELEASE_NAMESPACE, driver.namespace]
        spaces = [names.namespace(experiment) for experiment in experiments]
        here = {"repoURL": delivery.repo_url, "targetRevision": delivery.revision}

        def put(kind: str, called: str, number: int, spec: Body) -> None:
            manifest(self, {
                "apiVersion": API,
                "kind": kind,
                "metadata": {
                    "name": called,
                    "namespace": delivery.namespace,
                    "labels": labels(name, "gitops"),
                    "annotations": wave(number),
                    # Argo CD cannot finish the deletion of an Application whose project is gone. The driver's
                    # Application has none: pods could not give their devices back once the driver went first
                    **({"finalizers": [FINALIZER]} if kind == "AppProject" or called == people else {}),
                },
                "spec": spec,
            })  # fmt: skip

        sources = [delivery.repo_url, driver.repository]
        put("AppProject", platform, 0, _project(sources, platform_spaces, DRIVER_CLUSTER_KINDS, None))
        put("AppProject", name, 0, _project([delivery.repo_url], spaces, CLUSTER_KINDS, NAMESPACED_KINDS))
        put("AppProject", people, 0, _project(
            [delivery.repo_url], spaces, PEOPLE_CLUSTER_KINDS, PEOPLE_NAMESPACED_KINDS
        ))  # fmt: skip
        own = here | {"path": f"{delivery.path}/gitops"}
        put("Application", f"{name}-gitops", 1, _application(platform, own, delivery.namespace))
        put("Application", f"{name}-neuron-dra", 1, _application(platform, _chart(driver), RELEASE_NAMESPACE))
        # to the first namespace, because an Application names one; each object names its own. A sync that comes before
        # the namespaces do is tried again
        rights = here | {"path": f"{delivery.path}/{PEOPLE_FOLDER}"}
        put("Application", people, 2, _application(people, rights, spaces[0]))
        put("ApplicationSet", name, 2, _experiments(name, here, delivery.path, experiments))


def _project(
    sources: list[str], spaces: list[str], cluster: list[tuple[str, str]], namespaced: list[tuple[str, str]] | None
) -> Body:
    def kinds(pairs: list[tuple[str, str]]) -> list[Body]:
        return [{"group": group, "kind": kind} for group, kind in pairs]

    return {
        "sourceRepos": sources,
        "destinations": [{"name": CLUSTER, "namespace": space} for space in spaces],
        "clusterResourceWhitelist": kinds(cluster),
        **({"namespaceResourceWhitelist": kinds(namespaced)} if namespaced else {}),
    }


def _application(project: str, source: Body, namespace: str) -> Body:
    return {
        "project": project,
        "source": source,
        "destination": {"name": CLUSTER, "namespace": namespace},
        "syncPolicy": {"automated": AUTOMATED, "syncOptions": ["ServerSideApply=true"], "retry": RETRY},
    }


def _chart(driver: Driver) -> Body:
    return {
        "repoURL": driver.repository,
        "targetRevision": driver.version,
        "path": ".",
        "helm": {"releaseName": RELEASE, "valuesObject": driver.values},
    }


def _experiments(name: str, here: Body, path: str, experiments: list[Experiment]) -> Body:
    elements = [{"experiment": found.name, "namespace": names.namespace(found)} for found in experiments]
    source = here | {"path": f"{path}/{{{{.experiment}}}}"}
    spec = _application(name, source, "{{.namespace}}")
    # the runner owns the number of pods; without RespectIgnoreDifferences a sync would still apply the field
    spec["ignoreDifferences"] = [{"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]}]
    spec["syncPolicy"]["syncOptions"] += ["RespectIgnoreDifferences=true"]
    return {
        "goTemplate": True,
        "goTemplateOptions": ["missingkey=error"],
        "generators": [{"list": {"elements": elements}}],
        "template": {"metadata": {"name": f"{name}-{{{{.experiment}}}}", "finalizers": [FINALIZER]}, "spec": spec},
    }
