"""Every physical name, computed from environment and experiment, so manifests need no look-up.

Invariant: only names that a manifest or an operator must know are fixed here; all others are
generated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from tandem.shell_command import build_tandem_command

if TYPE_CHECKING:  # a pod that asks for a mount's name has no specification, nor the modules of one
    from tandem.declarations.artifact_key import ArtifactKey
    from tandem.declarations.environment import Environment
    from tandem.declarations.experiment import Experiment, Variant
    from tandem.declarations.model import ModelConfig

SERVE_ACCOUNT = "tandem-serve"  # reads models and artifacts
STAGE_ACCOUNT = "tandem-stage"  # writes models
COMPILE_ACCOUNT = "tandem-compile"  # reads models, writes artifacts
BENCH_ACCOUNT = "tandem-bench"  # reads task sets and files of prompts, writes results
NAMESPACE_PREFIX = "tandem-"  # of every experiment's namespace, and of no other in the cluster
LLMPERF_JOB = "qwen-llmperf"  # the post's name; it is alone in its experiment's namespace
CLAIM_TEMPLATE = "neuron-devices"
SERVER_PORT = 8000
RAISE_LABEL_PREFIX = "raise.tandem"
COMPILE_LABEL = "compile.tandem/experiment"
# The same paths at compile and at serve, because paths may enter what is compiled.
MODELS_MOUNT = "/models"  # <org>/<name>/<revision>/...
ARTIFACT_MOUNT = "/artifact"  # local disk
# the path of every runtime's artifact: a folder, or a link
ARTIFACT_FOLDER = f"{ARTIFACT_MOUNT}/current"
# local disk of one pod: the driver, its outcome, compiler caches, temporary files
WORK_MOUNT = "/work"
BUCKET_ARTIFACT_MOUNT = "/stored"  # the artifact's prefix in the bucket, read only
# kubernetes.io docs/concepts/workloads/controllers/cron-jobs: its Jobs append 11
CRON_JOB_CHARACTERS = 52
REVISION_CHARACTERS = 7
TASK_NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,62}$"
TASK_NAME_WORDS = "lower-case letters, digits, - and _, at most 63"
NOTIFY = "notify"  # second word in the name of a composite alarm, and in no environment's name
BUCKET_CHARACTERS = 6  # of a digest: it tells the few buckets that one experiment is moved between
PeopleKind = Literal["viewer", "engineer", "operator", "admin", "pipeline"]
# each policy's own kind
PEOPLE: tuple[PeopleKind, ...] = ("viewer", "engineer", "operator", "admin", "pipeline")
# key of the taint that every pod of an accelerator node tolerates
NEURON_TAINT = "aws.amazon.com/neuron"
# the Mountpoint driver removes it once it can mount
STARTUP_TAINT = "s3.csi.aws.com/agent-not-ready"
# on all that can be tagged; nothing without it is ever stopped or deleted
OWNER_TAG = "tandem:environment"
# how the kind of each stack that builds an image begins, and no environment's name
IMAGE_KIND = "Image"
# in pods of every environment; the others only where an experiment runs them
CORE_IMAGES = ("tools", "run")
# what Container Insights writes to, one log group each; the agent makes them itself, kept for ever,
# where they are not
CONTAINER_LOG_KINDS = ("application", "dataplane", "host", "performance", "prometheus")


def model_slug(model_id: str) -> str:
    """Return a model's name as a Kubernetes label: `Qwen/Qwen3-1.7B` is `qwen3-1-7b`."""
    name = model_id.rpartition("/")[2].lower()
    return "".join(character if character.isalnum() else "-" for character in name).strip("-")


def cluster_name(environment: Environment) -> str:
    """Return the EKS cluster's name."""
    return f"tandem-{environment.name}"


def node_image_parameter(environment: Environment) -> str:
    """Return the public parameter of the AMI release EKS recommends for accelerator nodes.

    Source: EKS user guide, "Retrieve recommended Amazon Linux AMI IDs" (retrieve-ami-id).
    """
    minor = environment.cluster.kubernetes
    path = f"/aws/service/eks/optimized-ami/{minor}/amazon-linux-2023/x86_64/neuron"
    return f"{path}/recommended/release_version"


def bucket_name(environment: Environment) -> str:
    """Return the bucket of models and artifacts: the operator's, or a name unique by account."""
    return (
        environment.artifacts.existing_bucket or f"tandem-{environment.name}-{environment.account}"
    )


def log_bucket_name(environment: Environment) -> str:
    """Return the bucket that receives access logs."""
    return f"tandem-{environment.name}-{environment.account}-logs"


def node_group_name(environment: Environment) -> str:
    """Return the accelerator node group's name."""
    return f"{environment.name}-trn2"


def repository_name(environment: Environment, image: str = "tools") -> str:
    """Return the ECR repository of an image of ours; its CodeBuild project has the same name."""
    return f"tandem-{environment.name}-{image}"


def build_function_name(environment: Environment) -> str:
    """Return the name of the function that has the images of ours built."""
    return f"tandem-{environment.name}-build"


def dashboard_name(environment: Environment, part: str) -> str:
    """Return a CloudWatch dashboard's name; `part` is an experiment's, `machine` or `money`."""
    return f"tandem-{environment.name}-{part}"


def alarm_name(environment: Environment, *parts: str) -> str:
    """Return the name of one CloudWatch alarm: the environment's, then what it watches."""
    return "-".join((environment.name, *parts))


def composite_alarm_pattern(environment: Environment) -> str:
    """Return the pattern of the composite alarms, which alone notify, of this environment only.

    `prod-*` would match the alarms of `prod-eu` too. The word in it is no part of any environment's
    name: the rule `environment-words` keeps it free.
    """
    return alarm_name(environment, NOTIFY, "*")


def topic_name(environment: Environment) -> str:
    """Return the name of the SNS topic that the alarms notify."""
    return f"tandem-{environment.name}-alarms"


def guard_namespace(environment: Environment) -> str:
    """Return the CloudWatch namespace where only the guard publishes, so none feigns its life."""
    return f"Tandem/Guard/{environment.name}"


def bench_namespace(environment: Environment) -> str:
    """Return the CloudWatch namespace of all that the environment's own programs measure."""
    return f"Tandem/{environment.name}"


def simulation_namespace(environment: Environment) -> str:
    """Return the CloudWatch namespace of simulated figures, which no dashboard or alarm reads."""
    return f"Tandem/Simulated/{environment.name}"


def resource_tags(environment: Environment) -> dict[str, str]:
    """Return the tags of every resource: the operator's own, and whose it is."""
    return {**environment.tags, OWNER_TAG: environment.name}


def schedule_group_name(environment: Environment) -> str:
    """Return the name of the group of the one-shot schedules that stop the fleet, one a run."""
    return f"tandem-{environment.name}"


def scheduler_role_name(environment: Environment) -> str:
    """Return the name of the role with which those schedules call EKS."""
    return f"tandem-{environment.name}-scheduler"


def people_policy_name(environment: Environment, kind: PeopleKind) -> str:
    """Return the name of the IAM policy of one kind of people, or of the pipeline."""
    return f"tandem-{environment.name}-{kind}"


def dead_letter_queue_name(environment: Environment) -> str:
    """Return the name of the queue of the schedules' calls that were given up."""
    return f"tandem-{environment.name}-dead-letters"


def guard_function_name(environment: Environment, function_kind: Literal["stop", "reap"]) -> str:
    """Return the name of one of the two functions that stop the fleet."""
    return f"tandem-{environment.name}-{function_kind}"


def aws_partition(region: str) -> str:
    """Return the partition of a region's ARNs (AWS General Reference, ARNs)."""
    if region.startswith("cn-"):
        return "aws-cn"
    if region.startswith("us-gov-"):
        return "aws-us-gov"
    return "aws"


def budget_name(environment: Environment) -> str:
    """Return the name of the monthly budget of the fleet.

    Another list of notifications needs another name: CloudFormation makes the new budget before it
    deletes the old one.
    """
    return f"tandem-{environment.name}-monthly"


def stop_topic_name(environment: Environment) -> str:
    """Return the SNS topic name that starts the stop function; people subscribe to `topic_name`."""
    return f"tandem-{environment.name}-stop"


def function_log_group_name(
    environment: Environment, function_kind: Literal["stop", "reap"]
) -> str:
    """Return the log group of one of the two functions, named as Lambda names it."""
    return f"/aws/lambda/{guard_function_name(environment, function_kind)}"


def container_log_group_name(environment: Environment, kind: str) -> str:
    """Return the log group of one of CONTAINER_LOG_KINDS, as Container Insights names it."""
    return f"/aws/containerinsights/{cluster_name(environment)}/{kind}"


def stack_name(environment: Environment, kind: str) -> str:
    """Return the CloudFormation name of one stack, `<environment>-<kind>`."""
    return f"{environment.name}-{kind}"


def image_stack_kind(image: str) -> str:
    """Return the kind of the stack that builds an image of ours: of `lm-eval`, ImageLmEval."""
    return f"{IMAGE_KIND}{image.title().replace('-', '')}"


def stack_kinds(environment: Environment, images: Iterable[str]) -> tuple[str, ...]:
    """Return an environment's stacks in deploy order: nothing that exists elsewhere is made.

    Args:
        environment: of good form.
        images: names of the images that it hosts; tandem/declarations/project_image.py lists them.
    """
    early = [image_stack_kind(image) for image in images if image in CORE_IMAGES]
    late = [image_stack_kind(image) for image in images if image not in CORE_IMAGES]
    presence = {
        "Network": environment.network.kind == "new",
        "Artifacts": environment.artifacts.existing_bucket is None,
        "Registry": True,
        **dict.fromkeys(early, True),
        "Cluster": True,
        "Guard": True,
        "Fleet": not environment.capacity.awaits_reservation,
        "Workloads": True,
        **dict.fromkeys(late, True),
        "Observability": True,
    }
    return tuple(kind for kind, is_present in presence.items() if is_present)


def experiment_namespace(experiment: Experiment) -> str:
    """Return the experiment's own Kubernetes namespace."""
    return f"{NAMESPACE_PREFIX}{experiment.name}"


def models_volume_name(environment: Environment, experiment: Experiment) -> str:
    """Return the name of the experiment's volume of models; it is the volume handle too."""
    return _volume_name(environment, experiment, "models")


def artifact_volume_name(environment: Environment, experiment: Experiment, key: ArtifactKey) -> str:
    """Return the name of the volume of one artifact."""
    return _volume_name(environment, experiment, key.digest)


def _volume_name(environment: Environment, experiment: Experiment, content: str) -> str:
    """Name a volume by its content and, if the bucket is not the environment's own, by the bucket.

    A volume's source can never be changed after its creation, so another source must be another
    name.
    """
    existing = environment.artifacts.existing_bucket
    bucket_digest = (
        [hashlib.sha256(existing.encode()).hexdigest()[:BUCKET_CHARACTERS]] if existing else []
    )
    return "-".join([experiment.name, content, *bucket_digest])


def task_set_key(name: str, sha256: str) -> str:
    """Return the key of a task set in the bucket: an archive, which its digest names."""
    return f"tasks/{name}/{sha256}.zip"


def suite_key(name: str, sha256: str) -> str:
    """Return the key of a file of prompts in the bucket, which its digest names."""
    return f"suites/{name}/{sha256}"


def key_config_map_name(key: ArtifactKey) -> str:
    """Return the name of the ConfigMap with every field of an artifact's key, once for all pods."""
    return f"key-{key.digest}"


def raise_label(variant: Variant) -> str:
    """Return the node label that admits one variant; its value is the experiment's name.

    Whoever raises a node sets one label per variant that may run on it, so a pending pod of any
    other variant or experiment can never take the node.
    """
    return f"{RAISE_LABEL_PREFIX}/{variant.name}"


def stage_job_name(model: ModelConfig) -> str:
    """Return the name of a model's staging CronJob, cut to what a CronJob's name may be."""
    # a digest where no commit is pinned: two long names that are cut alike would both end in `main`
    commit = model.revision.value or hashlib.sha256(model.id.encode()).hexdigest()
    return _join_name_parts("stage", model_slug(model.id), model_slug(commit)[:REVISION_CHARACTERS])


def compile_job_name(key: ArtifactKey) -> str:
    """Return the name of an artifact's compile CronJob: as much as fits, and the key's digest."""
    window = [f"k{key.num_speculative_tokens}"] if key.draft else []
    parts = [model_slug(key.target.partition("@")[0]), key.mode, *window]
    return _join_name_parts("compile", "-".join(parts), key.digest)


def compile_label(experiment: Experiment) -> tuple[str, str]:
    """Return key and value of the node label that admits an experiment's compile jobs.

    It is no variant's raise label, and a server asks for nothing else: a compile job never takes a
    server's node, nor a server that of a compile job. A node that shall do both in turn is labelled
    anew between them.
    """
    return COMPILE_LABEL, experiment.name


def stage_command(environment: str, experiment: str) -> str:
    """Return the command that has the runner stage the missing models of an experiment."""
    return build_tandem_command(f"run {experiment}", environment, "--until", "stage")


def compile_command(environment: str, experiment: str) -> str:
    """Return the command to compile an experiment's missing artifacts; H is for the person."""
    return build_tandem_command(
        f"run {experiment}", environment, "--until", "compile", "--hours", "H"
    )


def _join_name_parts(start: str, middle: str, end: str) -> str:
    middle_characters = CRON_JOB_CHARACTERS - len(start) - len(end) - 2
    return f"{start}-{middle[:middle_characters].strip('-')}-{end}"
