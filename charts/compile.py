"""Compiling: one suspended CronJob for each artifact of an experiment, whichever variants share it.

Invariant: the compiler sees the same devices, paths, models and settings that the server will, and writes to
local disk only; what may write to the bucket is the tools image, before and after it; a compile that fails for
good holds nothing any more.

The containers run one after another: `fetch` looks whether the artifact is there, takes the lease and brings the
models; `compile` is the runtime's own image, unmodified; `upload` verifies and stores. A failure of the last is
retried by itself, with what was compiled still on disk. A compile that is given up ends well for Kubernetes
(`--defer`), so that `upload`, which alone may write the lease, runs, frees it, and fails with the compile's words
and exit code. What is killed from outside frees nothing.

What the compiler could do with the account. A pod has one service account, so the role that writes artifacts/*
belongs to the compile pod as a whole. The runtime's image is third-party code and gets none of it: the annotation
below makes EKS leave that container without the token file and the variables that lead to the role
(aws/amazon-eks-pod-identity-webhook pkg/handler, 2026; not seen on a cluster by us). Without a token the Pod
Identity agent, which the pod's network policy must admit, hands out nothing. If a cluster did not honour the
annotation, the compiler could write artifacts/* and read the bucket's models; no other prefix, no deletion.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from charts.jobs import JobSpec, build_cron_job
from charts.manifest import Object
from charts.network import COMPILE
from charts.pod import (
    CLAIM,
    INSTANCE_TYPE,
    RUNTIME_SECURITY,
    SHM_MOUNT,
    SKIP_CREDENTIALS,
    TOLERATION,
    device_claim,
    runtime_image,
    shared_memory,
)
from charts.tools import (
    WORK,
    ToolStep,
    build_container,
    env_variable,
    holder_variables,
    key_variable,
    list_options,
    local_disk_volume,
    model_options,
    stage_commands_variable,
)
from tandem.spec import names
from tandem.spec.artifact_key import ArtifactKey
from tandem.spec.catalogue import Catalogue
from tandem.spec.compile_command import CompileCommand, build_compile_command
from tandem.spec.disk import WORK_GIB, artifact_gib, compile_gib, models_gib
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.model import ModelConfig
from tandem.spec.variant_key import compute_artifact_key

# for a node to start, the image to come, models to be fetched, a server to end after the compiler's deadline, and for
# `upload`, which stores the artifact or frees the lease of a compile that failed
TRANSFER_S = 3600
GRACE_S = 300  # a healthy server writes its caches when it is asked to end
# The driver hears SIGTERM while it waits so long for a server, and then has to kill and bury what is left of it
# (20 s), note the attempt and say so. Killed before, it leaves an attempt that looks as if memory had run out.
TERMINATION_S = GRACE_S + 60
# Of TRANSFER_S: how long `upload` waits for S3 before its container fails. Restarts would use RETRIES up in under two
# minutes, and with the last one Kubernetes removes the pod, which holds the only copy.
S3_RETRY_S = 1800
RETRIES = 3  # the driver makes its own attempts inside each; these are for the transfers
MODELS = {"name": "models", "mountPath": names.MODELS_MOUNT}
ARTIFACT = {"name": "artifact", "mountPath": names.ARTIFACT_MOUNT}
COMPILER = "compile"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactCompile:
    """One artifact to compile.

    Args:
        variants: those that load it; their compiles are one and the same.
        models: the target, and the draft where there is one.
    """

    key: ArtifactKey
    variants: tuple[Variant, ...]
    models: tuple[ModelConfig, ...]


def build_compile_jobs(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> list[Object]:
    """Return the CronJobs that compile an experiment's artifacts."""
    return [
        build_cron_job(
            JobSpec(
                name=names.compile_job_name(artifact.key),
                namespace=names.experiment_namespace(experiment),
                component=COMPILE,
                annotations={
                    "tandem/artifact": artifact.key.name,
                    "tandem/variants": ",".join(variant.name for variant in artifact.variants),
                    "tandem/node-label": "=".join(names.compile_label(experiment)),
                },
                deadline_s=_deadline_s(experiment),
                retries=RETRIES,
                pod_annotations={SKIP_CREDENTIALS: COMPILER},
                pod=_build_pod(environment, experiment, artifact, catalogue),
            )
        )
        for artifact in list_artifacts(experiment, catalogue)
    ]


def list_artifacts(experiment: Experiment, catalogue: Catalogue) -> Iterable[ArtifactCompile]:
    """Return the experiment's artifacts, each once, in the order of their first variant."""
    by_key: dict[str, list[Variant]] = {}
    for variant in experiment.all_variants():
        by_key.setdefault(compute_artifact_key(experiment, variant, catalogue).digest, []).append(variant)
    for variants in by_key.values():
        first_variant = variants[0]
        model_ids = [experiment.target, *([first_variant.draft] if first_variant.draft else [])]
        yield ArtifactCompile(
            key=compute_artifact_key(experiment, first_variant, catalogue), variants=tuple(variants),
            models=tuple(catalogue.models[name] for name in model_ids),
        )  # fmt: skip


def _deadline_s(experiment: Experiment) -> int:
    return experiment.compile.deadline_hours * 3600 + TRANSFER_S


def _build_pod(
    environment: Environment, experiment: Experiment, artifact: ArtifactCompile, catalogue: Catalogue
) -> Object:
    compile_command = build_compile_command(experiment, artifact.variants[0], catalogue)
    on_device = experiment.compile.where == "device"
    label, value = names.compile_label(experiment)
    return {
        "serviceAccountName": names.COMPILE_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": TERMINATION_S,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "nodeSelector": {label: value, **({INSTANCE_TYPE: environment.capacity.instance_type} if on_device else {})},
        "tolerations": [TOLERATION],
        **({"resourceClaims": [device_claim(environment, experiment)]} if on_device else {}),
        "initContainers": [
            build_container(environment, _fetch_step(environment, experiment, artifact)),
            _build_compiler(environment, experiment, artifact, catalogue, compile_command),
        ],
        "containers": [build_container(environment, _upload_step(environment, artifact, compile_command))],
        "volumes": [
            local_disk_volume("models", models_gib(artifact.models)),
            local_disk_volume("artifact", artifact_gib(artifact.models)),
            local_disk_volume("work", WORK_GIB),
            shared_memory(experiment),
        ],
    }


def _fetch_step(environment: Environment, experiment: Experiment, artifact: ArtifactCompile) -> ToolStep:
    return ToolStep(
        name="fetch",
        arguments=[
            "fetch", "--bucket", names.bucket_name(environment), *model_options(artifact.models),
            *list_options({
                "--models": names.MODELS_MOUNT, "--work": names.WORK_MOUNT, "--lease-s": _deadline_s(experiment),
            }),
        ],
        variables=[
            key_variable(artifact.key),
            *holder_variables(),
            stage_commands_variable(experiment, artifact.models),
        ],
        requests={"cpu": "2"},
        mounts=[MODELS],
    )  # fmt: skip


def _build_compiler(
    environment: Environment,
    experiment: Experiment,
    artifact: ArtifactCompile,
    catalogue: Catalogue,
    compile_command: CompileCommand,
) -> Object:
    """Return the container of the runtime's own image: the driver, and behind it the runtime's own program."""
    settings, serving = experiment.compile, experiment.serving
    memory = f"{settings.memory_gib or serving.memory_gib}Gi"
    disk = f"{compile_gib(artifact.models)}Gi"
    claims = {"claims": [{"name": CLAIM}]} if settings.where == "device" else {}
    return {
        "name": COMPILER,
        "image": runtime_image(environment, experiment, catalogue),
        "command": ["python", f"{names.WORK_MOUNT}/driver.pyz"],
        "args": [
            "--skip-if", f"{names.WORK_MOUNT}/present", "--outcome", f"{names.WORK_MOUNT}/outcome.json",
            "--output", names.ARTIFACT_FOLDER, "--cache", f"{names.WORK_MOUNT}/compiler-cache",
            "--deadline-s", str(settings.deadline_hours * 3600), "--attempts", str(settings.attempts),
            "--where", settings.where, "--grace-s", str(GRACE_S), "--defer",
            *(["--until-healthy", compile_command.health_url] if compile_command.health_url else []),
            "--", *compile_command.command, *compile_command.arguments,
        ],
        "env": [env_variable(name, value) for name, value in compile_command.environment.items()],
        "resources": {
            "requests": {"cpu": str(settings.cpu or serving.cpu), "memory": memory, "ephemeral-storage": disk},
            "limits": {"memory": memory},
            **claims,
        },
        "securityContext": RUNTIME_SECURITY[environment.serving.capabilities],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{**MODELS, "readOnly": True}, ARTIFACT, WORK, SHM_MOUNT],
    }  # fmt: skip


def _upload_step(environment: Environment, artifact: ArtifactCompile, compile_command: CompileCommand) -> ToolStep:
    options = {
        "--bucket": names.bucket_name(environment), "--artifact": names.ARTIFACT_FOLDER, "--work": names.WORK_MOUNT,
        "--patience-s": S3_RETRY_S,
    }  # fmt: skip
    return ToolStep(
        name="upload",
        arguments=["upload", *list_options(options)],
        variables=[
            key_variable(artifact.key),
            *holder_variables(),
            env_variable("TANDEM_UNPROVEN", json.dumps(compile_command.unproven)),
        ],
        requests={"cpu": "2"},
        mounts=[ARTIFACT],
    )
