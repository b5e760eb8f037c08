"""Targets of rights: ARNs of one environment, and their conditions.

Invariant: every ARN is literal, and names this environment, or an id that only AWS chooses after a
name or a tag of this environment. `*` stands alone only in the two places that say so, for actions
that take no narrower resource.

Source: Service Authorization Reference, resource types of each service and its condition keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.images import PRIVATE_ECR
from tandem.declarations.project_image import PROJECT_IMAGES
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import POINTER_KEY, heartbeat_key, lease_key
from tandem.guard.observe import CLUSTER_TAG, NODE_GROUP_TAG
from tandem.ops.destroy.stacks import CNI_TAG, DELETION_ORDER, EKS_TAG, IN_TREE_TAG, PERMANENT_KIND
from tandem.ops.guard_config import build_arn, build_bucket_arn, object_prefix, topic_arn

PROOF_NAME_PREFIX = "prove-stop-"  # a proof's schedule begins with it; a lease's with `stop-`
# CDK guide, "Bootstrap template": roles that the CLI assumes to deploy without images of its own
BOOTSTRAP_ROLES = ("deploy-role", "file-publishing-role", "lookup-role")


@dataclass(frozen=True, slots=True)
class PolicyTarget:
    """Resource and Condition of a statement.

    Args:
        arns: empty if the environment declares no such thing: then the right is left out.
    """

    arns: tuple[str, ...]
    condition: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def build_targets(environment: Environment) -> dict[str, PolicyTarget]:
    """Return every target of an environment, by its name in `RIGHTS`."""
    arns = {
        **{name: ["*"] for name in ("everywhere", "the world", "mirrors", "own metrics")},
        **_list_cluster_arns(environment),
        **_list_storage_arns(environment),
        **_list_account_arns(environment),
    }
    conditions = _build_conditions(environment)
    return {name: PolicyTarget(tuple(arns[name]), conditions.get(name, {})) for name in arns}


def _build_conditions(environment: Environment) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the condition of each target that has one."""
    region = environment.region
    cluster = names.cluster_name(environment)
    matches = map(PRIVATE_ECR.match, environment.registry_mirrors.values())
    mirrors = {match["region"] for match in matches if match}
    # EKS puts these on the instances and on the Auto Scaling group of a node group
    node_group_tags = {CLUSTER_TAG: cluster, NODE_GROUP_TAG: names.node_group_name(environment)}
    owner_tags = {
        "accelerators": node_group_tags,
        "Auto Scaling groups": node_group_tags,
        "CNI's interfaces": {CNI_TAG: cluster},
        "EKS's groups": {EKS_TAG: cluster},
        "in-tree groups": {f"{IN_TREE_TAG}{cluster}": "owned"},
    }
    metrics = [names.bench_namespace(environment), names.simulation_namespace(environment)]
    equalities: dict[str, dict[str, Any]] = {
        "everywhere": {"aws:RequestedRegion": region},
        # "the world" has one endpoint for all regions: a request's region means nothing there
        "mirrors": {"aws:RequestedRegion": sorted({region, *mirrors}) if mirrors else region},
        "own metrics": {"cloudwatch:namespace": metrics},
        "topic's key": {
            "kms:ViaService": [f"{service}.{region}.amazonaws.com" for service in ("sns", "sqs")]
        },
        "scheduler role": {"iam:PassedToService": "scheduler.amazonaws.com"},
        "bucket's key": {"kms:ViaService": f"s3.{region}.amazonaws.com"},
        **{
            name: {f"aws:ResourceTag/{key}": tags[key] for key in tags}
            for name, tags in owner_tags.items()
        },
    }
    conditions = {name: {"StringEquals": equality} for name, equality in equalities.items()}
    # the ARN of a key is unknown before its deploy; its alias is known
    conditions["topic's key"]["ForAnyValue:StringEquals"] = {
        "kms:ResourceAliases": f"alias/{cluster}-guard"
    }
    return conditions


def _list_cluster_arns(environment: Environment) -> dict[str, Iterable[str]]:
    """Return the ARNs of cluster, fleet and guard."""

    def arn(service: str, rest: str, region: str | None = None) -> list[str]:
        return [build_arn(environment, service, rest, region=region)]

    cluster = names.cluster_name(environment)
    group = names.node_group_name(environment)
    stop = names.guard_function_name(environment, "stop")
    reap = names.guard_function_name(environment, "reap")
    log_groups = (  # for the runbook
        names.function_log_group_name(environment, "stop"),
        names.function_log_group_name(environment, "reap"),
        names.container_log_group_name(environment, "application"),
    )
    return {
        "cluster": arn("eks", f"cluster/{cluster}"),
        "node group": arn("eks", f"nodegroup/{cluster}/{group}/*"),
        "updates": [
            *arn("eks", f"cluster/{cluster}"),
            *arn("eks", f"nodegroup/{cluster}/{group}/*"),
        ],
        "node groups": arn("eks", f"nodegroup/{cluster}/*/*"),
        "accelerators": arn("ec2", "instance/*"),
        "Auto Scaling groups": arn("autoscaling", "autoScalingGroup:*:autoScalingGroupName/*"),
        "CNI's interfaces": arn("ec2", "network-interface/*"),
        "EKS's groups": arn("ec2", "security-group/*"),
        "in-tree groups": arn("ec2", "security-group/*"),
        "topic": [topic_arn(environment)],
        "topic's key": arn("kms", "key/*"),
        "stop function": arn("lambda", f"function:{stop}"),
        "functions": [*arn("lambda", f"function:{stop}"), *arn("lambda", f"function:{reap}")],
        "logs": [
            text for log_group in log_groups for text in arn("logs", f"log-group:{log_group}:*")
        ],
        "guard's rules": arn("events", f"rule/{names.stack_name(environment, 'Guard')}-*"),
        "dead letters": arn("sqs", names.dead_letter_queue_name(environment)),
        "schedules": arn("scheduler", f"schedule/{names.schedule_group_name(environment)}/*"),
        "proofs": arn(
            "scheduler", f"schedule/{names.schedule_group_name(environment)}/{PROOF_NAME_PREFIX}*"
        ),
        "scheduler role": arn("iam", f"role/{names.scheduler_role_name(environment)}", ""),
        "budgets": arn("budgets", f"budget/{names.budget_name(environment)}", ""),
        "all budgets": arn("budgets", "budget/*", ""),
        "alarms": arn("cloudwatch", f"alarm:{names.composite_alarm_pattern(environment)}"),
        "dashboards": arn("cloudwatch", f"dashboard/{names.dashboard_name(environment, '*')}", ""),
    }


def _list_storage_arns(environment: Environment) -> dict[str, Iterable[str]]:
    """Return the ARNs of the bucket, its contents, and images."""
    prefix = object_prefix(environment)

    def bucket_arns(*keys: str) -> list[str]:
        return [build_bucket_arn(environment, f"/{key}") for key in keys]

    key_arn = environment.artifacts.kms_key_arn
    existing_bucket = environment.artifacts.existing_bucket
    log_bucket = (
        []
        if existing_bucket
        else [build_bucket_arn(environment, bucket=names.log_bucket_name(environment))]
    )
    repositories = [names.repository_name(environment, image.name) for image in PROJECT_IMAGES]
    # an image behind a mirror may be in any repository of the account
    if environment.registry_mirrors:
        repositories = ["*"]
    guard_keys = (FENCE_KEY, POINTER_KEY, lease_key("*"), heartbeat_key("*"))
    # as in tandem/run/run_keys.py
    run_keys = ("requests/*", "stage-requests/*", "runs/*", "runner.json")
    journal_keys = (
        "requests/*.answer.json",
        "stage-requests/*.answer.json",
        "runs/*",
        "runner.json",
    )
    return {
        "bucket": [build_bucket_arn(environment)],
        "bucket's key": [key_arn] if key_arn else [],
        "keys as they stand": list(
            dict.fromkeys(key for key in (key_arn, environment.log_kms_key_arn) if key)
        ),
        "buckets": [build_bucket_arn(environment), *log_bucket],
        "guard's objects": bucket_arns(*(f"{prefix}{key}" for key in guard_keys)),
        "fence": bucket_arns(f"{prefix}{FENCE_KEY}"),
        "leases": bucket_arns(f"{prefix}{POINTER_KEY}", f"{prefix}{lease_key('*')}"),
        "models and artifacts": bucket_arns("models/*", "artifacts/*"),
        "task sets": bucket_arns("tasks/*"),
        "runs": bucket_arns(*(f"{prefix}{key}" for key in run_keys)),
        # IAM replaces this variable by the caller's id (IAM user guide, "IAM policy elements:
        # Variables and tags"), so the key of a request says who wrote it
        "own requests": bucket_arns(f"{prefix}requests/${{aws:userid}}/*"),
        "own stage requests": bucket_arns(f"{prefix}stage-requests/${{aws:userid}}/*"),
        "journal": bucket_arns(*(f"{prefix}{key}" for key in journal_keys)),
        **{name: bucket_arns(f"{name}/*") for name in ("artifacts", "models", "results")},
        "repositories": [build_arn(environment, "ecr", "repository/*")],
        "images": sorted(
            build_arn(environment, "ecr", f"repository/{name}") for name in repositories
        ),
    }


def _list_account_arns(environment: Environment) -> dict[str, Iterable[str]]:
    """Return the ARNs of stacks, and of what the account shares among environments."""
    qualifier = environment.bootstrap.qualifier
    name = environment.name
    secret = environment.hub.token_secret
    # one pattern for all builds; an environment's name has no capital, so it is no other
    # environment's
    shared_kinds = [kind for kind in DELETION_ORDER if not kind.startswith(names.IMAGE_KIND)]
    stacks = [
        build_arn(environment, "cloudformation", f"stack/{names.stack_name(environment, kind)}/*")
        for kind in (*shared_kinds, f"{names.IMAGE_KIND}*", PERMANENT_KIND)
    ]
    # AWS's own, so of no account
    ssm_arn = f"arn:{names.aws_partition(environment.region)}:ssm:{environment.region}:"
    node_image_arn = f"{ssm_arn}:parameter{names.node_image_parameter(environment)}"
    bootstrap_end = f"{environment.account}-{environment.region}"
    return {
        "principals": sorted({arn for arn in list_principals(environment) if ":role/" in arn}),
        "users": sorted({arn for arn in list_principals(environment) if ":user/" in arn}),
        "boundary": (
            [boundary_arn(environment)] if environment.bootstrap.permissions_boundary else []
        ),
        # Secrets Manager appends six random characters to a name
        "secret": (
            [build_arn(environment, "secretsmanager", f"secret:{secret}-??????")] if secret else []
        ),
        "bootstrap version": [
            build_arn(environment, "ssm", f"parameter{version_parameter(environment)}")
        ],
        "node image parameter": [node_image_arn],
        "stacks": stacks,
        "going stacks": stacks[:-1],
        "all stacks": [build_arn(environment, "cloudformation", "stack/*")],
        "roles": [
            build_arn(environment, "iam", f"role/{prefix}*", region="")
            for prefix in (f"{name}-", f"tandem-{name}")
        ],
        "keys": [build_arn(environment, "kms", "key/*")],
        "bootstrap roles": [
            build_arn(environment, "iam", f"role/cdk-{qualifier}-{role}-{bootstrap_end}", region="")
            for role in BOOTSTRAP_ROLES
        ],
    }


def list_principals(environment: Environment) -> tuple[str, ...]:
    """Return the ARNs of `cluster.access`."""
    access = environment.cluster.access
    return (*access.admin, *access.operator, *access.engineer, *access.viewer)


def version_parameter(environment: Environment) -> str:
    """Return the SSM parameter of a bootstrap's version (CDK guide, "Bootstrap template")."""
    return f"/cdk-bootstrap/{environment.bootstrap.qualifier}/version"


def boundary_arn(environment: Environment) -> str:
    """Return the ARN of the permissions boundary's policy."""
    return build_arn(
        environment, "iam", f"policy/{environment.bootstrap.permissions_boundary}", region=""
    )
