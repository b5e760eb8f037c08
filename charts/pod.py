"""The pod of one server.

Invariant: everything but the name, the raise label, the speculation flags and the artifact comes from what
the variants share; and no server starts before its artifact was held against what it is told.
"""

from __future__ import annotations

from typing import Any

from charts.claims import template_name
from charts.manifest import Object
from charts.probes import build_probes
from charts.tools import (
    ToolStep,
    build_container,
    env_variable,
    key_variable,
    list_options,
    local_disk_volume,
    model_options,
    stage_commands_variable,
)
from tandem.spec import names
from tandem.spec.artifact_key import ArtifactKey
from tandem.spec.catalogue import Catalogue
from tandem.spec.disk import artifact_gib, largest_pair
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, ServingSettings, Variant
from tandem.spec.images import pull_name
from tandem.spec.server_command import build_server_command
from tandem.spec.variant_key import compute_artifact_key

GRACE_S = 120  # below the 600 s that a Mountpoint pod lives on after SIGTERM (mountpoint-s3-csi-driver, 2026-08)
CLAIM = "neuron"
# By serving.capabilities: what a container of a runtime's image may do. Root stays, the Neuron images run as it. The
# last is what AWS starts this image with (aws-neuron-sdk deploy/environments/quickstart-deploy-dlc.rst, step 2,
# 2026-08-21); Kubernetes forbids no escalation to a container with SYS_ADMIN.
RUNTIME_SECURITY: dict[str, dict[str, Any]] = {
    "none": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    "runtime-default": {"allowPrivilegeEscalation": False},
    "neuron": {"capabilities": {"add": ["SYS_ADMIN", "IPC_LOCK"]}},
}
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
# names the containers that get neither token nor variables of the pod's role (amazon-eks-pod-identity-webhook README)
SKIP_CREDENTIALS = "eks.amazonaws.com/skip-containers"
SERVER, ADMIT = "vllm", "admit"
TOLERATION = {"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}
MODELS = {"name": "models", "mountPath": names.MODELS_MOUNT, "readOnly": True}
BUCKET_VOLUME_MOUNT = {"name": "stored", "mountPath": names.BUCKET_ARTIFACT_MOUNT, "readOnly": True}
SHM_MOUNT = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108  # shared memory, not a temporary file
LINK_GIB = 1  # an artifact that is read from the mount is a link on local disk


def build_server_pod(
    environment: Environment, experiment: Experiment, variant: Variant, catalogue: Catalogue
) -> Object:
    """Return the pod's spec."""
    runtime = catalogue.runtimes[experiment.runtime]
    assert runtime.spelling is not None  # a rule refuses runtimes that are not rendered
    key = compute_artifact_key(experiment, variant, catalogue)
    is_cache = runtime.spelling.artifact_is_cache
    has_local_copy = is_cache or experiment.serving.copy_artifact
    local_gib = artifact_gib(largest_pair(experiment, catalogue)) if has_local_copy else LINK_GIB
    server_command = build_server_command(experiment, variant, catalogue)
    return {
        "serviceAccountName": names.SERVE_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # a Service named vllm would set VLLM_PORT, which vLLM reads
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "nodeSelector": {
            INSTANCE_TYPE: environment.capacity.instance_type,
            # set on a node by whoever raised it, for this variant: a waiting pod takes nobody else's node
            names.raise_label(variant): experiment.name,
        },
        "tolerations": [TOLERATION],
        "resourceClaims": [device_claim(environment, experiment)],
        "initContainers": [
            _build_admit_container(environment, experiment, variant, catalogue, has_local_copy=has_local_copy)
        ],
        "containers": [
            {
                "name": SERVER,
                "image": runtime_image(environment, experiment, catalogue),
                "command": list(server_command.command),
                "args": list(server_command.arguments),
                "env": [env_variable(name, value) for name, value in server_command.environment.items()],
                "ports": [{"name": "http", "containerPort": names.SERVER_PORT, "protocol": "TCP"}],
                **build_probes(experiment.target),
                "resources": _build_resources(experiment.serving, local_gib),
                "securityContext": RUNTIME_SECURITY[environment.serving.capabilities],
                "volumeMounts": [
                    MODELS,
                    # a cache keeps locks; anything else is read only, so that a server that would compile ends at once
                    {"name": "artifact", "mountPath": names.ARTIFACT_MOUNT} | ({} if is_cache else {"readOnly": True}),
                    *([] if has_local_copy else [BUCKET_VOLUME_MOUNT]),
                    SHM_MOUNT,
                ],
            }
        ],
        "volumes": _list_volumes(environment, experiment, key, local_gib),
    }


def runtime_image(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> str:
    """Return what the runtime's containers pull, at compile and at serve."""
    reference = catalogue.runtimes[experiment.runtime].image.reference
    return pull_name(reference, catalogue.digests.find_digest(reference), environment.registry_mirrors)


def device_claim(environment: Environment, experiment: Experiment) -> Object:
    """Return the pod's claim on devices, the same at compile and at serve: an artifact is bound to the LNC."""
    template = template_name(environment.capacity.instance_type, experiment.serving)
    return {"name": CLAIM, "resourceClaimTemplateName": template}


def shared_memory(experiment: Experiment) -> Object:
    """Return the volume of the runtime's shared memory."""
    return {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{experiment.serving.shm_gib}Gi"}}


def _build_resources(serving: ServingSettings, local_gib: int) -> Object:
    # no CPU limit: throttling would be measured as the model's latency
    memory = f"{serving.memory_gib}Gi"
    return {
        "requests": {"cpu": str(serving.cpu), "memory": memory, "ephemeral-storage": f"{local_gib}Gi"},
        "limits": {"memory": memory},
        "claims": [{"name": CLAIM}],
    }


def _build_admit_container(
    environment: Environment, experiment: Experiment, variant: Variant, catalogue: Catalogue, *, has_local_copy: bool
) -> Object:
    """Return the init container that lets the server start with its own artifact, or says why not.

    It reads mounts and nothing else, so it needs neither a way out nor a credential.
    """
    key = compute_artifact_key(experiment, variant, catalogue)
    model_ids = [experiment.target, *([variant.draft] if variant.draft else [])]
    models = [catalogue.models[name] for name in model_ids]
    compile_command = names.start_command(names.experiment_namespace(experiment), names.compile_job_name(key))
    step = ToolStep(
        name=ADMIT,
        arguments=[
            "admit", *list_options({"--stored": names.BUCKET_ARTIFACT_MOUNT, "--models": names.MODELS_MOUNT}),
            *model_options(models), "--artifact", names.ARTIFACT_MOUNT, *(["--copy"] if has_local_copy else []),
        ],
        variables=[
            key_variable(key),
            env_variable("TANDEM_COMPILE_JOB", compile_command),
            stage_commands_variable(experiment, models),
        ],
        requests={"cpu": "2"},
        mounts=[MODELS, BUCKET_VOLUME_MOUNT, {"name": "artifact", "mountPath": names.ARTIFACT_MOUNT}],
    )  # fmt: skip
    return build_container(environment, step)


def _list_volumes(environment: Environment, experiment: Experiment, key: ArtifactKey, local_gib: int) -> list[Object]:
    claims = {
        "models": names.models_volume_name(environment, experiment),
        "stored": names.artifact_volume_name(environment, experiment, key),
    }
    return [
        *(
            {"name": name, "persistentVolumeClaim": {"claimName": claim_name, "readOnly": True}}
            for name, claim_name in claims.items()
        ),
        local_disk_volume("artifact", local_gib),
        local_disk_volume("work", LINK_GIB),
        shared_memory(experiment),
    ]
