"""Common parts of pods: containers of the tools image, volumes and devices, and the CronJob of any finite work.

Invariant: a container of the tools image itself satisfies the `restricted` Pod Security Standard, writes only to the
local disk of its own pod, and holds no credential beyond its pod's role. No schedule ever starts anything. A Job's
template can never be changed, and a synced Job would run at every deploy. So finite work is declared as a suspended
CronJob, of which the runner makes Jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from charts.base import template_name
from charts.manifest import COMPONENT, IGNORE_HEALTH, NAME, PART_OF, Object, build_object, object_labels
from tandem.spec import names
from tandem.spec.artifact_key import KEY_ENTRY, KEY_VARIABLE, ArtifactKey
from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.images import pull_name
from tandem.spec.model import ModelConfig
from tandem.spec.project_image import TOOLS
from tandem.spec.quantity import spell_gib, spell_mib, spell_thousandths
from tandem.spec.system_jobs import TOOLS_MEMORY_MIB

WAVE = 3  # of servers and CronJobs: a sync that waited for a suspended object would wait for ever
NEVER_SCHEDULE = "0 0 31 2 *"  # no February has this day; the field must be filled, even of a suspended CronJob
JOB_TTL_S = 7 * 24 * 3600  # a finished Job's status, for a person who looks after a weekend
# A CronJob deletes finished Jobs beyond these numbers, also those made by hand; the defaults are 3 and 1
JOB_HISTORY_LIMIT = 10
USER = 65532  # the image's own, repeated here so that a pod proves it without the image
RESTRICTED_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsGroup": USER,
    "runAsNonRoot": True,
    "runAsUser": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
# By serving.capabilities: capabilities of a container of a runtime's image. Root stays, because the Neuron images need
# it. The last set is AWS's for this image (aws-neuron-sdk deploy/environments/quickstart-deploy-dlc.rst, step 2,
# 2026-08-21); Kubernetes cannot forbid escalation to a container with SYS_ADMIN.
RUNTIME_SECURITY: dict[str, dict[str, Any]] = {
    "none": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    "runtime-default": {"allowPrivilegeEscalation": False},
    "neuron": {"capabilities": {"add": ["SYS_ADMIN", "IPC_LOCK"]}},
}
# names the containers that get neither token nor variables of the pod's role (amazon-eks-pod-identity-webhook README)
SKIP_CREDENTIALS = "eks.amazonaws.com/skip-containers"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
SYSTEM_NODES = {"workload": "system"}
TOLERATION = {"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}
CLAIM = "neuron"
WORK = {"name": "work", "mountPath": names.WORK_MOUNT}
MODELS = {"name": "models", "mountPath": names.MODELS_MOUNT}
ARTIFACT = {"name": "artifact", "mountPath": names.ARTIFACT_MOUNT}
SHM_MOUNT = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108  # shared memory, not a temporary file
# so that the last line of a refusal appears in `kubectl describe pod`
LAST_WORDS = "FallbackToLogsOnError"
RESULTS_FOLDER = f"{names.WORK_MOUNT}/results"
S3_RETRY_S = 1800


def build_cron_job(
    name: str, experiment: Experiment, *, component: str, annotations: Mapping[str, str], deadline_s: int, retries: int,
    pod: Object, credentials_skipped_by: str | None = None,
) -> Object:  # fmt: skip
    """Return a suspended CronJob in the experiment's namespace.

    Args:
        component: the label for network policies.
        annotations: for people who look at the CronJob.
        deadline_s: most seconds from the Job's creation, the wait for a node included.
        retries: failures of a container or a pod that are tolerated before the Job fails.
        pod: its spec.
        credentials_skipped_by: a container that gets no credentials of the pod's role.
    """
    labels = {NAME: name, COMPONENT: component, **PART_OF}
    skip = {"annotations": {SKIP_CREDENTIALS: credentials_skipped_by}} if credentials_skipped_by else {}
    namespace = names.experiment_namespace(experiment)
    spec = {
        "schedule": NEVER_SCHEDULE,
        "suspend": True,
        "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": JOB_HISTORY_LIMIT,
        "failedJobsHistoryLimit": JOB_HISTORY_LIMIT,
        "jobTemplate": {
            "metadata": {"labels": labels},
            "spec": {
                "activeDeadlineSeconds": deadline_s,
                "backoffLimit": retries,
                # a second pod only after the first is gone, because that has the devices and the files on local disk
                "podReplacementPolicy": "Failed",
                "ttlSecondsAfterFinished": JOB_TTL_S,
                "template": {"metadata": {"labels": labels, **skip}, "spec": pod},
            },
        },
    }
    return build_object(
        "batch/v1", "CronJob", name, {"spec": spec}, namespace=namespace, labels=object_labels(name, component),
        wave=WAVE, annotations={**IGNORE_HEALTH, **annotations},
    )  # fmt: skip


def pod_head(account: str, **lifecycle: str | int) -> Object:
    """Return the common fields of pods: account, no token, end, and the system call filter."""
    return {
        "serviceAccountName": account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # a Service named vllm would set VLLM_PORT, which vLLM reads
        **lifecycle,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
    }


def build_tool_container(
    environment: Environment, name: str, arguments: Sequence[str], *, variables: Sequence[Object],
    requests: Mapping[str, str], mounts: Sequence[Object] = (), limits: Mapping[str, str] | None = None,
) -> Object:  # fmt: skip
    """Return a container that runs one command of the tools image.

    Args:
        arguments: the command and its options; they follow the image's entrypoint.
        variables: in addition to the region.
        mounts: in addition to /work, the home of all files of the command.
        requests, limits: in addition to those of memory.
    """
    memory = {"memory": spell_mib(TOOLS_MEMORY_MIB)}
    return {
        "name": name,
        "image": TOOLS.reference(environment),
        "args": list(arguments),
        "env": [env_variable("AWS_REGION", environment.region), *variables],
        "resources": {"requests": {**memory, **requests}, "limits": {**memory, **(limits or {})}},
        "securityContext": RESTRICTED_SECURITY,
        "terminationMessagePolicy": LAST_WORDS,
        "volumeMounts": [*mounts, WORK],
    }


def build_bench_container(
    name: str, image: str, arguments: Sequence[str], *, cpu_m: int, memory_mib: int, disk_gib: int,
    variables: Sequence[Object] = (), mounts: Sequence[Object] = (),
) -> Object:  # fmt: skip
    """Return a container that asks servers; it has no CPU limit, because throttling would count as their latency.

    Args:
        arguments: they follow the image's entrypoint.
        cpu_m: processors, in thousandths.
        memory_mib: requested, and the limit.
        disk_gib: of /work.
        mounts: in addition to /work.
    """
    memory = spell_mib(memory_mib)
    requests = {"cpu": spell_thousandths(cpu_m), "memory": memory, "ephemeral-storage": spell_gib(disk_gib)}
    return {
        "name": name,
        "image": image,
        "args": list(arguments),
        **({"env": list(variables)} if variables else {}),
        "resources": {"requests": requests, "limits": {"memory": memory}},
        "securityContext": RESTRICTED_SECURITY,
        "terminationMessagePolicy": LAST_WORDS,
        "volumeMounts": [WORK, *mounts],
    }


def build_keep_container(environment: Environment, below: str) -> Object:
    """Return the container that stores RESULTS_FOLDER below `results/<below>/`, in a folder of the Job's own."""
    options = {
        "--bucket": names.bucket_name(environment), "--folder": RESULTS_FOLDER, "--below": below,
        "--patience-s": S3_RETRY_S,
    }  # fmt: skip
    return build_tool_container(
        environment, "keep", ["keep", *list_options(options)], variables=holder_variables(), requests={"cpu": "500m"}
    )


def env_variable(name: str, value: str) -> Object:
    """Return one environment variable."""
    return {"name": name, "value": value}


def holder_variables() -> list[Object]:
    """Return the variables that identify a run: its Job's name, and the Job's uid.

    The uid is needed because a Job of the same name can be made again after the first is gone.
    """
    labels = {"JOB_NAME": "batch.kubernetes.io/job-name", "JOB_UID": "batch.kubernetes.io/controller-uid"}
    # apiVersion as the API server would set it, because a fieldRef has one owner as a whole
    label_variables = [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{label}']"}}}
        for name, label in labels.items()
    ]
    return [*label_variables, env_variable("TANDEM_HOLDER", "$(JOB_NAME)-$(JOB_UID)")]


def key_variable(key: ArtifactKey) -> Object:
    """Return the variable that carries every field of an artifact's key, from the key's ConfigMap."""
    reference = {"key": KEY_ENTRY, "name": names.key_config_map_name(key)}
    return {"name": KEY_VARIABLE, "valueFrom": {"configMapKeyRef": reference}}


def stage_command_variable(environment: Environment, experiment: Experiment) -> Object:
    """Return the variable with the command that stages an experiment's models."""
    return env_variable("TANDEM_STAGE_COMMAND", names.stage_command(environment.name, experiment.name))


def variant_models(experiment: Experiment, variant: Variant, catalogue: Catalogue) -> list[ModelConfig]:
    """Return the models that a variant serves: the target, and the draft if there is one."""
    return [catalogue.models[name] for name in (experiment.target, variant.draft) if name]


def model_options(models: Iterable[ModelConfig]) -> list[str]:
    """Return the options that name `models`, the target first."""
    return [part for model in models for part in ("--model", model.full_id())]


def list_options(options: Mapping[str, object]) -> list[str]:
    """Return options and their values as arguments."""
    return [part for option, value in options.items() for part in (option, str(value))]


def runtime_image(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> str:
    """Return the image of the runtime's containers, for compile and serve."""
    reference = catalogue.runtimes[experiment.runtime].image.reference
    return pull_name(reference, catalogue.digests.find_digest(reference), environment.registry_mirrors)


def device_claim(environment: Environment, experiment: Experiment) -> Object:
    """Return the pod's claim on devices, the same for compile and serve: an artifact depends on the LNC."""
    template = template_name(environment.capacity.instance_type, experiment.serving)
    return {"name": CLAIM, "resourceClaimTemplateName": template}


def local_disk_volume(name: str, gib: int) -> Object:
    """Return a volume of local disk, which on accelerator nodes is the NVMe array."""
    return {"name": name, "emptyDir": {"sizeLimit": spell_gib(gib)}}


def shared_memory(mib: int) -> Object:
    """Return the volume of a pod's shared memory."""
    return {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": spell_mib(mib)}}
