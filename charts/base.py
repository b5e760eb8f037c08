"""Basis of an experiment's workloads: namespace, quota, accounts, rights in it, network policies, device claims.

Invariant: only traffic that a policy of charts/network.py admits enters or leaves the namespace. Every variant of an
experiment claims the same devices in the same way.
"""

from __future__ import annotations

from charts.manifest import Object, build_object, object_labels
from charts.network import build_network_policies
from charts.roles import build_people_roles, build_runner_roles
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, ServingSettings
from tandem.spec.quantity import spell_count
from tandem.spec.variant_key import compute_artifact_key

WAVE, CLAIM_WAVE = 0, 1
REQUEST = "neuron"
GROUP_ATTRIBUTE = "resource.aws.com/devicegroup{size}_id"  # aws-neuron-sdk deploy/eks/dra.rst, 2026-08-21


def build_base(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> list[Object]:
    """Return the namespace of one experiment: its quota, accounts, network policies and rights."""
    namespace = names.experiment_namespace(experiment)
    # AWS binds Pod Identity's role to an account's name: no annotation is needed
    rows: list[tuple[str, str, str, Object, dict[str, str]]] = [
        ("v1", "ResourceQuota", "claims", _quota_spec(experiment, catalogue), object_labels(experiment.name, "quota")),
        *(
            ("v1", "ServiceAccount", name, {"automountServiceAccountToken": False}, object_labels(name, "account"))
            for name in (names.SERVE_ACCOUNT, names.STAGE_ACCOUNT, names.COMPILE_ACCOUNT, names.BENCH_ACCOUNT)
        ),
        *(
            ("networking.k8s.io/v1", "NetworkPolicy", name, {"spec": spec}, object_labels(name, "network-policy"))
            for name, spec in build_network_policies(environment).items()
        ),
    ]
    guards = [
        build_object(api, kind, name, body, namespace=namespace, labels=labels, wave=WAVE)
        for api, kind, name, body, labels in rows
    ]
    # baseline, not restricted: the Neuron images run as root. DRA injects devices by CDI, so neither privileged nor
    # hostPath is needed (aws-neuron-sdk deploy/eks/dra.rst, 2026-08-21). Baseline refuses SYS_ADMIN
    level = "privileged" if environment.serving.capabilities == "neuron" else "baseline"
    labels = object_labels(experiment.name, "experiment") | security_labels(environment, level)
    return [
        build_object("v1", "Namespace", namespace, {}, labels=labels, wave=WAVE),
        *guards,
        *build_people_roles(namespace),
        *build_runner_roles(namespace),
    ]


def security_labels(environment: Environment, enforce_level: str) -> dict[str, str]:
    """Return a namespace's labels by which Kubernetes enforces a Pod Security Standard, and warns."""
    version = f"v{environment.cluster.kubernetes}"
    return {
        f"pod-security.kubernetes.io/{key}": value
        for mode, level in (("enforce", enforce_level), ("warn", "restricted"), ("audit", "restricted"))
        for key, value in ((mode, level), (f"{mode}-version", version))
    }


def _quota_spec(experiment: Experiment, catalogue: Catalogue) -> Object:
    """Limit the claims: one per server, parked ones included, and a compile job per artifact.

    A pod holds its claim while it waits for a node, so parked servers count. The keys of both quotas:
    kubernetes.io docs/concepts/policy/resource-quotas, quota for dynamic resource allocation, 2026-11-21.
    """
    variants = experiment.all_variants()
    claims = len(variants) + len({compute_artifact_key(experiment, variant, catalogue).digest for variant in variants})
    device_class = catalogue.dra_chart.device_class.value
    hard_limits = {
        "count/resourceclaims.resource.k8s.io": spell_count(claims),
        f"{device_class}.deviceclass.resource.k8s.io/devices": spell_count(claims * experiment.serving.devices),
    }
    return {"spec": {"hard": hard_limits}}


def build_claims(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> list[Object]:
    """Return the ResourceClaimTemplate of one experiment."""
    instance_type, serving = environment.capacity.instance_type, experiment.serving
    devices = {"devices": _build_device_requests(instance_type, serving, catalogue)}
    return [
        build_object(
            "resource.k8s.io/v1", "ResourceClaimTemplate", template_name(instance_type, serving),
            {"spec": {"spec": devices}}, namespace=names.experiment_namespace(experiment),
            labels=object_labels(experiment.name, "claim"), wave=CLAIM_WAVE,
        )
    ]  # fmt: skip


def template_name(instance_type: str, serving: ServingSettings) -> str:
    """Return the template's name, which encodes all of its spec.

    A template's spec cannot be changed after its creation, so another spec needs another name.
    """
    group = f"-group{serving.device_group}" if serving.device_group else ""
    return f"{names.CLAIM_TEMPLATE}-{instance_type}-{serving.devices}-lnc{serving.logical_neuron_core}{group}"


def _build_device_requests(instance_type: str, serving: ServingSettings, catalogue: Catalogue) -> Object:
    """Return a request for chips of one instance type, and for nothing else.

    Device names are never matched: the driver's documents and its published slices disagree on them.
    """
    chart = catalogue.dra_chart
    driver = chart.driver.value
    device = f'device.attributes["{driver}"]'
    selector = f'{device}.resourceType == "neuron_device" && {device}.instanceType == "{instance_type}"'
    group = {"requests": [REQUEST], "matchAttribute": GROUP_ATTRIBUTE.format(size=serving.device_group)}
    parameters = {
        "apiVersion": f"{driver}/v1",
        "kind": "NeuronConfig",
        "logicalNeuronCore": serving.logical_neuron_core,
    }
    return {
        "requests": [{
            "name": REQUEST,
            "exactly": {
                "deviceClassName": chart.device_class.value,
                "selectors": [{"cel": {"expression": selector}}],
                "allocationMode": "ExactCount",
                "count": serving.devices,
            },
        }],
        **({"constraints": [group]} if serving.device_group else {}),
        "config": [{"requests": [REQUEST], "opaque": {"driver": driver, "parameters": parameters}}],
    }  # fmt: skip
