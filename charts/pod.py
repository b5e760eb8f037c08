"""The pod of one server.

Invariant: everything but the name, the raise label, the speculation flags and the artifact comes from what
the variants share.
"""

from __future__ import annotations

from typing import Any

from charts.claims import template_name
from charts.probes import probes
from tandem.spec import names
from tandem.spec.artifact_key import ArtifactKey
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, ServingSettings, Variant
from tandem.spec.images import pull_name
from tandem.spec.server import artifact_folder, server
from tandem.spec.variant_key import artifact_key

CACHE_MOUNT = "/cache"
GRACE_S = 120  # below the 600 s that a Mountpoint pod lives on after SIGTERM (mountpoint-s3-csi-driver, 2026-08)
CLAIM = "neuron"
# root stays, the Neuron images run as it; what root could do beyond the container goes
SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
REFUSE_EMPTY_THEN_COPY = """\
if [ -z "$(ls -A "$1")" ]; then
  echo "no artifact in the bucket below $1/: compile it first, a server never compiles" >&2
  exit 1
fi
cp -R "$1/." "$2/"
"""

Spec = dict[str, Any]


def pod(environment: Environment, experiment: Experiment, variant: Variant, catalogue: Catalogue) -> Spec:
    """Return the pod's spec."""
    runtime = catalogue.runtimes[experiment.runtime]
    assert runtime.spelling is not None  # a rule refuses runtimes that are not rendered
    key = artifact_key(experiment, variant, catalogue)
    cached = runtime.spelling.artifact_is_cache
    reference = runtime.image.reference
    image = pull_name(reference, catalogue.digests.of(reference), environment.registry_mirrors)
    folder = CACHE_MOUNT if cached else artifact_folder(key)
    command = server(experiment, variant, catalogue, folder)
    return {
        "serviceAccountName": names.SERVE_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # a Service named vllm would set VLLM_PORT, which vLLM reads
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "nodeSelector": {
            "node.kubernetes.io/instance-type": environment.capacity.instance_type,
            # set on a node by whoever raised it, for this variant: a waiting pod takes nobody else's node
            names.raise_label(variant): experiment.name,
        },
        "tolerations": [{"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}],
        "resourceClaims": [{
            "name": CLAIM,
            "resourceClaimTemplateName": template_name(environment.capacity.instance_type, experiment.serving),
        }],
        **({"initContainers": [_copy(image, key)]} if cached else {}),
        "containers": [{
            "name": "vllm",
            "image": image,
            "command": list(command.command),
            "args": list(command.arguments),
            "env": [{"name": name, "value": value} for name, value in command.environment.items()],
            "ports": [{"name": "http", "containerPort": names.SERVER_PORT, "protocol": "TCP"}],
            **probes(experiment.target),
            "resources": _resources(experiment.serving),
            "securityContext": SECURITY,
            "volumeMounts": [
                {"name": "models", "mountPath": names.MODELS_MOUNT, "readOnly": True},
                {"name": "cache", "mountPath": CACHE_MOUNT} if cached else _artifact_mount(key),
                {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  # shared memory, not a temporary file
            ],
        }],
        "volumes": _volumes(experiment, key, cached=cached),
    }  # fmt: skip


def _resources(serving: ServingSettings) -> Spec:
    # no CPU limit: throttling would be measured as the model's latency
    memory = f"{serving.memory_gib}Gi"
    return {
        "requests": {"cpu": str(serving.cpu), "memory": memory},
        "limits": {"memory": memory},
        "claims": [{"name": CLAIM}],
    }


def _copy(image: str, key: ArtifactKey) -> Spec:
    """Return the init container that makes the artifact a cache on local disk, where locks and renames work."""
    return {
        "name": "copy-artifact",
        "image": image,
        "command": ["sh", "-ec", REFUSE_EMPTY_THEN_COPY],
        "args": ["copy-artifact", artifact_folder(key), CACHE_MOUNT],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "securityContext": SECURITY,
        "volumeMounts": [_artifact_mount(key), {"name": "cache", "mountPath": CACHE_MOUNT}],
    }


def _artifact_mount(key: ArtifactKey) -> Spec:
    return {"name": "artifact", "mountPath": artifact_folder(key), "readOnly": True}


def _volumes(experiment: Experiment, key: ArtifactKey, *, cached: bool) -> list[Spec]:
    claims = {"models": names.models_volume(experiment), "artifact": names.artifact_volume(experiment, key)}
    return [
        *(
            {"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
            for name, claim in claims.items()
        ),
        *([{"name": "cache", "emptyDir": {}}] if cached else []),
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{experiment.serving.shm_gib}Gi"}},
    ]
