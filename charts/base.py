"""Basis of an experiment's workloads: namespace, quota, accounts, rights in it, network policies.

Invariant: only traffic that a policy of charts/network.py admits enters or leaves the namespace.
"""

from __future__ import annotations

from cdk8s_plus_36 import k8s

from charts.experiment import ExperimentChart
from charts.network import build_network_policies
from charts.roles import add_people_roles, add_runner_role
from tandem.declarations import names
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.quantity import spell_count
from tandem.declarations.variant_key import compute_artifact_key

ACCOUNTS = (names.SERVE_ACCOUNT, names.STAGE_ACCOUNT, names.COMPILE_ACCOUNT, names.BENCH_ACCOUNT)


class BaseChart(ExperimentChart):
    """The namespace of one experiment: its quota, accounts, network policies and rights."""

    sync_wave = 0

    def add_objects(self) -> None:
        """Add the objects, in the order of their application."""
        namespace = names.experiment_namespace(self.experiment)
        # baseline, not restricted: the Neuron images run as root. DRA injects devices by CDI, so
        # neither privileged nor hostPath is needed (aws-neuron-sdk deploy/eks/dra.rst, 2026-08-21).
        # Baseline refuses SYS_ADMIN
        level = "privileged" if self.environment.serving.capabilities == "neuron" else "baseline"

        k8s.KubeNamespace(
            self,
            "namespace",
            metadata=self.build_metadata(
                namespace,
                "experiment",
                application=self.experiment.name,
                labels=security_labels(self.environment, level),
                is_clusterwide=True,
            ),
        )

        k8s.KubeResourceQuota(
            self,
            "quota",
            metadata=self.build_metadata("claims", "quota", application=self.experiment.name),
            spec=_build_quota(self.experiment, self.catalogue),
        )

        for account in ACCOUNTS:
            # AWS binds Pod Identity's role to an account's name: no annotation is needed
            k8s.KubeServiceAccount(
                self,
                f"account-{account}",
                metadata=self.build_metadata(account, "account"),
                automount_service_account_token=False,
            )

        for name, policy in build_network_policies(self.environment).items():
            k8s.KubeNetworkPolicy(
                self,
                f"policy-{name}",
                metadata=self.build_metadata(name, "network-policy"),
                spec=policy,
            )

        add_people_roles(self, scope="experiments")
        add_runner_role(self, scope="experiments")


def security_labels(environment: Environment, enforce_level: str) -> dict[str, str]:
    """Return a namespace's labels that enforce a Pod Security Standard, and warn."""
    version = f"v{environment.cluster.kubernetes}"
    labels = {}
    for mode, level in (
        ("enforce", enforce_level),
        ("warn", "restricted"),
        ("audit", "restricted"),
    ):
        labels[f"pod-security.kubernetes.io/{mode}"] = level
        labels[f"pod-security.kubernetes.io/{mode}-version"] = version
    return labels


def _build_quota(experiment: Experiment, catalogue: Catalogue) -> k8s.ResourceQuotaSpec:
    """Limit the claims: one per server, parked ones included, and a compile job per artifact.

    A pod holds its claim while it waits for a node, so parked servers count. The keys of both
    quotas: kubernetes.io docs/concepts/policy/resource-quotas, quota for dynamic resource
    allocation, 2026-11-21.
    """
    variants = experiment.all_variants()
    artifacts = {
        compute_artifact_key(experiment, variant, catalogue).digest for variant in variants
    }
    claims = len(variants) + len(artifacts)
    devices = claims * experiment.serving.devices
    device_class = catalogue.dra_chart.device_class.value
    return k8s.ResourceQuotaSpec(
        hard={
            "count/resourceclaims.resource.k8s.io": k8s.Quantity.from_string(spell_count(claims)),
            f"{device_class}.deviceclass.resource.k8s.io/devices": k8s.Quantity.from_string(
                spell_count(devices)
            ),
        }
    )
