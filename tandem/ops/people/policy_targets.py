"""On what a right is given: ARNs of one environment, and the conditions beside them.

Invariant: every ARN is literal, and names this environment, or an id that AWS alone chooses behind a name or a tag of
this environment. `*` stands alone only in the two places that say so, for actions that take no narrower resource.

Source: Service Authorization Reference, resource types of each service and its condition keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import POINTER_KEY, heartbeat_key, lease_key
from tandem.guard.observe import CLUSTER_TAG, NODE_GROUP_TAG
from tandem.ops.destroy.stacks import DELETION_ORDER, PERMANENT_KIND
from tandem.ops.doctor.call_policy import list_action_arns
from tandem.ops.guard_config import aws_partition, former_object_prefix, object_prefix
from tandem.spec import names
from tandem.spec.environment import Environment

SCHEDULER = "scheduler.amazonaws.com"
# CDK guide, "Bootstrap template": what the CLI takes on to deploy without images of its own
BOOTSTRAP_ROLES = ("deploy-role", "file-publishing-role", "lookup-role")
CNI_TAG, IN_TREE_TAG, EKS_TAG = "cluster.k8s.amazonaws.com/name", "kubernetes.io/cluster/", "aws:eks:cluster-name"
_ECR_HOST = re.compile(r"^\d{12}\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com")

TargetName = Literal[
    "everywhere", "the world", "mirrors", "own metrics", "cluster", "node group", "node groups", "updates",
    "accelerators", "Auto Scaling groups", "CNI's interfaces", "EKS's groups", "in-tree groups", "topic",
    "topic's key", "stop function",
    "functions", "logs", "guard's rules", "dead letters", "schedules", "scheduler role", "budgets", "all budgets",
    "alarms", "dashboards", "bucket", "bucket's key", "bucket's key as it stands", "buckets", "guard's objects",
    "fence", "leases", "models and artifacts",
    "artifacts", "models", "results", "images", "repositories", "principals", "users", "boundary", "secret",
    "bootstrap version", "stacks", "going stacks", "all stacks", "roles", "keys", "bootstrap roles",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTarget:
    """What a statement's Resource and Condition say.

    Args:
        arns: empty where the environment declares no such thing: then the right is left out.
    """

    arns: tuple[str, ...]
    condition: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def build_targets(environment: Environment) -> dict[TargetName, PolicyTarget]:
    """Return every place of an environment."""
    return {
        **_build_wildcard_targets(environment),
        **_build_eks_targets(environment),
        **_build_guard_targets(environment),
        **_build_storage_targets(environment),
        **_build_account_targets(environment),
    }


def build_arn(environment: Environment, service: str, rest: str, *, region: str | None = None) -> str:
    """Return the ARN of a resource of the environment's account, by default in its region; "" names none."""
    arn_region = environment.region if region is None else region
    return f"arn:{aws_partition(environment.region)}:{service}:{arn_region}:{environment.account}:{rest}"


def _build_wildcard_targets(environment: Environment) -> dict[TargetName, PolicyTarget]:
    own_region, region_condition = environment.region, {"StringEquals": {"aws:RequestedRegion": environment.region}}
    mirror_regions = {
        match[1] for mirror in environment.registry_mirrors.values() if (match := _ECR_HOST.match(mirror))
    }
    mirror_condition = (
        {"StringEquals": {"aws:RequestedRegion": sorted({own_region, *mirror_regions})}}
        if mirror_regions
        else region_condition
    )
    return {
        "everywhere": PolicyTarget(arns=("*",), condition=region_condition),
        # one endpoint for all regions: the region of a request says nothing of them
        "the world": PolicyTarget(arns=("*",)),
        "mirrors": PolicyTarget(arns=("*",), condition=mirror_condition),
        "own metrics": PolicyTarget(arns=("*",), condition={
            "StringEquals": {"cloudwatch:namespace": [
                names.bench_namespace(environment), names.simulation_namespace(environment),
            ]},
        }),
    }  # fmt: skip


def _build_eks_targets(environment: Environment) -> dict[TargetName, PolicyTarget]:
    cluster, group = names.cluster_name(environment), names.node_group_name(environment)

    # EKS puts these on the instances and on the Auto Scaling group of a node group
    tag_condition = {"StringEquals": {
        f"aws:ResourceTag/{CLUSTER_TAG}": cluster, f"aws:ResourceTag/{NODE_GROUP_TAG}": group,
    }}  # fmt: skip

    def build_ec2_target(resource: str, tag: str, value: str) -> PolicyTarget:
        condition = {"StringEquals": {f"aws:ResourceTag/{tag}": value}}
        return PolicyTarget(arns=(build_arn(environment, "ec2", f"{resource}/*"),), condition=condition)

    return {
        "cluster": PolicyTarget(arns=(build_arn(environment, "eks", f"cluster/{cluster}"),)),
        "node group": PolicyTarget(arns=(build_arn(environment, "eks", f"nodegroup/{cluster}/{group}/*"),)),
        "updates": PolicyTarget(arns=list_action_arns(environment, "eks:ListUpdates")),
        "node groups": PolicyTarget(arns=(build_arn(environment, "eks", f"nodegroup/{cluster}/*/*"),)),
        "accelerators": PolicyTarget(arns=(build_arn(environment, "ec2", "instance/*"),), condition=tag_condition),
        "Auto Scaling groups": PolicyTarget(
            arns=(build_arn(environment, "autoscaling", "autoScalingGroup:*:autoScalingGroupName/*"),),
            condition=tag_condition,
        ),
        "CNI's interfaces": build_ec2_target("network-interface", CNI_TAG, cluster),
        "EKS's groups": build_ec2_target("security-group", EKS_TAG, cluster),
        "in-tree groups": build_ec2_target("security-group", f"{IN_TREE_TAG}{cluster}", "owned"),
    }


def _build_guard_targets(environment: Environment) -> dict[TargetName, PolicyTarget]:
    function_names = {function: names.guard_function_name(environment, function) for function in _FUNCTIONS}
    # no ARN of a key is known before its deploy; its alias is
    service_hosts = [f"{service}.{environment.region}.amazonaws.com" for service in ("sns", "sqs")]
    key_condition: dict[str, dict[str, Any]] = {
        "StringEquals": {"kms:ViaService": service_hosts},
        "ForAnyValue:StringEquals": {"kms:ResourceAliases": f"alias/{names.cluster_name(environment)}-guard"},
    }
    pass_role_condition = {"StringEquals": {"iam:PassedToService": SCHEDULER}}
    role_arn = build_arn(environment, "iam", f"role/{names.scheduler_role_name(environment)}", region="")
    return {
        "topic": PolicyTarget(arns=(build_arn(environment, "sns", names.topic_name(environment)),)),
        "topic's key": PolicyTarget(arns=(build_arn(environment, "kms", "key/*"),), condition=key_condition),
        "stop function": PolicyTarget(arns=(build_arn(environment, "lambda", f"function:{function_names['stop']}"),)),
        "functions": PolicyTarget(
            arns=tuple(build_arn(environment, "lambda", f"function:{name}") for name in function_names.values())
        ),
        "logs": PolicyTarget(
            arns=tuple(
                build_arn(environment, "logs", f"log-group:{group}:*") for group in _list_log_groups(environment)
            )
        ),
        "guard's rules": PolicyTarget(
            arns=(build_arn(environment, "events", f"rule/{names.stack_name(environment, 'Guard')}-*"),)
        ),
        "dead letters": PolicyTarget(arns=(build_arn(environment, "sqs", names.dead_letter_queue_name(environment)),)),
        "schedules": PolicyTarget(
            arns=(build_arn(environment, "scheduler", f"schedule/{names.schedule_group_name(environment)}/*"),)
        ),
        "scheduler role": PolicyTarget(arns=(role_arn,), condition=pass_role_condition),
        "budgets": PolicyTarget(
            arns=(build_arn(environment, "budgets", f"budget/{names.budget_name(environment)}", region=""),)
        ),
        "all budgets": PolicyTarget(arns=(build_arn(environment, "budgets", "budget/*", region=""),)),
        "alarms": PolicyTarget(
            arns=(build_arn(environment, "cloudwatch", f"alarm:{names.composite_alarm_pattern(environment)}"),)
        ),
        "dashboards": PolicyTarget(
            arns=(
                build_arn(environment, "cloudwatch", f"dashboard/{names.dashboard_name(environment, '*')}", region=""),
            )
        ),
    }


_FUNCTIONS: tuple[Literal["stop", "reap"], ...] = ("stop", "reap")


def _list_log_groups(environment: Environment) -> tuple[str, ...]:
    """Return the log groups from which the runbook reads."""
    function_log_groups = (names.function_log_group_name(environment, function) for function in _FUNCTIONS)
    return (*function_log_groups, names.container_log_group_name(environment, "application"))


def _build_storage_targets(environment: Environment) -> dict[TargetName, PolicyTarget]:
    bucket_name = names.bucket_name(environment)
    bucket_arn = f"arn:{aws_partition(environment.region)}:s3:::{bucket_name}"

    def build_object_target(*keys: str, prefix: str = "") -> PolicyTarget:
        return PolicyTarget(arns=tuple(f"{bucket_arn}/{prefix}{key}" for key in keys))

    former_prefix = former_object_prefix(environment)  # empty where fence and leases have always been where they are
    prefixes = (object_prefix(environment), former_prefix) if former_prefix else (object_prefix(environment),)

    def build_guard_target(*keys: str) -> PolicyTarget:
        return PolicyTarget(
            arns=tuple(arn for prefix in prefixes for arn in build_object_target(*keys, prefix=prefix).arns)
        )

    # what an earlier release wrote is ended where it stands; pointer and lease in one ARN, for the length of the policy
    former_leases = build_object_target(f"*{POINTER_KEY}", prefix=former_prefix).arns if former_prefix else ()
    return {
        "bucket": PolicyTarget(arns=(bucket_arn,)),
        "bucket's key": PolicyTarget(
            arns=(environment.artifacts.kms_key_arn,) if environment.artifacts.kms_key_arn else (),
            condition={"StringEquals": {"kms:ViaService": f"s3.{environment.region}.amazonaws.com"}},
        ),
        "bucket's key as it stands": PolicyTarget(arns=list_action_arns(environment, "kms:DescribeKey")),
        "buckets": PolicyTarget(arns=list_action_arns(environment, "s3:ListBucket")),
        "guard's objects": build_guard_target(FENCE_KEY, POINTER_KEY, lease_key("*"), heartbeat_key("*")),
        "fence": build_guard_target(FENCE_KEY),
        "leases": PolicyTarget(
            arns=(*build_object_target(POINTER_KEY, lease_key("*"), prefix=prefixes[0]).arns, *former_leases)
        ),
        "models and artifacts": build_object_target("models/*", "artifacts/*"),
        "artifacts": build_object_target("artifacts/*"),
        "models": build_object_target("models/*"),
        "results": build_object_target("results/*"),
        "repositories": PolicyTarget(arns=(build_arn(environment, "ecr", "repository/*"),)),
        "images": PolicyTarget(arns=list_action_arns(environment, "ecr:DescribeImages")),
    }


def _build_account_targets(environment: Environment) -> dict[TargetName, PolicyTarget]:
    partition, region, account = aws_partition(environment.region), environment.region, environment.account
    qualifier = environment.bootstrap.qualifier

    def build_declared_target(action: str) -> PolicyTarget:
        arns = list_action_arns(environment, action)
        return PolicyTarget(arns=() if arns == ("*",) else arns)

    def build_stack_target(*kinds: str) -> PolicyTarget:
        return PolicyTarget(arns=tuple(
            build_arn(environment, "cloudformation", f"stack/{names.stack_name(environment, kind)}/*") for kind in kinds
        ))  # fmt: skip

    return {
        "principals": build_declared_target("iam:GetRole"),
        "users": build_declared_target("iam:GetUser"),
        "boundary": build_declared_target("iam:GetPolicy"),
        "secret": build_declared_target("secretsmanager:DescribeSecret"),
        "bootstrap version": build_declared_target("ssm:GetParameter"),
        "stacks": build_stack_target(*DELETION_ORDER, PERMANENT_KIND),
        "going stacks": build_stack_target(*DELETION_ORDER),
        "all stacks": PolicyTarget(arns=(build_arn(environment, "cloudformation", "stack/*"),)),
        "roles": PolicyTarget(arns=tuple(
            build_arn(environment, "iam", f"role/{name_prefix}*", region="")
            for name_prefix in (f"{environment.name}-", f"tandem-{environment.name}")
        )),
        "keys": PolicyTarget(arns=(build_arn(environment, "kms", "key/*"),)),
        "bootstrap roles": PolicyTarget(arns=tuple(
            f"arn:{partition}:iam::{account}:role/cdk-{qualifier}-{role}-{account}-{region}" for role in BOOTSTRAP_ROLES
        )),
    }  # fmt: skip
