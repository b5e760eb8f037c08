"""Compiling: one suspended CronJob for each artifact of an experiment, whichever variants share it.

Invariant: the compiler sees the same devices, paths, models and settings as the server, and writes
to local disk only. Only the tools image may write to the bucket, before and after the compile. A
compile that fails for good leaves nothing held.

The containers run one after another. `fetch` checks whether the artifact exists, takes the lease
and downloads the models. `compile` is the runtime's own image, unmodified. `upload` inspects and
stores. Only `upload` is retried if it fails, with the compiled files still on disk. A compile that
is given up ends well for Kubernetes (`--defer`). Then `upload`, which alone may write the lease,
runs, frees it, and fails with the compile's words and exit code. A container that is killed from
outside frees nothing.

A pod has one service account, so the role that writes artifacts/* belongs to the compile pod as a
whole. The runtime's image is third-party code and gets none of its rights. The annotation below
makes EKS leave that container without the token file and the variables of the role. Source:
aws/amazon-eks-pod-identity-webhook pkg/handler, 2026; we have not seen it on a cluster. Without a
token the Pod Identity agent, which the pod's network policy must admit, gives no credentials. If a
cluster ignored the annotation, the compiler could write artifacts/* and read the bucket's models;
no other prefix, no deletion.
"""

from __future__ import annotations

import json

from cdk8s_plus_36 import k8s

from charts import pod
from charts.experiment import ExperimentChart
from charts.network import COMPILE
from tandem.declarations import names
from tandem.declarations.artifact_key import ArtifactKey
from tandem.declarations.compile_command import CompileCommand, build_compile_command
from tandem.declarations.disk import WORK_GIB, artifact_gib, compile_gib, models_gib
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment, Variant
from tandem.declarations.model import ModelConfig
from tandem.declarations.quantity import spell_count, spell_gib
from tandem.declarations.variant_key import compute_artifact_key

# for the node's start, the image's pull, the models' download, and a server's end after the
# compiler's deadline. Also for `upload`, which stores the artifact or frees the lease.
TRANSFER_S = 3600
GRACE_S = 300  # a healthy server writes its caches when it gets SIGTERM
# The driver hears SIGTERM while it waits so long for a server. Then it must kill the server's
# remaining processes (20 s), and record and report the attempt. If it is killed before, the attempt
# looks as if memory had run out.
TERMINATION_S = GRACE_S + 60
# Of TRANSFER_S: time that `upload` waits for S3 before its container fails. Restarts would use
# RETRIES up in under two minutes, and with the last one Kubernetes removes the pod, which has the
# only copy.
S3_RETRY_S = 1800
RETRIES = 3  # the driver makes its own attempts inside each; these are for the transfers
COMPILER = "compile"


class CompileChart(ExperimentChart):
    """The compile CronJobs of an experiment, one an artifact, in the order of first variant."""

    def add_objects(self) -> None:
        """Add the objects, in the order of their application."""
        variants_by_key: dict[str, list[Variant]] = {}
        for variant in self.experiment.all_variants():
            digest = compute_artifact_key(self.experiment, variant, self.catalogue).digest
            variants_by_key.setdefault(digest, []).append(variant)

        for variants in variants_by_key.values():
            self._add_job(variants)

    def _add_job(self, variants: list[Variant]) -> None:
        """Add the CronJob of the artifact that some variants load; they share one compile."""
        environment = self.environment
        experiment = self.experiment
        catalogue = self.catalogue
        key = compute_artifact_key(experiment, variants[0], catalogue)
        models = pod.variant_models(experiment, variants[0], catalogue)
        command = build_compile_command(experiment, variants[0], catalogue)
        deadline_s = experiment.compile.deadline_hours * 3600 + TRANSFER_S
        on_device = experiment.compile.where == "device"
        label, value = names.compile_label(experiment)
        instance_selector = (
            {pod.INSTANCE_TYPE: environment.capacity.instance_type} if on_device else {}
        )
        image = pod.runtime_image(environment, experiment, catalogue)

        pod.add_cron_job(
            self,
            names.compile_job_name(key),
            component=COMPILE,
            deadline_s=deadline_s,
            retries=RETRIES,
            annotations={
                "tandem/artifact": key.name,
                "tandem/variants": ",".join(variant.name for variant in variants),
                "tandem/node-label": f"{label}={value}",
            },
            credentials_skipped_by=COMPILER,
            pod=pod.build_job_pod(
                names.COMPILE_ACCOUNT,
                retries=RETRIES,
                termination_grace_period_s=TERMINATION_S,
                node_selector={label: value, **instance_selector},
                tolerations=[pod.TOLERATION],
                resource_claims=[pod.device_claim(environment, experiment)] if on_device else [],
                init_containers=[
                    _build_fetch_container(environment, experiment, key, models, deadline_s),
                    _build_compiler(environment, experiment, models, command, image),
                ],
                containers=[_build_upload_container(environment, key, command)],
                volumes=[
                    pod.local_disk_volume("models", models_gib(models)),
                    pod.local_disk_volume("artifact", artifact_gib(models)),
                    pod.local_disk_volume("work", WORK_GIB),
                    pod.shared_memory(experiment.serving.shm_gib * 1024),
                ],
            ),
        )


def _build_fetch_container(
    environment: Environment,
    experiment: Experiment,
    key: ArtifactKey,
    models: list[ModelConfig],
    lease_s: int,
) -> k8s.Container:
    bucket = ["--bucket", names.bucket_name(environment)]
    options = {"--models": names.MODELS_MOUNT, "--work": names.WORK_MOUNT, "--lease-s": lease_s}
    stage_command = pod.stage_command_variable(environment, experiment)
    return pod.build_tool_container(
        environment,
        "fetch",
        ["fetch", *bucket, *pod.model_options(models), *pod.list_options(options)],
        variables=[pod.key_variable(key), *pod.holder_variables(), stage_command],
        requests={"cpu": "2"},
        mounts=[pod.MODELS],
    )


def _build_compiler(
    environment: Environment,
    experiment: Experiment,
    models: list[ModelConfig],
    command: CompileCommand,
    image: str,
) -> k8s.Container:
    """Return the container of the runtime's own image: the driver, which starts its program."""
    settings = experiment.compile
    work = names.WORK_MOUNT
    memory = spell_gib(settings.memory_gib or experiment.serving.memory_gib)
    requests = {
        "cpu": spell_count(settings.cpu or experiment.serving.cpu),
        "memory": memory,
        "ephemeral-storage": spell_gib(compile_gib(models)),
    }
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
    runtime_words = ["--", *command.command, *command.arguments]
    return k8s.Container(
        name=COMPILER,
        image=image,
        command=["python", f"{work}/driver.pyz"],
        args=[*pod.list_options(options), "--defer", *health_options, *runtime_words],
        env=[k8s.EnvVar(name=name, value=value) for name, value in command.environment.items()],
        resources=k8s.ResourceRequirements(
            requests=pod.parse_quantities(requests),
            limits=pod.parse_quantities({"memory": memory}),
            claims=[k8s.ResourceClaim(name=pod.CLAIM)] if settings.where == "device" else None,
        ),
        security_context=pod.RUNTIME_SECURITY[environment.serving.capabilities],
        termination_message_policy=pod.LAST_WORDS,
        volume_mounts=[pod.MODELS_READ_ONLY, pod.ARTIFACT, pod.WORK, pod.SHM_MOUNT],
    )


def _build_upload_container(
    environment: Environment, key: ArtifactKey, command: CompileCommand
) -> k8s.Container:
    options = {
        "--bucket": names.bucket_name(environment),
        "--artifact": names.ARTIFACT_FOLDER,
        "--work": names.WORK_MOUNT,
        "--patience-s": S3_RETRY_S,
    }
    unproven = k8s.EnvVar(name="TANDEM_UNPROVEN", value=json.dumps(command.unproven))
    return pod.build_tool_container(
        environment,
        "upload",
        ["upload", *pod.list_options(options)],
        requests={"cpu": "2"},
        mounts=[pod.ARTIFACT],
        variables=[pod.key_variable(key), *pod.holder_variables(), unproven],
    )
