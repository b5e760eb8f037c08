"""Common parts of pods: containers of our images, volumes, devices, and CronJobs of finite work.

Invariant: a container of the tools image itself satisfies the `restricted` Pod Security Standard.
It writes only to the local disk of its own pod, and holds no credential beyond its pod's role. No
schedule ever starts anything. A Job's template can never be changed, and a synced Job would run at
every deploy. So finite work is declared as a suspended CronJob, of which the runner makes Jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cdk8s_plus_36 import k8s

from charts.chart import COMPONENT, IGNORE_HEALTH, NAME, NOTHING, PART_OF, TandemChart
from charts.claims import template_name
from tandem.declarations import names
from tandem.declarations.artifact_key import KEY_ENTRY, KEY_VARIABLE, ArtifactKey
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment, Variant
from tandem.declarations.images import pull_name
from tandem.declarations.model import ModelConfig
from tandem.declarations.project_image import TOOLS
from tandem.declarations.quantity import spell_gib, spell_mib, spell_thousandths
from tandem.declarations.system_jobs import TOOLS_MEMORY_MIB

# no February has this day; the field must be filled, even of a suspended CronJob
NEVER_SCHEDULE = "0 0 31 2 *"
JOB_TTL_S = 7 * 24 * 3600  # a finished Job's status, for a person who looks after a weekend
# A CronJob deletes finished Jobs beyond these numbers, also those made by hand; the defaults are 3
# and 1
JOB_HISTORY_LIMIT = 10
USER = 65532  # the image's own, repeated here so that a pod proves it without the image
RESTRICTED_SECURITY = k8s.SecurityContext(
    allow_privilege_escalation=False,
    capabilities=k8s.Capabilities(drop=["ALL"]),
    read_only_root_filesystem=True,
    run_as_group=USER,
    run_as_non_root=True,
    run_as_user=USER,
    seccomp_profile=k8s.SeccompProfile(type="RuntimeDefault"),
)
POD_SECURITY = k8s.PodSecurityContext(seccomp_profile=k8s.SeccompProfile(type="RuntimeDefault"))
# By serving.capabilities: capabilities of a container of a runtime's image. Root stays, because the
# Neuron images need it. The last set is AWS's for this image (aws-neuron-sdk
# deploy/environments/quickstart-deploy-dlc.rst, step 2, 2026-08-21); Kubernetes cannot forbid
# escalation to a container with SYS_ADMIN.
RUNTIME_SECURITY = {
    "none": k8s.SecurityContext(
        allow_privilege_escalation=False, capabilities=k8s.Capabilities(drop=["ALL"])
    ),
    "runtime-default": k8s.SecurityContext(allow_privilege_escalation=False),
    "neuron": k8s.SecurityContext(capabilities=k8s.Capabilities(add=["SYS_ADMIN", "IPC_LOCK"])),
}
# names the containers that get neither token nor variables of the pod's role
# (amazon-eks-pod-identity-webhook README)
SKIP_CREDENTIALS = "eks.amazonaws.com/skip-containers"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
SYSTEM_NODES = {"workload": "system"}
TOLERATION = k8s.Toleration(key=names.NEURON_TAINT, operator="Exists", effect="NoSchedule")
CLAIM = "neuron"
WORK = k8s.VolumeMount(name="work", mount_path=names.WORK_MOUNT)
MODELS = k8s.VolumeMount(name="models", mount_path=names.MODELS_MOUNT)
MODELS_READ_ONLY = k8s.VolumeMount(name="models", mount_path=names.MODELS_MOUNT, read_only=True)
ARTIFACT = k8s.VolumeMount(name="artifact", mount_path=names.ARTIFACT_MOUNT)
SHM_MOUNT = k8s.VolumeMount(name="shm", mount_path="/dev/shm")  # noqa: S108  # shared memory, not a temporary file
# so that the last line of a refusal appears in `kubectl describe pod`
LAST_WORDS = "FallbackToLogsOnError"
RESULTS_FOLDER = f"{names.WORK_MOUNT}/results"
S3_RETRY_S = 1800


def add_cron_job(
    chart: TandemChart,
    name: str,
    *,
    component: str,
    deadline_s: int,
    retries: int,
    pod: k8s.PodSpec,
    annotations: Mapping[str, str] = NOTHING,
    credentials_skipped_by: str | None = None,
) -> None:
    """Add a suspended CronJob to a chart of an experiment's namespace.

    Args:
        chart: which gets it.
        name: of the CronJob.
        component: the label for network policies.
        deadline_s: most seconds from the Job's creation, the wait for a node included.
        retries: failures of a container or a pod that are tolerated before the Job fails.
        pod: its spec.
        annotations: for people who look at the CronJob.
        credentials_skipped_by: a container that gets no credentials of the pod's role.
    """
    labels = {NAME: name, COMPONENT: component, **PART_OF}
    skip = {SKIP_CREDENTIALS: credentials_skipped_by} if credentials_skipped_by else None
    k8s.KubeCronJob(
        chart,
        name,
        metadata=chart.build_metadata(
            name, component, annotations={**IGNORE_HEALTH, **annotations}
        ),
        spec=k8s.CronJobSpec(
            schedule=NEVER_SCHEDULE,
            suspend=True,
            concurrency_policy="Forbid",
            successful_jobs_history_limit=JOB_HISTORY_LIMIT,
            failed_jobs_history_limit=JOB_HISTORY_LIMIT,
            job_template=k8s.JobTemplateSpec(
                metadata=k8s.ObjectMeta(labels=labels),
                spec=k8s.JobSpec(
                    active_deadline_seconds=deadline_s,
                    backoff_limit=retries,
                    # a second pod only after the first is gone, which has the devices and the files
                    # on local disk
                    pod_replacement_policy="Failed",
                    ttl_seconds_after_finished=JOB_TTL_S,
                    template=k8s.PodTemplateSpec(
                        metadata=k8s.ObjectMeta(labels=labels, annotations=skip), spec=pod
                    ),
                ),
            ),
        ),
    )


def build_job_pod(
    account: str,
    *,
    retries: int,
    containers: Sequence[k8s.Container],
    volumes: Sequence[k8s.Volume],
    init_containers: Sequence[k8s.Container] = (),
    node_selector: Mapping[str, str] = SYSTEM_NODES,
    tolerations: Sequence[k8s.Toleration] = (),
    resource_claims: Sequence[k8s.PodResourceClaim] = (),
    termination_grace_period_s: int | None = None,
) -> k8s.PodSpec:
    """Return the pod of a Job, with no Kubernetes token and the runtime's own seccomp profile.

    Args:
        account: service account, for its credentials of AWS.
        retries: of the Job; with any, a failed container starts again in its pod.
        containers, volumes, init_containers, tolerations, resource_claims: as Kubernetes has them.
        node_selector: labels of the node.
        termination_grace_period_s: between SIGTERM and SIGKILL; None is what Kubernetes takes.
    """
    return k8s.PodSpec(
        service_account_name=account,
        automount_service_account_token=False,
        enable_service_links=False,
        restart_policy="OnFailure" if retries else "Never",
        security_context=POD_SECURITY,
        termination_grace_period_seconds=termination_grace_period_s,
        node_selector=node_selector,
        tolerations=tolerations or None,
        resource_claims=resource_claims or None,
        init_containers=init_containers or None,
        containers=containers,
        volumes=volumes,
    )


def build_tool_container(
    environment: Environment,
    name: str,
    arguments: Sequence[str],
    *,
    requests: Mapping[str, str],
    variables: Sequence[k8s.EnvVar] = (),
    mounts: Sequence[k8s.VolumeMount] = (),
    limits: Mapping[str, str] = NOTHING,
) -> k8s.Container:
    """Return a container that runs one command of the tools image.

    Args:
        environment: for the image and the region.
        name: of the container.
        arguments: the command and its options; they follow the image's entrypoint.
        requests: of resources, in addition to that of memory.
        variables: in addition to the region.
        mounts: in addition to /work, the home of all files of the command.
        limits: in addition to that of memory.
    """
    memory = {"memory": spell_mib(TOOLS_MEMORY_MIB)}
    return k8s.Container(
        name=name,
        image=TOOLS.reference(environment),
        args=list(arguments),
        env=[k8s.EnvVar(name="AWS_REGION", value=environment.region), *variables],
        resources=k8s.ResourceRequirements(
            requests=parse_quantities({**memory, **requests}),
            limits=parse_quantities({**memory, **limits}),
        ),
        security_context=RESTRICTED_SECURITY,
        termination_message_policy=LAST_WORDS,
        volume_mounts=[*mounts, WORK],
    )


def build_bench_container(
    name: str,
    image: str,
    arguments: Sequence[str],
    *,
    cpu_m: int,
    memory_mib: int,
    disk_gib: int,
    variables: Sequence[k8s.EnvVar] = (),
    mounts: Sequence[k8s.VolumeMount] = (),
) -> k8s.Container:
    """Return a container that asks servers; no CPU limit: throttling would count as latency.

    Args:
        name: of the container.
        image: its reference.
        arguments: they follow the image's entrypoint.
        cpu_m: processors, in thousandths.
        memory_mib: requested, and the limit.
        disk_gib: of /work.
        variables: of its environment.
        mounts: in addition to /work.
    """
    memory = spell_mib(memory_mib)
    disk = spell_gib(disk_gib)
    requests = {"cpu": spell_thousandths(cpu_m), "memory": memory, "ephemeral-storage": disk}
    return k8s.Container(
        name=name,
        image=image,
        args=list(arguments),
        env=variables or None,
        resources=k8s.ResourceRequirements(
            requests=parse_quantities(requests), limits=parse_quantities({"memory": memory})
        ),
        security_context=RESTRICTED_SECURITY,
        termination_message_policy=LAST_WORDS,
        volume_mounts=[WORK, *mounts],
    )


def build_keep_container(environment: Environment, below: str) -> k8s.Container:
    """Return the container that stores RESULTS_FOLDER in a Job's folder in `results/<below>/`."""
    options = {
        "--bucket": names.bucket_name(environment),
        "--folder": RESULTS_FOLDER,
        "--below": below,
        "--patience-s": S3_RETRY_S,
    }
    return build_tool_container(
        environment,
        "keep",
        ["keep", *list_options(options)],
        variables=holder_variables(),
        requests={"cpu": "500m"},
    )


def parse_quantities(texts: Mapping[str, str]) -> dict[str, k8s.Quantity]:
    """Return resources by name, with their quantities as Kubernetes spells them."""
    return {name: k8s.Quantity.from_string(text) for name, text in texts.items()}


def holder_variables() -> list[k8s.EnvVar]:
    """Return the variables that identify a run: its Job's name, and the Job's uid.

    The uid is needed because a Job of the same name can be made again after the first is gone.
    """
    labels = {
        "JOB_NAME": "batch.kubernetes.io/job-name",
        "JOB_UID": "batch.kubernetes.io/controller-uid",
    }
    label_variables = [
        field_variable(name, f"metadata.labels['{label}']") for name, label in labels.items()
    ]
    return [*label_variables, k8s.EnvVar(name="TANDEM_HOLDER", value="$(JOB_NAME)-$(JOB_UID)")]


def field_variable(name: str, path: str) -> k8s.EnvVar:
    """Return a variable that has the value of a field of its pod."""
    # the version as the API server would set it, because a fieldRef has one owner as a whole
    field = k8s.ObjectFieldSelector(api_version="v1", field_path=path)
    return k8s.EnvVar(name=name, value_from=k8s.EnvVarSource(field_ref=field))


def key_variable(key: ArtifactKey) -> k8s.EnvVar:
    """Return the variable with every field of an artifact's key, from the key's ConfigMap."""
    reference = k8s.ConfigMapKeySelector(key=KEY_ENTRY, name=names.key_config_map_name(key))
    return k8s.EnvVar(name=KEY_VARIABLE, value_from=k8s.EnvVarSource(config_map_key_ref=reference))


def stage_command_variable(environment: Environment, experiment: Experiment) -> k8s.EnvVar:
    """Return the variable with the command that stages an experiment's models."""
    command = names.stage_command(environment.name, experiment.name)
    return k8s.EnvVar(name="TANDEM_STAGE_COMMAND", value=command)


def variant_models(
    experiment: Experiment, variant: Variant, catalogue: Catalogue
) -> list[ModelConfig]:
    """Return the models that a variant serves: the target, and the draft if there is one."""
    return [catalogue.models[name] for name in (experiment.target, variant.draft) if name]


def model_options(models: Iterable[ModelConfig]) -> list[str]:
    """Return the options that name `models`, the target first."""
    return repeat_option("--model", [model.full_id() for model in models])


def list_options(options: Mapping[str, object]) -> list[str]:
    """Return options and their values as arguments."""
    words = []
    for option, value in options.items():
        words += [option, str(value)]
    return words


def repeat_option(option: str, values: Iterable[str]) -> list[str]:
    """Return an option once for each of its values, as arguments."""
    words = []
    for value in values:
        words += [option, value]
    return words


def runtime_image(environment: Environment, experiment: Experiment, catalogue: Catalogue) -> str:
    """Return the image of the runtime's containers, for compile and serve."""
    reference = catalogue.runtimes[experiment.runtime].image.reference
    return pull_name(
        reference, catalogue.digests.find_digest(reference), environment.registry_mirrors
    )


def device_claim(environment: Environment, experiment: Experiment) -> k8s.PodResourceClaim:
    """Return the pod's device claim, alike for compile and serve: artifacts depend on the LNC."""
    template = template_name(environment.capacity.instance_type, experiment.serving)
    return k8s.PodResourceClaim(name=CLAIM, resource_claim_template_name=template)


def local_disk_volume(name: str, gib: int) -> k8s.Volume:
    """Return a volume of local disk, which on accelerator nodes is the NVMe array."""
    size = k8s.Quantity.from_string(spell_gib(gib))
    return k8s.Volume(name=name, empty_dir=k8s.EmptyDirVolumeSource(size_limit=size))


def shared_memory(mib: int) -> k8s.Volume:
    """Return the volume of a pod's shared memory."""
    size = k8s.Quantity.from_string(spell_mib(mib))
    return k8s.Volume(
        name="shm", empty_dir=k8s.EmptyDirVolumeSource(medium="Memory", size_limit=size)
    )
