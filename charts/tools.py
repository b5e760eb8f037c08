"""Containers of the tools image, and what they share with their neighbours in a pod.

Invariant: each satisfies the `restricted` Pod Security Standard by itself, writes to local disk of its own pod
only, and holds no credential beyond its pod's role.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from charts.manifest import Object
from tandem.spec import names
from tandem.spec.artifact_key import KEY_ENTRY, KEY_VARIABLE, ArtifactKey
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.model import ModelConfig
from tandem.spec.project_image import TOOLS
from tandem.spec.system_jobs import TOOLS_MEMORY_MIB

USER = 65532  # the image's own, said here so that a pod proves it without the image
RESTRICTED_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsGroup": USER,
    "runAsNonRoot": True,
    "runAsUser": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
MEMORY = f"{TOOLS_MEMORY_MIB}Mi"
WORK = {"name": "work", "mountPath": names.WORK_MOUNT}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStep:
    """One command of the tools image, as one container.

    Args:
        name: of the container. arguments: the command and its options; they follow the image's entrypoint.
        variables: beside the region.
        mounts: beside /work, the home of whatever the command writes.
        requests, limits: beside those of memory.
    """

    name: str
    arguments: Sequence[str]
    variables: Sequence[Object]
    requests: Mapping[str, str]
    mounts: Sequence[Object] = ()
    limits: Mapping[str, str] = field(default_factory=dict)


def build_container(environment: Environment, step: ToolStep) -> Object:
    """Return a container that runs `python -m tandem.artifacts` with the step's arguments."""
    return {
        "name": step.name,
        "image": TOOLS.reference(environment),
        "args": list(step.arguments),
        "env": [env_variable("AWS_REGION", environment.region), *step.variables],
        "resources": {
            "requests": {"memory": MEMORY, **step.requests}, "limits": {"memory": MEMORY, **step.limits},
        },
        "securityContext": RESTRICTED_SECURITY,
        # a refusal's last line then stands in `kubectl describe pod`
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*step.mounts, WORK],
    }  # fmt: skip


def env_variable(name: str, value: str) -> Object:
    """Return one environment variable."""
    return {"name": name, "value": value}


def holder_variables() -> list[Object]:
    """Return the variables that tell a run from every other: its Job's name, and the Job's uid.

    The uid, because a Job of the same name can be made again once the first is gone.
    """
    labels = {"JOB_NAME": "batch.kubernetes.io/job-name", "JOB_UID": "batch.kubernetes.io/controller-uid"}
    # apiVersion is what the API server would fill in, and a fieldRef has one owner as a whole
    label_variables = [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{label}']"}}}
        for name, label in labels.items()
    ]
    return [*label_variables, env_variable("TANDEM_HOLDER", "$(JOB_NAME)-$(JOB_UID)")]


def key_variable(key: ArtifactKey) -> Object:
    """Return the variable that carries every field of an artifact's key, from the key's ConfigMap."""
    reference = {"key": KEY_ENTRY, "name": names.key_config_map_name(key)}
    return {"name": KEY_VARIABLE, "valueFrom": {"configMapKeyRef": reference}}


def stage_commands_variable(experiment: Experiment, models: Iterable[ModelConfig]) -> Object:
    """Return the variable that says, by model, which command stages it."""
    namespace = names.experiment_namespace(experiment)
    commands = {model.full_id(): names.start_command(namespace, names.stage_job_name(model)) for model in models}
    return env_variable("TANDEM_STAGE_JOBS", json.dumps(commands))


def model_options(models: Iterable[ModelConfig]) -> list[str]:
    """Return the options that name `models`, the target first."""
    return [part for model in models for part in ("--model", model.full_id())]


def list_options(options: Mapping[str, object]) -> list[str]:
    """Return options and their values as arguments."""
    return [part for option, value in options.items() for part in (option, str(value))]


def local_disk_volume(name: str, gib: int) -> Object:
    """Return a volume of local disk, which on accelerator nodes is the NVMe array."""
    return {"name": name, "emptyDir": {"sizeLimit": f"{gib}Gi"}}
