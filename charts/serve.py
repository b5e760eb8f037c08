"""The servers: one Deployment and one Service per variant.

Invariant: the pods of two variants differ in their names, their speculation fields and their artifact, in
nothing else; and who runs an experiment owns the number of pods, so no manifest states `replicas`.
"""

from __future__ import annotations

from charts.manifest import COMPONENT, IGNORE_HEALTH, NAME, PART_OF, Object, build_object, object_labels, sync_wave
from charts.network import SERVER
from charts.pod import ADMIT, SKIP_CREDENTIALS, build_server_pod
from charts.pod import SERVER as CONTAINER
from tandem.spec import names
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant

WAVE = 3  # with the CronJobs, which nothing waits for
# The largest there is, which Kubernetes reads as no deadline: a pod of a parked environment may wait for a
# node for weeks, and that is no failed rollout (k8s.io/kubernetes deployment util, HasProgressDeadline).
NO_DEADLINE_S = 2_147_483_647
LABEL_CHARACTERS = 63
# the reader's role is for Mountpoint, whose token the kubelet gives to the CSI driver; no container needs one
SKIP_ALL_CREDENTIALS = {SKIP_CREDENTIALS: f"{ADMIT},{CONTAINER}"}


def build_servers(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> list[Object]:
    """Return the Deployments and Services of one experiment."""
    return [
        body
        for variant in experiment.all_variants()
        for body in (
            _build_deployment(experiment, variant, build_server_pod(environment, experiment, variant, catalogue)),
            _build_service(experiment, variant),
        )
    ]


def speculation_labels(variant: Variant) -> dict[str, str]:
    """Return what `kubectl get deploy -L` shows: mode, draft and window, spelt as far as a label can."""
    draft = (variant.draft or "none").rpartition("/")[2][:LABEL_CHARACTERS].strip("-_.")
    return {
        "tandem/mode": variant.mode,
        "tandem/draft": draft,
        "tandem/num-speculative-tokens": str(variant.num_speculative_tokens or 0),
    }


def _single_pod_affinity(variant: Variant) -> Object:
    """Return the affinity that leaves a second pod of a variant without a node, wherever the first one stands.

    A Service would send half of a measurement to it. Every node of a cluster is in one region (kubernetes.io
    docs/reference/labels-annotations-taints, topology.kubernetes.io/region).
    """
    anti_affinity_term = {
        "labelSelector": {"matchLabels": _selector_labels(variant)},
        "topologyKey": "topology.kubernetes.io/region",
    }
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti_affinity_term]}}}


def _selector_labels(variant: Variant) -> dict[str, str]:
    return {NAME: variant.name, COMPONENT: SERVER}


def _build_deployment(experiment: Experiment, variant: Variant, pod: Object) -> Object:
    spec = {
        # a rolling update deadlocks: the new pod waits for the devices that the old one holds
        "strategy": {"type": "Recreate"},
        "revisionHistoryLimit": 3,
        "progressDeadlineSeconds": NO_DEADLINE_S,
        "selector": {"matchLabels": _selector_labels(variant)},
        "template": {
            "metadata": {"labels": _selector_labels(variant) | PART_OF, "annotations": SKIP_ALL_CREDENTIALS},
            "spec": pod | _single_pod_affinity(variant),
        },
    }
    return build_object(
        "apps/v1", "Deployment", variant.name, {"spec": spec}, namespace=names.experiment_namespace(experiment),
        labels=object_labels(variant.name, SERVER) | speculation_labels(variant),
        annotations=sync_wave(WAVE) | IGNORE_HEALTH,
    )  # fmt: skip


def _build_service(experiment: Experiment, variant: Variant) -> Object:
    spec = {
        "type": "ClusterIP",
        "selector": _selector_labels(variant),
        "ports": [{"name": "http", "port": names.SERVER_PORT, "targetPort": "http", "protocol": "TCP"}],
    }
    return build_object(
        "v1", "Service", variant.name, {"spec": spec}, namespace=names.experiment_namespace(experiment),
        labels=object_labels(variant.name, SERVER), annotations=sync_wave(WAVE),
    )  # fmt: skip
