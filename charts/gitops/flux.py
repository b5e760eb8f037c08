"""Flux: one Kustomization per stage of an experiment, each after the one before, one of people, the Neuron DRA chart.

Invariant: a parked environment is ready. Every stage waits for its objects, but for serve: its pods may wait
for a node for weeks, and a check of their health would call that a failure.

The number of a server's pods is in no manifest, so Flux never owns it; whoever scales must do so through the
`scale` subresource, whose field owners Flux leaves alone (fluxcd/pkg ssa/patch.go, 2026-11-21).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from charts.driver import RELEASE, RELEASE_NAMESPACE, SCHEME, DriverRelease
from charts.manifest import Object, build_object, object_labels
from charts.people import FOLDER as PEOPLE_FOLDER
from charts.workloads import STAGES, list_stages
from tandem.spec.environment import GitopsDelivery
from tandem.spec.experiment import Experiment
from tandem.spec.images import PRIVATE_ECR

KUSTOMIZE_API = "kustomize.toolkit.fluxcd.io/v1"
SOURCE_API = "source.toolkit.fluxcd.io/v1"
HELM_API = "helm.toolkit.fluxcd.io/v2"
CHART_LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
SSH_SECRET = "flux-system"  # noqa: S105  # the name under which `flux bootstrap` keeps its deploy key
TIMEOUT = "5m"


def build_flux(
    name: str, delivery: GitopsDelivery, experiments: list[Experiment], driver: DriverRelease
) -> list[Object]:
    """Return everything Flux is told about the environment `name`."""
    # no wait: it holds itself, and would wait for itself
    root = _build_kustomization(name, f"{delivery.path}/gitops", dependency_names=(), wait_for_health=False)
    rows: list[tuple[str, str, str, Object]] = [
        (SOURCE_API, "GitRepository", name, _build_repository(delivery)),
        (KUSTOMIZE_API, "Kustomization", f"{name}-gitops", root),
        (SOURCE_API, "OCIRepository", RELEASE, _build_chart_source(driver)),
        (HELM_API, "HelmRelease", RELEASE, _build_release(driver)),
    ]
    for experiment in experiments:
        stages = list_stages(experiment)
        for previous_stage, stage in zip((None, *stages), stages, strict=False):
            spec = _build_kustomization(
                name,
                f"{delivery.path}/{experiment.name}/{stage}",
                dependency_names=[f"{experiment.name}-{previous_stage}"] if previous_stage else [],
                wait_for_health=stage != "serve",
            )
            rows.append((KUSTOMIZE_API, "Kustomization", f"{experiment.name}-{stage}", spec))
    bases = [f"{experiment.name}-{STAGES[0]}" for experiment in experiments]  # each makes its namespace
    rights_path = f"{delivery.path}/{PEOPLE_FOLDER}"
    rights = _build_kustomization(name, rights_path, dependency_names=bases, wait_for_health=True)
    rows.append((KUSTOMIZE_API, "Kustomization", f"{name}-people", rights))
    return [
        build_object(
            api, kind, object_name, {"spec": spec}, namespace=delivery.namespace, labels=object_labels(name, "gitops")
        )
        for api, kind, object_name, spec in rows
    ]


def _build_repository(delivery: GitopsDelivery) -> Object:
    # ssh always needs a key
    secret = {"secretRef": {"name": SSH_SECRET}} if delivery.repo_url.startswith("ssh://") else {}
    return {"interval": "1m", "url": delivery.repo_url, "ref": revision_reference(delivery.revision), **secret}


def revision_reference(revision: str) -> dict[str, str]:
    """Return how Flux is told a revision: by full name, commit, tag (a version) or branch."""
    if revision.startswith("refs/"):
        return {"name": revision}
    if re.fullmatch(r"[0-9a-f]{40}", revision):
        return {"commit": revision}
    if re.fullmatch(r"v?\d+(\.\d+)+([-+].*)?", revision):
        return {"tag": revision}
    return {"branch": revision}


def _build_kustomization(source: str, path: str, *, dependency_names: Sequence[str], wait_for_health: bool) -> Object:
    return {
        "interval": "10m",
        "retryInterval": "1m",
        "timeout": TIMEOUT,
        "path": f"./{path}",
        "prune": True,
        "wait": wait_for_health,
        "sourceRef": {"kind": "GitRepository", "name": source},
        **(
            {"dependsOn": [{"name": dependency_name} for dependency_name in dependency_names]}
            if dependency_names
            else {}
        ),
    }


def _build_chart_source(driver: DriverRelease) -> Object:
    digest_reference = {"digest": driver.digest} if driver.digest else {}
    # source-controller then logs in with its own credentials, those of its Pod Identity (source-controller
    # docs/spec/v1/ocirepositories.md, "Provider"; the stack Workloads binds them)
    private = PRIVATE_ECR.match(driver.repository.removeprefix(SCHEME))
    return {
        "interval": "1h",
        **({"provider": "aws"} if private else {}),
        "url": driver.repository,
        "ref": {"tag": driver.version, **digest_reference},
        "layerSelector": {"mediaType": CHART_LAYER, "operation": "copy"},
    }


def _build_release(driver: DriverRelease) -> Object:
    remediation = {"retries": 3}
    return {
        "interval": "1h",
        "timeout": TIMEOUT,
        "chartRef": {"kind": "OCIRepository", "name": RELEASE},
        "releaseName": RELEASE,
        "targetNamespace": RELEASE_NAMESPACE,
        "install": {"remediation": remediation},
        "upgrade": {"remediation": remediation},
        "values": driver.values,
    }
