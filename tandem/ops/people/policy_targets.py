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
from tandem.declarations.arns import build_arn, build_bucket_arn
from tandem.declarations.environment import Environment
from tandem.declarations.images import PRIVATE_ECR
from tandem.declarations.project_image import PROJECT_IMAGES
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import POINTER_KEY, heartbeat_key, lease_key
from tandem.guard.observe import CLUSTER_TAG, NODE_GROUP_TAG
from tandem.ops.destroy.stacks import CNI_TAG, DELETION_ORDER, EKS_TAG, IN_TREE_TAG, PERMANENT_KIND
from tandem.ops.guard_config import object_prefix

PROOF_NAME_PREFIX = "prove-stop-"  # a proof's schedule begins with it; a lease's with `stop-`
# CDK guide, "Bootstrap template": roles that the CLI assumes to deploy without images of its own
BOOTSTRAP_ROLES = ("deploy-role", "file-publishing-role", "lookup-role")


@dataclass(frozen=True)
class PolicyTarget:
    """Resource and Condition of a statement.

    Args:
        arns: empty if the environment declares no such thing: then the right is left out.
    """

    arns: tuple[str, ...]
    condition: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


# service, region and resource of the ARNs in the environment's account
_ARNS = {
    "cluster": ["eks:{region}:cluster/{cluster}"],
    "node group": ["eks:{region}:nodegroup/{cluster}/{node_group}/*"],
    "updates": [
        "eks:{region}:cluster/{cluster}",
        "eks:{region}:nodegroup/{cluster}/{node_group}/*",
    ],
    "node groups": ["eks:{region}:nodegroup/{cluster}/*/*"],
    "accelerators": ["ec2:{region}:instance/*"],
    "Auto Scaling groups": ["autoscaling:{region}:autoScalingGroup:*:autoScalingGroupName/*"],
    "CNI's interfaces": ["ec2:{region}:network-interface/*"],
    "EKS's groups": ["ec2:{region}:security-group/*"],
    "in-tree groups": ["ec2:{region}:security-group/*"],
    "topic": ["sns:{region}:{topic}"],
    "topic's key": ["kms:{region}:key/*"],
    "keys": ["kms:{region}:key/*"],
    "stop function": ["lambda:{region}:function:{stop}"],
    "functions": ["lambda:{region}:function:{stop}", "lambda:{region}:function:{reap}"],
    "logs": [  # for the runbook
        "logs:{region}:log-group:{stop_logs}:*",
        "logs:{region}:log-group:{reap_logs}:*",
        "logs:{region}:log-group:{pod_logs}:*",
    ],
    "guard's rules": ["events:{region}:rule/{guard}-*"],
    "dead letters": ["sqs:{region}:{queue}"],
    "schedules": ["scheduler:{region}:schedule/{schedules}/*"],
    "proofs": [f"scheduler:{{region}}:schedule/{{schedules}}/{PROOF_NAME_PREFIX}*"],
    "scheduler role": ["iam::role/{scheduler_role}"],
    "roles": ["iam::role/{name}-*", "iam::role/tandem-{name}*"],
    "bootstrap roles": [
        f"iam::role/cdk-{{qualifier}}-{role}-{{account}}-{{region}}" for role in BOOTSTRAP_ROLES
    ],
    "bootstrap version": ["ssm:{region}:parameter{bootstrap_version}"],
    "budgets": ["budgets::budget/{budget}"],
    "all budgets": ["budgets::budget/*"],
    "alarms": ["cloudwatch:{region}:alarm:{alarms}"],
    "dashboards": ["cloudwatch::dashboard/{dashboards}"],
    "repositories": ["ecr:{region}:repository/*"],
    "all stacks": ["cloudformation:{region}:stack/*"],
}
# keys behind the environment's prefix in its bucket; those of runs as in tandem/run/run_keys.py
_OWN_KEYS = {
    "guard's objects": [FENCE_KEY, POINTER_KEY, lease_key("*"), heartbeat_key("*")],
    "fence": [FENCE_KEY],
    "leases": [POINTER_KEY, lease_key("*")],
    "runs": ["requests/*", "stage-requests/*", "runs/*", "runner.json"],
    # IAM replaces this variable by the caller's id (IAM user guide, "IAM policy elements:
    # Variables and tags"), so the key of a request says who wrote it
    "own requests": ["requests/${aws:userid}/*"],
    "own stage requests": ["stage-requests/${aws:userid}/*"],
    "journal": ["requests/*.answer.json", "stage-requests/*.answer.json", "runs/*", "runner.json"],
}
# keys that environments of one bucket share
_SHARED_KEYS = {
    "models and artifacts": ["models/*", "artifacts/*"],
    "models": ["models/*"],
    "artifacts": ["artifacts/*"],
    "results": ["results/*"],
    "task sets": ["tasks/*"],
    "prompts": ["suites/*"],
}
_BARE_WILDCARDS = ("everywhere", "the world", "mirrors", "own metrics")


def build_targets(environment: Environment) -> dict[str, PolicyTarget]:
    """Return every target of an environment, by its name in `RIGHTS`."""
    arns = {
        **dict.fromkeys(_BARE_WILDCARDS, ("*",)),
        **_fill_arns(environment),
        **_list_object_arns(environment),
        **_list_declared_arns(environment),
        **_list_stack_arns(environment),
    }
    conditions = _build_conditions(environment)
    return {name: PolicyTarget(tuple(arns[name]), conditions.get(name, {})) for name in arns}


def _fill_arns(environment: Environment) -> dict[str, list[str]]:
    """Return the ARNs whose resources have names of the environment's."""
    resource_names = _name_resources(environment)
    arns: dict[str, list[str]] = {}
    for target, patterns in _ARNS.items():
        arns[target] = []
        for pattern in patterns:
            service, region, rest = pattern.format_map(resource_names).split(":", 2)
            arns[target].append(build_arn(environment, service, rest, region=region))
    return arns


def _name_resources(environment: Environment) -> dict[str, str]:
    """Return the names that the patterns of ARNs have."""
    return {
        "name": environment.name,
        "region": environment.region,
        "account": environment.account,
        "qualifier": environment.bootstrap.qualifier,
        "bootstrap_version": version_parameter(environment),
        "cluster": names.cluster_name(environment),
        "node_group": names.node_group_name(environment),
        "topic": names.topic_name(environment),
        "stop": names.guard_function_name(environment, "stop"),
        "reap": names.guard_function_name(environment, "reap"),
        "stop_logs": names.function_log_group_name(environment, "stop"),
        "reap_logs": names.function_log_group_name(environment, "reap"),
        "pod_logs": names.container_log_group_name(environment, "application"),
        "guard": names.stack_name(environment, "Guard"),
        "queue": names.dead_letter_queue_name(environment),
        "schedules": names.schedule_group_name(environment),
        "scheduler_role": names.scheduler_role_name(environment),
        "budget": names.budget_name(environment),
        "alarms": names.composite_alarm_pattern(environment),
        "dashboards": names.dashboard_name(environment, "*"),
    }


def _list_object_arns(environment: Environment) -> dict[str, list[str]]:
    """Return the ARNs of the bucket's objects."""
    prefix = object_prefix(environment)
    arns = {}
    for name, keys in _OWN_KEYS.items():
        arns[name] = [build_bucket_arn(environment, f"/{prefix}{key}") for key in keys]
    for name, keys in _SHARED_KEYS.items():
        arns[name] = [build_bucket_arn(environment, f"/{key}") for key in keys]
    return arns


def _list_declared_arns(environment: Environment) -> dict[str, Iterable[str]]:
    """Return the ARNs of what an environment declares, or may do without."""
    bucket_arn = build_bucket_arn(environment)
    buckets = [bucket_arn]
    if not environment.artifacts.existing_bucket:
        log_bucket = names.log_bucket_name(environment)
        buckets.append(build_bucket_arn(environment, bucket=log_bucket))
    # an image behind a mirror may be in any repository of the account
    repositories = ["*"]
    if not environment.registry_mirrors:
        repositories = [names.repository_name(environment, image.name) for image in PROJECT_IMAGES]
    bucket_key = environment.artifacts.kms_key_arn
    keys = dict.fromkeys(filter(None, (bucket_key, environment.log_kms_key_arn)))
    principals = sorted(set(list_principals(environment)))
    secret = environment.hub.token_secret
    # Secrets Manager appends six random characters to a name
    secrets = [build_arn(environment, "secretsmanager", f"secret:{secret}-??????")]
    # AWS's own, so of no account
    ssm_arn = f"arn:{names.aws_partition(environment.region)}:ssm:{environment.region}:"
    return {
        "bucket": [bucket_arn],
        "buckets": buckets,
        "bucket's key": [bucket_key] if bucket_key else [],
        "keys as they stand": keys,
        "images": sorted(
            build_arn(environment, "ecr", f"repository/{name}") for name in repositories
        ),
        "principals": [arn for arn in principals if ":role/" in arn],
        "users": [arn for arn in principals if ":user/" in arn],
        "boundary": (
            [boundary_arn(environment)] if environment.bootstrap.permissions_boundary else []
        ),
        "secret": secrets if secret else [],
        "node image parameter": [f"{ssm_arn}:parameter{names.node_image_parameter(environment)}"],
    }


def _list_stack_arns(environment: Environment) -> dict[str, list[str]]:
    """Return the ARNs of the stacks, the permanent one last."""
    # one pattern for all builds; an environment's name has no capital, so it is no other
    # environment's
    kinds = [kind for kind in DELETION_ORDER if not kind.startswith(names.IMAGE_KIND)]
    stacks = [
        build_arn(environment, "cloudformation", f"stack/{names.stack_name(environment, kind)}/*")
        for kind in (*kinds, f"{names.IMAGE_KIND}*", PERMANENT_KIND)
    ]
    return {"stacks": stacks, "going stacks": stacks[:-1]}


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
    equalities: dict[str, dict[str, Any]] = {
        "everywhere": {"aws:RequestedRegion": region},
        # "the world" has one endpoint for all regions: a request's region means nothing there
        "mirrors": {"aws:RequestedRegion": sorted({region, *mirrors}) if mirrors else region},
        "own metrics": {
            "cloudwatch:namespace": [
                names.bench_namespace(environment),
                names.simulation_namespace(environment),
            ]
        },
        "topic's key": {
            "kms:ViaService": [f"sns.{region}.amazonaws.com", f"sqs.{region}.amazonaws.com"]
        },
        "scheduler role": {"iam:PassedToService": "scheduler.amazonaws.com"},
        "bucket's key": {"kms:ViaService": f"s3.{region}.amazonaws.com"},
    }
    for name, tags in owner_tags.items():
        equalities[name] = {f"aws:ResourceTag/{key}": value for key, value in tags.items()}

    conditions = {name: {"StringEquals": equality} for name, equality in equalities.items()}
    # the ARN of a key is unknown before its deploy; its alias is known
    conditions["topic's key"]["ForAnyValue:StringEquals"] = {
        "kms:ResourceAliases": f"alias/{cluster}-guard"
    }
    return conditions


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
