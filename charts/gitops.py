"""Objects for a GitOps controller, for environments whose delivery is gitops.

Invariant: after they are applied once by hand, the controller follows the repository, and updates these objects too: a
new experiment or a new chart version is a commit.

Argo CD: one Application per experiment from an ApplicationSet, one each for the Neuron DRA chart, people, runner and
these objects. No sync ever changes the number of a server's pods, and a pending pod is no fault. The order of an
experiment's objects is in their sync-wave annotations (base 0, claims 1, storage 2, and 3 for servers and CronJobs),
not in Applications that wait for each other, which Argo CD does only behind a feature flag. The cluster is named
`in-cluster`: plain Argo CD knows that name, and the EKS capability lets its own cluster be registered under it
(docs.aws.amazon.com/eks/latest/userguide/argocd-register-clusters.html, 2026-11-21). Charts from an `oci://` address
need Argo CD 3.1.

Flux: one Kustomization per stage of an experiment, each after the one before, and one each, after none, for people,
the runner and the Neuron DRA chart. A parked environment is ready: every stage except serve waits for its objects. The
pods of serve may wait for a node for weeks, and a check of their health would call that a failure. The number of a
server's pods is in no manifest, so Flux never owns it. Any scaler must use the `scale` subresource, whose field owners
Flux leaves alone (fluxcd/pkg ssa/patch.go, 2026-11-21).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from charts import list_stages
from charts import people as people_chart
from charts import runner as runner_chart
from charts.manifest import Object, build_object, object_labels
from charts.roles import RBAC
from tandem.ops.people.cluster_rights import RUNNER_NAMESPACE
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.driver_release import RELEASE, RELEASE_NAMESPACE, SCHEME, build_driver_release
from tandem.spec.environment import Environment, GitopsDelivery
from tandem.spec.experiment import Experiment
from tandem.spec.images import PRIVATE_ECR
from tandem.spec.platform import DraChart

FOLDER = "gitops"
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
# kinds of charts/runner.py
RUNNER_CLUSTER_KINDS = ("Namespace", *PEOPLE_CLUSTER_KINDS)
RUNNER_NAMESPACED_KINDS = ("ConfigMap", "ServiceAccount", "apps/Deployment", "networking.k8s.io/NetworkPolicy")
# cluster-wide objects of the Neuron chart with its DRA driver on (templates/dra-driver, chart 1.9.0)
DRIVER_CLUSTER_KINDS = ("Namespace", *PEOPLE_CLUSTER_KINDS, "resource.k8s.io/DeviceClass")

KUSTOMIZE_API = "kustomize.toolkit.fluxcd.io/v1"
SOURCE_API = "source.toolkit.fluxcd.io/v1"
HELM_API = "helm.toolkit.fluxcd.io/v2"
CHART_LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
SSH_SECRET = "flux-system"  # noqa: S105  # the name under which `flux bootstrap` keeps its deploy key
TIMEOUT = "5m"


def render_gitops(
    environment: Environment, experiments: list[Experiment], catalogue: Catalogue
) -> dict[str, list[Object]]:
    """Return the chosen tool's objects by the tool's name; nothing if the CDK delivers."""
    delivery = environment.delivery
    if not isinstance(delivery, GitopsDelivery):
        return {}
    build = {"argocd": _build_argocd, "flux": _build_flux}[delivery.tool]
    return {delivery.tool: build(environment.name, delivery, experiments, build_driver_release(environment, catalogue))}


def _build_argocd(name: str, delivery: GitopsDelivery, experiments: list[Experiment], driver: DraChart) -> list[Object]:
    """Return all objects of Argo CD for the environment `name`."""
    # a person who changes an experiment changes no right outside its namespace
    platform, people, runner = (f"{name}-{part}" for part in ("platform", people_chart.FOLDER, runner_chart.FOLDER))
    platform_namespaces = [delivery.namespace, RELEASE_NAMESPACE, driver.namespace.value]
    namespaces = [names.experiment_namespace(experiment) for experiment in experiments]
    repository, platform_sources = [delivery.repo_url], [delivery.repo_url, driver.repository]
    gitops_source, people_source, runner_source = (
        _build_source(delivery, folder) for folder in (FOLDER, people_chart.FOLDER, runner_chart.FOLDER)
    )
    chart_source = {
        "repoURL": driver.repository,
        "targetRevision": driver.version.value,
        "path": ".",
        "helm": {"releaseName": RELEASE, "valuesObject": driver.values.value},
    }
    projects = {
        platform: _build_project(platform_sources, platform_namespaces, DRIVER_CLUSTER_KINDS),
        name: _build_project(repository, namespaces, CLUSTER_KINDS, NAMESPACED_KINDS),
        # an Application names a namespace, also one of cluster-wide objects alone
        people: _build_project(repository, [delivery.namespace], PEOPLE_CLUSTER_KINDS) | NO_NAMESPACED_KIND,
        runner: _build_project(repository, [RUNNER_NAMESPACE], RUNNER_CLUSTER_KINDS, RUNNER_NAMESPACED_KINDS),
    }
    rows: list[tuple[str, str, int, Object]] = [
        *(("AppProject", project_name, 0, project) for project_name, project in projects.items()),
        ("Application", f"{name}-gitops", 1, _build_application(platform, gitops_source, delivery.namespace)),
        ("Application", f"{name}-neuron-dra", 1, _build_application(platform, chart_source, RELEASE_NAMESPACE)),
        ("Application", people, 2, _build_application(people, people_source, delivery.namespace)),
        ("Application", runner, 2, _build_application(runner, runner_source, RUNNER_NAMESPACE)),
        ("ApplicationSet", name, 2, _build_application_set(name, delivery, experiments)),
    ]
    return [
        build_object(
            ARGOCD_API, kind, object_name, {"spec": spec}, namespace=delivery.namespace,
            labels=object_labels(name, "gitops"), wave=wave,
            # Argo CD cannot finish the deletion of an Application whose project is gone. The driver's Application has
            # no finalizer: pods could not return their devices if the driver went first
            finalizers=[FINALIZER] if kind == "AppProject" or object_name in {people, runner} else [],
        )
        for kind, object_name, wave, spec in rows
    ]  # fmt: skip


def _build_source(delivery: GitopsDelivery, folder: str) -> Object:
    path = f"{delivery.path}/{folder}"
    return {"repoURL": delivery.repo_url, "targetRevision": delivery.revision, "path": path}


def _build_project(
    sources: list[str], namespaces: list[str], cluster_kinds: Sequence[str], namespaced_kinds: Sequence[str] = ()
) -> Object:
    def list_kinds(kinds: Sequence[str]) -> list[Object]:
        return [{"group": group, "kind": kind} for group, _, kind in (text.rpartition("/") for text in kinds)]

    return {
        "sourceRepos": sources,
        "destinations": [{"name": CLUSTER, "namespace": namespace} for namespace in namespaces],
        "clusterResourceWhitelist": list_kinds(cluster_kinds),
        **({"namespaceResourceWhitelist": list_kinds(namespaced_kinds)} if namespaced_kinds else {}),
    }


def _build_application(project: str, source: Object, namespace: str) -> Object:
    return {
        "project": project,
        "source": source,
        "destination": {"name": CLUSTER, "namespace": namespace},
        "syncPolicy": {"automated": SYNC_AUTOMATION, "syncOptions": ["ServerSideApply=true"], "retry": RETRY},
    }


def _build_application_set(name: str, delivery: GitopsDelivery, experiments: list[Experiment]) -> Object:
    elements = [
        {"experiment": experiment.name, "namespace": names.experiment_namespace(experiment)}
        for experiment in experiments
    ]
    spec = _build_application(name, _build_source(delivery, "{{.experiment}}"), "{{.namespace}}")
    # the runner owns the number of pods; without RespectIgnoreDifferences a sync would still apply the field
    spec["ignoreDifferences"] = [{"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]}]
    spec["syncPolicy"]["syncOptions"] += ["RespectIgnoreDifferences=true"]
    return {
        "goTemplate": True,
        "goTemplateOptions": ["missingkey=error"],
        "generators": [{"list": {"elements": elements}}],
        "template": {"metadata": {"name": f"{name}-{{{{.experiment}}}}", "finalizers": [FINALIZER]}, "spec": spec},
    }


def _build_flux(name: str, delivery: GitopsDelivery, experiments: list[Experiment], driver: DraChart) -> list[Object]:
    """Return all objects of Flux for the environment `name`."""
    # ssh always needs a key
    secret = {"secretRef": {"name": SSH_SECRET}} if delivery.repo_url.startswith("ssh://") else {}
    repository = {"interval": "1m", "url": delivery.repo_url, "ref": revision_reference(delivery.revision), **secret}
    # source-controller logs in to private ECR with its own credentials, those of its Pod Identity (source-controller
    # docs/spec/v1/ocirepositories.md, "Provider"; the stack Workloads binds them)
    chart_source = {
        "interval": "1h",
        **({"provider": "aws"} if PRIVATE_ECR.match(driver.repository.removeprefix(SCHEME)) else {}),
        "url": driver.repository,
        "ref": {"tag": driver.version.value, **({"digest": driver.digest.value} if driver.digest.value else {})},
        "layerSelector": {"mediaType": CHART_LAYER, "operation": "copy"},
    }
    release = {
        "interval": "1h",
        "timeout": TIMEOUT,
        "chartRef": {"kind": "OCIRepository", "name": RELEASE},
        "releaseName": RELEASE,
        "targetNamespace": RELEASE_NAMESPACE,
        "install": {"remediation": {"retries": 3}},
        "upgrade": {"remediation": {"retries": 3}},
        "values": driver.values.value,
    }
    # the first does not wait: it contains itself, and would wait for itself
    kustomizations = {f"{name}-gitops": _build_kustomization(name, delivery, FOLDER, waits=False)}
    for experiment in experiments:
        stages = list_stages(experiment)
        for previous_stage, stage in zip((None, *stages), stages, strict=False):
            earlier_names = [f"{experiment.name}-{previous_stage}"] if previous_stage else []
            kustomizations[f"{experiment.name}-{stage}"] = _build_kustomization(
                name, delivery, f"{experiment.name}/{stage}", earlier_names, waits=stage != "serve"
            )
    for folder in (people_chart.FOLDER, runner_chart.FOLDER):
        kustomizations[f"{name}-{folder}"] = _build_kustomization(name, delivery, folder, waits=True)
    root, *rest = [(KUSTOMIZE_API, "Kustomization", object_name, spec) for object_name, spec in kustomizations.items()]
    rows = [
        (SOURCE_API, "GitRepository", name, repository),
        root,
        (SOURCE_API, "OCIRepository", RELEASE, chart_source),
        (HELM_API, "HelmRelease", RELEASE, release),
        *rest,
    ]
    labels = object_labels(name, "gitops")
    return [
        build_object(api, kind, object_name, {"spec": spec}, namespace=delivery.namespace, labels=labels)
        for api, kind, object_name, spec in rows
    ]


def revision_reference(revision: str) -> dict[str, str]:
    """Return Flux's reference to a revision: by full name, commit, tag (a version) or branch."""
    if revision.startswith("refs/"):
        return {"name": revision}
    if re.fullmatch(r"[0-9a-f]{40}", revision):
        return {"commit": revision}
    if re.fullmatch(r"v?\d+(\.\d+)+([-+].*)?", revision):
        return {"tag": revision}
    return {"branch": revision}


def _build_kustomization(
    source: str, delivery: GitopsDelivery, folder: str, earlier_names: Sequence[str] = (), *, waits: bool
) -> Object:
    dependencies = [{"name": earlier_name} for earlier_name in earlier_names]
    return {
        "interval": "10m",
        "retryInterval": "1m",
        "timeout": TIMEOUT,
        "path": f"./{delivery.path}/{folder}",
        "prune": True,
        "wait": waits,
        "sourceRef": {"kind": "GitRepository", "name": source},
        **({"dependsOn": dependencies} if dependencies else {}),
    }
