"""The objects of Flux, for an environment that it delivers.

Invariant: each stage of an experiment has one Kustomization, after that of the stage before.
People, the runner and the Neuron DRA chart have one each, after none. A parked environment is
ready: every stage except serve waits for its objects. The pods of serve may wait for a node for
weeks, and a check of their health would call that a failure. The number of a server's pods is in no
manifest, so Flux never owns it. Any scaler must use the `scale` subresource, whose field owners
Flux leaves alone (fluxcd/pkg ssa/patch.go, 2026-11-21).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from charts import list_stages, people, runner
from charts.chart import GITOPS, Resource
from charts.gitops_chart import GitopsChart
from tandem.declarations.driver_release import RELEASE, RELEASE_NAMESPACE, SCHEME
from tandem.declarations.environment import GitopsDelivery
from tandem.declarations.images import PRIVATE_ECR
from tandem.declarations.platform import DraChart

KUSTOMIZE_API = "kustomize.toolkit.fluxcd.io/v1"
SOURCE_API = "source.toolkit.fluxcd.io/v1"
HELM_API = "helm.toolkit.fluxcd.io/v2"
CHART_LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
SSH_SECRET = "flux-system"  # noqa: S105  # the name under which `flux bootstrap` keeps its deploy key
TIMEOUT = "5m"


class FluxChart(GitopsChart):
    """All objects of Flux for one environment."""

    def add_objects(self) -> None:
        """Add the objects, in the order of their application."""
        name = self.environment_name
        reference = revision_reference(self.delivery.revision)
        repository = {"interval": "1m", "url": self.delivery.repo_url, "ref": reference}
        if self.delivery.repo_url.startswith("ssh://"):  # which always needs a key
            repository["secretRef"] = {"name": SSH_SECRET}

        release = {
            "interval": "1h",
            "timeout": TIMEOUT,
            "chartRef": {"kind": "OCIRepository", "name": RELEASE},
            "releaseName": RELEASE,
            "targetNamespace": RELEASE_NAMESPACE,
            "install": {"remediation": {"retries": 3}},
            "upgrade": {"remediation": {"retries": 3}},
            "values": self.driver.values.value,
        }

        # the first does not wait: it contains itself, and would wait for itself
        kustomizations = {
            f"{name}-gitops": _build_kustomization(name, self.delivery, GITOPS, waits=False)
        }
        for experiment in self.experiments:
            stages = list_stages(experiment)
            for previous_stage, stage in zip((None, *stages), stages, strict=False):
                earlier_names = []
                if previous_stage:
                    earlier_names = [f"{experiment.name}-{previous_stage}"]
                kustomizations[f"{experiment.name}-{stage}"] = _build_kustomization(
                    name,
                    self.delivery,
                    f"{experiment.name}/{stage}",
                    earlier_names,
                    waits=stage != "serve",
                )
        for folder in (people.FOLDER, runner.FOLDER):
            kustomizations[f"{name}-{folder}"] = _build_kustomization(
                name, self.delivery, folder, waits=True
            )

        self.add_custom_resource(SOURCE_API, "GitRepository", name, repository, application=name)
        self.add_custom_resource(
            SOURCE_API, "OCIRepository", RELEASE, _build_chart_source(self.driver), application=name
        )
        self.add_custom_resource(HELM_API, "HelmRelease", RELEASE, release, application=name)
        for kustomization_name, kustomization in kustomizations.items():
            self.add_custom_resource(
                KUSTOMIZE_API, "Kustomization", kustomization_name, kustomization, application=name
            )


def revision_reference(revision: str) -> dict[str, str]:
    """Return Flux's reference to a revision: by full name, commit, tag (a version) or branch."""
    if revision.startswith("refs/"):
        return {"name": revision}
    if re.fullmatch(r"[0-9a-f]{40}", revision):
        return {"commit": revision}
    if re.fullmatch(r"v?\d+(\.\d+)+([-+].*)?", revision):
        return {"tag": revision}
    return {"branch": revision}


def _build_chart_source(driver: DraChart) -> Resource:
    """Return the chart's OCI repository.

    source-controller logs in to private ECR with its own credentials, those of its Pod Identity
    (its docs/spec/v1/ocirepositories.md, "Provider"; the stack Workloads binds them).
    """
    is_private = PRIVATE_ECR.match(driver.repository.removeprefix(SCHEME))
    digest = driver.digest.value
    return {
        "interval": "1h",
        **({"provider": "aws"} if is_private else {}),
        "url": driver.repository,
        "ref": {"tag": driver.version.value, **({"digest": digest} if digest else {})},
        "layerSelector": {"mediaType": CHART_LAYER, "operation": "copy"},
    }


def _build_kustomization(
    source: str,
    delivery: GitopsDelivery,
    folder: str,
    earlier_names: Sequence[str] = (),
    *,
    waits: bool,
) -> Resource:
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
