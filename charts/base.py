"""What an experiment needs before anything of it may run: namespace, quota, accounts, network policies.

Invariant: nothing enters or leaves the namespace but what a policy here admits.
"""

from __future__ import annotations

from typing import Any

import cdk8s
from constructs import Construct

from charts.manifest import labels, manifest, wave
from charts.network import policies
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.variant_key import artifact_key

WAVE = 0


class BaseChart(cdk8s.Chart):
    """The namespace of one experiment and what guards it."""

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, experiment: Experiment, catalogue: Catalogue
    ) -> None:
        super().__init__(scope, id_, disable_resource_name_hashes=True)
        namespace = names.namespace(experiment)
        manifest(self, _namespace(environment, experiment))
        manifest(self, _quota(namespace, experiment, catalogue))
        for account in (names.SERVE_ACCOUNT, names.STAGE_ACCOUNT, names.COMPILE_ACCOUNT, names.BENCH_ACCOUNT):
            manifest(self, _account(namespace, account))
        for name, spec in policies(environment).items():
            manifest(self, {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": labels(name, "network-policy"),
                    "annotations": wave(WAVE),
                },
                "spec": spec,
            })  # fmt: skip


def _namespace(environment: Environment, experiment: Experiment) -> dict[str, Any]:
    # baseline, not restricted: the Neuron images run as root. DRA injects devices by CDI, so that neither
    # privileged nor hostPath is needed (aws-neuron-sdk deploy/eks/dra.rst, 2026-08-21). Baseline refuses SYS_ADMIN
    enforced = "privileged" if environment.serving.capabilities == "neuron" else "baseline"
    version = f"v{environment.cluster.kubernetes}"
    security = {
        f"pod-security.kubernetes.io/{key}": value
        for mode, level in (("enforce", enforced), ("warn", "restricted"), ("audit", "restricted"))
        for key, value in ((mode, level), (f"{mode}-version", version))
    }
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": names.namespace(experiment),
            "labels": labels(experiment.name, "experiment") | security,
            "annotations": wave(WAVE),
        },
    }


def _quota(namespace: str, experiment: Experiment, catalogue: Catalogue) -> dict[str, Any]:
    """Bound the claims: a server each, parked ones included, and a compile job per artifact.

    A pod holds its claim while it waits for a node, so parked servers count. The keys of both quotas:
    kubernetes.io docs/concepts/policy/resource-quotas, quota for dynamic resource allocation, 2026-11-21.
    """
    variants = experiment.all_variants()
    keys = {artifact_key(experiment, variant, catalogue).digest for variant in variants}
    claims = len(variants) + len(keys)
    device_class = catalogue.dra_chart.device_class.value
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": "claims",
            "namespace": namespace,
            "labels": labels(experiment.name, "quota"),
            "annotations": wave(WAVE),
        },
        "spec": {
            "hard": {
                "count/resourceclaims.resource.k8s.io": str(claims),
                f"{device_class}.deviceclass.resource.k8s.io/devices": str(claims * experiment.serving.devices),
            }
        },
    }


def _account(namespace: str, name: str) -> dict[str, Any]:
    # Pod Identity binds the role to this name from the AWS side: there is no annotation to write
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels(name, "account"),
            "annotations": wave(WAVE),
        },
        "automountServiceAccountToken": False,
    }
