"""What an experiment needs before anything of it may run: namespace, quota, accounts, network policies.

Invariant: nothing enters or leaves the namespace but what a policy here admits.
"""

from __future__ import annotations

from charts.manifest import Object, build_object, object_labels, sync_wave
from charts.network import build_network_policies
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.variant_key import compute_artifact_key

WAVE = 0


def build_base(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> list[Object]:
    """Return the namespace of one experiment and what guards it."""
    namespace = names.experiment_namespace(experiment)
    accounts = (names.SERVE_ACCOUNT, names.STAGE_ACCOUNT, names.COMPILE_ACCOUNT, names.BENCH_ACCOUNT)
    return [
        _build_namespace(environment, experiment),
        _build_quota(namespace, experiment, catalogue),
        # Pod Identity binds the role to an account's name from the AWS side: there is no annotation to write
        *(
            build_object(
                "v1", "ServiceAccount", account, {"automountServiceAccountToken": False}, namespace=namespace,
                labels=object_labels(account, "account"), annotations=sync_wave(WAVE),
            )
            for account in accounts
        ),
        *(
            build_object(
                "networking.k8s.io/v1", "NetworkPolicy", name, {"spec": spec}, namespace=namespace,
                labels=object_labels(name, "network-policy"), annotations=sync_wave(WAVE),
            )
            for name, spec in build_network_policies(environment).items()
        ),
    ]  # fmt: skip


def _build_namespace(environment: Environment, experiment: Experiment) -> Object:
    # baseline, not restricted: the Neuron images run as root. DRA injects devices by CDI, so that neither
    # privileged nor hostPath is needed (aws-neuron-sdk deploy/eks/dra.rst, 2026-08-21). Baseline refuses SYS_ADMIN
    enforce_level = "privileged" if environment.serving.capabilities == "neuron" else "baseline"
    version = f"v{environment.cluster.kubernetes}"
    security = {
        f"pod-security.kubernetes.io/{key}": value
        for mode, level in (("enforce", enforce_level), ("warn", "restricted"), ("audit", "restricted"))
        for key, value in ((mode, level), (f"{mode}-version", version))
    }
    return build_object(
        "v1", "Namespace", names.experiment_namespace(experiment), {},
        labels=object_labels(experiment.name, "experiment") | security, annotations=sync_wave(WAVE),
    )  # fmt: skip


def _build_quota(namespace: str, experiment: Experiment, catalogue: Catalogue) -> Object:
    """Bound the claims: a server each, parked ones included, and a compile job per artifact.

    A pod holds its claim while it waits for a node, so parked servers count. The keys of both quotas:
    kubernetes.io docs/concepts/policy/resource-quotas, quota for dynamic resource allocation, 2026-11-21.
    """
    variants = experiment.all_variants()
    keys = {compute_artifact_key(experiment, variant, catalogue).digest for variant in variants}
    claims = len(variants) + len(keys)
    device_class = catalogue.dra_chart.device_class.value
    hard_limits = {
        "count/resourceclaims.resource.k8s.io": str(claims),
        f"{device_class}.deviceclass.resource.k8s.io/devices": str(claims * experiment.serving.devices),
    }
    return build_object(
        "v1", "ResourceQuota", "claims", {"spec": {"hard": hard_limits}}, namespace=namespace,
        labels=object_labels(experiment.name, "quota"), annotations=sync_wave(WAVE),
    )  # fmt: skip
