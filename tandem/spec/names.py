"""Every physical name, computed from the environment and the experiment, so that manifests need no look-up.

Invariant: only names that a manifest or an operator must know are fixed here; all others are generated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tandem.spec.artifact_key import ArtifactKey
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment, Variant

SERVE_ACCOUNT = "tandem-serve"  # reads models and artifacts
STAGE_ACCOUNT = "tandem-stage"  # writes models
COMPILE_ACCOUNT = "tandem-compile"  # reads models, writes artifacts
CLAIM_TEMPLATE = "neuron-devices"
SERVER_PORT = 8000
RAISE_LABEL_PREFIX = "raise.tandem"
MODELS_MOUNT = "/models"


def cluster(environment: Environment) -> str:
    """Return the EKS cluster's name."""
    return f"tandem-{environment.name}"


def bucket(environment: Environment) -> str:
    """Return the bucket of models and artifacts: the operator's own, or a name unique by account."""
    return environment.artifacts.existing_bucket or f"tandem-{environment.name}-{environment.account}"


def log_bucket(environment: Environment) -> str:
    """Return the bucket that receives access logs."""
    return f"tandem-{environment.name}-{environment.account}-logs"


def node_group(environment: Environment) -> str:
    """Return the accelerator node group's name."""
    return f"{environment.name}-trn2"


def repository(environment: Environment) -> str:
    """Return the ECR repository of the tools image; the CodeBuild project that fills it has the same name."""
    return f"tandem-{environment.name}-tools"


def stack(environment: Environment, kind: str) -> str:
    """Return the CloudFormation name of one stack, `<environment>-<kind>`."""
    return f"{environment.name}-{kind}"


def stack_kinds(environment: Environment) -> tuple[str, ...]:
    """Return the stacks an environment has, in the order of their deploy: nothing is made that exists elsewhere."""
    has = {
        "Network": environment.network.kind == "new",
        "Artifacts": environment.artifacts.existing_bucket is None,
        "Image": True,
        "Cluster": True,
        "Fleet": not environment.capacity.awaits_reservation,
        "Workloads": environment.delivery.kind == "cdk",
    }
    return tuple(kind for kind, present in has.items() if present)


def namespace(experiment: Experiment) -> str:
    """Return the experiment's own Kubernetes namespace."""
    return f"tandem-{experiment.name}"


def models_volume(experiment: Experiment) -> str:
    """Return the name of the experiment's volume of models; it is the volume handle too."""
    return f"{experiment.name}-models"


def artifact_volume(experiment: Experiment, key: ArtifactKey) -> str:
    """Return the name of the volume of one artifact.

    The key's digest is part of it because a volume's source can never be changed after its creation.
    """
    return f"{experiment.name}-{key.digest}"


def raise_label(variant: Variant) -> str:
    """Return the node label that admits one variant; its value is the experiment's name.

    Whoever raises a node sets one label per variant that may run on it, so a pending pod of any other
    variant or experiment can never take the node.
    """
    return f"{RAISE_LABEL_PREFIX}/{variant.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedName:
    """A computed name held against the limit of its resource.

    Args:
        what: the resource.
        value: the name.
        limit: most characters, from the service's API reference.
        path: the declared key the name grows with.
    """

    what: str
    value: str
    limit: int
    path: str


def environment_names(environment: Environment) -> Iterator[LimitedName]:
    """Yield every name of an environment with its limit (S3 63, EKS cluster 100, node group 63, CodeBuild 255)."""
    yield LimitedName(what="S3 bucket", value=bucket(environment), limit=63, path="name")
    if environment.artifacts.existing_bucket is None:
        yield LimitedName(what="S3 log bucket", value=log_bucket(environment), limit=63, path="name")
    yield LimitedName(what="EKS cluster", value=cluster(environment), limit=100, path="name")
    yield LimitedName(what="EKS node group", value=node_group(environment), limit=63, path="name")
    yield LimitedName(what="CodeBuild project", value=repository(environment), limit=255, path="name")


def experiment_names(experiment: Experiment) -> Iterator[LimitedName]:
    """Yield every name of an experiment with its limit.

    A label is 63 characters; a Deployment's pods append 17 to its name; a CronJob has 52
    (kubernetes.io/docs/concepts/overview/working-with-objects/names, .../workloads/controllers/cron-jobs).
    """
    yield LimitedName(what="Kubernetes namespace", value=namespace(experiment), limit=63, path="name")
    yield LimitedName(what="volume", value=f"{experiment.name}-{'0' * 12}", limit=63, path="name")
    for index, variant in enumerate(experiment.all_variants()):
        path = f"variants[{index}].name" if index < len(experiment.variants) else "sweep.prefix"
        yield LimitedName(what="Deployment (its pods add 17)", value=variant.name, limit=46, path=path)
