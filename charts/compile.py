"""Compiling: one suspended CronJob for each artifact of an experiment, whichever variants share it.

Invariant: the compiler sees the same devices, paths, models and settings as the server, and writes to local disk only.
Only the tools image may write to the bucket, before and after the compile. A compile that fails for good leaves nothing
held.

The containers run one after another: `fetch` checks whether the artifact exists, takes the lease and downloads the
models; `compile` is the runtime's own image, unmodified; `upload` verifies and stores. Only `upload` is retried if it
fails, with the compiled files still on disk. A compile that is given up ends well for Kubernetes (`--defer`). Then
`upload`, which alone may write the lease, runs, frees it, and fails with the compile's words and exit code. A container
that is killed from outside frees nothing.

Rights of the compiler on the account: a pod has one service account, so the role that writes artifacts/* belongs to the
compile pod as a whole. The runtime's image is third-party code and gets none of it. The annotation below makes EKS
leave that container without the token file and the variables of the role (aws/amazon-eks-pod-identity-webhook
pkg/handler, 2026; not seen on a cluster by us). Without a token the Pod Identity agent, which the pod's network policy
must admit, gives no credentials. If a cluster ignored the annotation, the compiler could write artifacts/* and read the
bucket's models; no other prefix, no deletion.
"""

from __future__ import annotations

import json

from charts import pod
from charts.manifest import Object
from charts.network import COMPILE
from tandem.spec import names
from tandem.spec.artifact_key import ArtifactKey
from tandem.spec.catalogue import Catalogue
from tandem.spec.compile_command import CompileCommand, build_compile_command
from tandem.spec.disk import WORK_GIB, artifact_gib, compile_gib, models_gib
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant
from tandem.spec.model import ModelConfig
from tandem.spec.quantity import spell_count, spell_gib
from tandem.spec.variant_key import compute_artifact_key

# for the node's start, the image's pull, the models' download, a server's end after the compiler's deadline, and for
# `upload`, which stores the artifact or frees the lease of a compile that failed
TRANSFER_S = 3600
GRACE_S = 300  # a healthy server writes its caches when it gets SIGTERM
# The driver hears SIGTERM while it waits so long for a server. Then it must kill the server's remaining processes
# (20 s), and record and report the attempt. If it is killed before, the attempt looks as if memory had run out.
TERMINATION_S = GRACE_S + 60
# Of TRANSFER_S: time that `upload` waits for S3 before its container fails. Restarts would use RETRIES up in under two
# minutes, and with the last one Kubernetes removes the pod, which has the only copy.
S3_RETRY_S = 1800
RETRIES = 3  # the driver makes its own attempts inside each; these are for the transfers
COMPILER = "compile"


def build_compile_jobs(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> list[Object]:
    """Return the CronJobs that compile an experiment's artifacts, each once, in the order of their first variant."""
    variants_by_key: dict[str, list[Variant]] = {}
    for variant in experiment.all_variants():
        variants_by_key.setdefault(compute_artifact_key(experiment, variant, catalogue).digest, []).append(variant)
    return [_build_job(environment, experiment, variants, catalogue) for variants in variants_by_key.values()]


def _build_job(
    environment: Environment, experiment: Experiment, variants: list[Variant], catalogue: Catalogue
) -> Object:
    """Return the CronJob of the artifact that some variants load; they share one compile."""
    key = compute_artifact_key(experiment, variants[0], catalogue)
    models = pod.variant_models(experiment, variants[0], catalogue)
    command = build_compile_command(experiment, variants[0], catalogue)
    deadline_s = experiment.compile.deadline_hours * 3600 + TRANSFER_S
    on_device, (label, value) = experiment.compile.where == "device", names.compile_label(experiment)
    instance_selector = {pod.INSTANCE_TYPE: environment.capacity.instance_type} if on_device else {}
    image = pod.runtime_image(environment, experiment, catalogue)
    spec = {
        **pod.pod_head(names.COMPILE_ACCOUNT, restartPolicy="OnFailure", terminationGracePeriodSeconds=TERMINATION_S),
        "nodeSelector": {label: value, **instance_selector},
        "tolerations": [pod.TOLERATION],
        **({"resourceClaims": [pod.device_claim(environment, experiment)]} if on_device else {}),
        "initContainers": [
            _build_fetch_container(environment, experiment, key, models, deadline_s),
            _build_compiler(environment, experiment, models, command, image),
        ],
        "containers": [_build_upload_container(environment, key, command)],
        "volumes": [
            pod.local_disk_volume("models", models_gib(models)),
            pod.local_disk_volume("artifact", artifact_gib(models)),
            pod.local_disk_volume("work", WORK_GIB),
            pod.shared_memory(experiment.serving.shm_gib * 1024),
        ],
    }
    return pod.build_cron_job(
        names.compile_job_name(key), experiment, component=COMPILE, deadline_s=deadline_s, retries=RETRIES,
        annotations={
            "tandem/artifact": key.name,
            "tandem/variants": ",".join(variant.name for variant in variants),
            "tandem/node-label": f"{label}={value}",
        },
        pod=spec, credentials_skipped_by=COMPILER,
    )  # fmt: skip


def _build_fetch_container(
    environment: Environment, experiment: Experiment, key: ArtifactKey, models: list[ModelConfig], lease_s: int
) -> Object:
    folders = {"--models": names.MODELS_MOUNT, "--work": names.WORK_MOUNT, "--lease-s": lease_s}
    bucket = ["--bucket", names.bucket_name(environment)]
    stage_command = pod.stage_command_variable(environment, experiment)
    return pod.build_tool_container(
        environment, "fetch", ["fetch", *bucket, *pod.model_options(models), *pod.list_options(folders)],
        variables=[pod.key_variable(key), *pod.holder_variables(), stage_command], requests={"cpu": "2"},
        mounts=[pod.MODELS],
    )  # fmt: skip


def _build_compiler(
    environment: Environment, experiment: Experiment, models: list[ModelConfig], command: CompileCommand, image: str
) -> Object:
    """Return the container of the runtime's own image: the driver, which starts the runtime's own program."""
    settings, serving, work = experiment.compile, experiment.serving, names.WORK_MOUNT
    memory = spell_gib(settings.memory_gib or serving.memory_gib)
    disk = spell_gib(compile_gib(models))
    options = {
        "--skip-if": f"{work}/present",
        "--outcome": f"{work}/outcome.json",
        "--output": names.ARTIFACT_FOLDER,
        "--cache": f"{work}/compiler-cache",
        "--deadline-s": settings.deadline_hours * 3600,
        "--attempts": settings.attempts,
        "--where": settings.where,
        "--grace-s": GRACE_S,
    }
    health_options = ["--until-healthy", command.health_url] if command.health_url else []
    return {
        "name": COMPILER,
        "image": image,
        "command": ["python", f"{work}/driver.pyz"],
        "args": [
            *pod.list_options(options), "--defer", *health_options, "--", *command.command, *command.arguments,
        ],
        "env": [pod.env_variable(name, value) for name, value in command.environment.items()],
        "resources": {
            "requests": {"cpu": spell_count(settings.cpu or serving.cpu), "memory": memory, "ephemeral-storage": disk},
            "limits": {"memory": memory},
            **({"claims": [{"name": pod.CLAIM}]} if settings.where == "device" else {}),
        },
        "securityContext": pod.RUNTIME_SECURITY[environment.serving.capabilities],
        "terminationMessagePolicy": pod.LAST_WORDS,
        "volumeMounts": [{**pod.MODELS, "readOnly": True}, pod.ARTIFACT, pod.WORK, pod.SHM_MOUNT],
    }  # fmt: skip


def _build_upload_container(environment: Environment, key: ArtifactKey, command: CompileCommand) -> Object:
    options = {
        "--bucket": names.bucket_name(environment),
        "--artifact": names.ARTIFACT_FOLDER,
        "--work": names.WORK_MOUNT,
        "--patience-s": S3_RETRY_S,
    }
    unproven = pod.env_variable("TANDEM_UNPROVEN", json.dumps(command.unproven))
    return pod.build_tool_container(
        environment, "upload", ["upload", *pod.list_options(options)], requests={"cpu": "2"}, mounts=[pod.ARTIFACT],
        variables=[pod.key_variable(key), *pod.holder_variables(), unproven],
    )  # fmt: skip
