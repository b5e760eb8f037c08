"""What an experiment needs before anything of it may run: namespace, quota, accounts, network policies.

Invariant: nothing enters or leaves the namespace but what a policy here admits.
"""

from __future__ import annotations

from typing import Any

import cdk8s
from constructs import Construct

from charts.manifest import add_manifest, object_labels, sync_wave
from charts.network import build_network_policies
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.variant_key import compute_artifact_key

WAVE = 0


class BaseChart(cdk8s.Chart):
    """The namespace of one experiment and what guards it."""

    def __init__(
        self, scope: Construct, id_: str, *, environment: Environment, experiment: Experiment, catalogue: Catalogue
    ) -> None:
        super().__init__(scope, id_, disable_resource_name_hashes=True)
        namespace = names.experiment_namespace(experiment)
        add_manifest(self, _build_namespace(environment, experiment))
        add_manifest(self, _build_quota(namespace, experiment, catalogue))
        for account in (names.SERVE_ACCOUNT, names.STAGE_ACCOUNT, names.COMPILE_ACCOUNT, names.BENCH_ACCOUNT):
            add_manifest(self, _build_account(namespace, account))
        for name, spec in build_network_policies(environment).items():
            add_manifest(self, {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": object_labels(name, "network-policy"),
                    "annotations": sync_wave(WAVE),
                },
                "spec": spec,
            })  # fmt: skip


def _build_namespace(environment: Environment, experiment: Experiment) -> dict[str, Any]:
    # baseline, not restricted: the Neuron images run as root. DRA injects devices by CDI, so that neither
    # privileged nor hostPath is needed (aws-neuron-sdk deploy/eks/dra.rst, 2026-08-21). Baseline refuses SYS_ADMIN
    enforce_level = "privileged" if environment.serving.capabilities == "neuron" else "baseline"
    version = f"v{environment.cluster.kubernetes}"
    security = {
        f"pod-security.kubernetes.io/{key}": value
        for mode, level in (("enforce", enforce_level), ("warn", "restricted"), ("audit", "restricted"))
        for key, value in ((mode, level), (f"{mode}-version", version))
    }
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": names.experiment_namespace(experiment),
            "labels": object_labels(experiment.name, "experiment") | security,
            "annotations": sync_wave(WAVE),
        },
    }


def _build_quota(namespace: str, experiment: Experiment, catalogue: Catalogue) -> dict[str, Any]:
    """Bound the claims: a server each, parked ones included, and a compile job per artifact.

    A pod holds its claim while it waits for a node, so parked servers count. The keys of both quotas:
    kubernetes.io docs/concepts/policy/resource-quotas, quota for dynamic resource allocation, 2026-11-21.
    """
    variants = experiment.all_variants()
    keys = {compute_artifact_key(experiment, variant, catalogue).digest for variant in variants}
    claims = len(variants) + len(keys)
    device_class = catalogue.dra_chart.device_class.value
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": "claims",
            "namespace": namespace,
            "labels": object_labels(experiment.name, "quota"),
            "annotations": sync_wave(WAVE),
        },
        "spec": {
            "hard": {
                "count/resourceclaims.resource.k8s.io": str(claims),
                f"{device_class}.deviceclass.resource.k8s.io/devices": str(claims * experiment.serving.devices),
            }
        },
    }


def _build_account(namespace: str, name: str) -> dict[str, Any]:
    # Pod Identity binds the role to this name from the AWS side: there is no annotation to write
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": object_labels(name, "account"),
            "annotations": sync_wave(WAVE),
        },
        "automountServiceAccountToken": False,
    }
