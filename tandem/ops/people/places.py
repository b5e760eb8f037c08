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

from tandem.ops.destroy.stacks import ORDER, STAYS
from tandem.ops.doctor.calls import resources
from tandem.ops.guarded import former_prefix_of, partition_of, prefix_of
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.stop import CLUSTER_TAG, FENCE_KEY, NODE_GROUP_TAG, POINTER_KEY, heartbeat_key, lease_key

SCHEDULER = "scheduler.amazonaws.com"
# CDK guide, "Bootstrap template": what the CLI takes on to deploy without images of its own
BOOTSTRAP_ROLES = ("deploy-role", "file-publishing-role", "lookup-role")
CNI_TAG, IN_TREE_TAG, EKS_TAG = "cluster.k8s.amazonaws.com/name", "kubernetes.io/cluster/", "aws:eks:cluster-name"
_ECR = re.compile(r"^\d{12}\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com")

Where = Literal[
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
class Place:
    """What a statement's Resource and Condition say.

    Args:
        arns: empty where the environment declares no such thing: then the right is left out.
    """

    arns: tuple[str, ...]
    condition: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def places(environment: Environment) -> dict[Where, Place]:
    """Return every place of an environment."""
    return {
        **_wide(environment),
        **_eks(environment),
        **_guard(environment),
        **_kept(environment),
        **_account(environment),
    }


def arn(environment: Environment, service: str, rest: str, *, region: str | None = None) -> str:
    """Return the ARN of a resource of the environment's account, by default in its region; "" names none."""
    here = environment.region if region is None else region
    return f"arn:{partition_of(environment.region)}:{service}:{here}:{environment.account}:{rest}"


def _wide(environment: Environment) -> dict[Where, Place]:
    here, tagged = environment.region, {"StringEquals": {"aws:RequestedRegion": environment.region}}
    mirrored = {match[1] for mirror in environment.registry_mirrors.values() if (match := _ECR.match(mirror))}
    regions = {"StringEquals": {"aws:RequestedRegion": sorted({here, *mirrored})}} if mirrored else tagged
    return {
        "everywhere": Place(arns=("*",), condition=tagged),
        # one endpoint for all regions: the region of a request says nothing of them
        "the world": Place(arns=("*",)),
        "mirrors": Place(arns=("*",), condition=regions),
        "own metrics": Place(arns=("*",), condition={
            "StringEquals": {"cloudwatch:namespace": [
                names.bench_namespace(environment), names.simulated_namespace(environment),
            ]},
        }),
    }  # fmt: skip


def _eks(environment: Environment) -> dict[Where, Place]:
    cluster, group = names.cluster(environment), names.node_group(environment)

    # EKS puts these on the instances and on the Auto Scaling group of a node group
    tagged = {"StringEquals": {
        f"aws:ResourceTag/{CLUSTER_TAG}": cluster, f"aws:ResourceTag/{NODE_GROUP_TAG}": group,
    }}  # fmt: skip

    def of(resource: str, tag: str, value: str) -> Place:
        condition = {"StringEquals": {f"aws:ResourceTag/{tag}": value}}
        return Place(arns=(arn(environment, "ec2", f"{resource}/*"),), condition=condition)

    return {
        "cluster": Place(arns=(arn(environment, "eks", f"cluster/{cluster}"),)),
        "node group": Place(arns=(arn(environment, "eks", f"nodegroup/{cluster}/{group}/*"),)),
        "updates": Place(arns=resources(environment, "eks:ListUpdates")),
        "node groups": Place(arns=(arn(environment, "eks", f"nodegroup/{cluster}/*/*"),)),
        "accelerators": Place(arns=(arn(environment, "ec2", "instance/*"),), condition=tagged),
        "Auto Scaling groups": Place(
            arns=(arn(environment, "autoscaling", "autoScalingGroup:*:autoScalingGroupName/*"),), condition=tagged
        ),
        "CNI's interfaces": of("network-interface", CNI_TAG, cluster),
        "EKS's groups": of("security-group", EKS_TAG, cluster),
        "in-tree groups": of("security-group", f"{IN_TREE_TAG}{cluster}", "owned"),
    }  # fmt: skip


def _guard(environment: Environment) -> dict[Where, Place]:
    functions = {what: names.guard_function(environment, what) for what in _FUNCTIONS}
    # no ARN of a key is known before its deploy; its alias is
    via = [f"{service}.{environment.region}.amazonaws.com" for service in ("sns", "sqs")]
    key: dict[str, dict[str, Any]] = {
        "StringEquals": {"kms:ViaService": via},
        "ForAnyValue:StringEquals": {"kms:ResourceAliases": f"alias/{names.cluster(environment)}-guard"},
    }
    passed = {"StringEquals": {"iam:PassedToService": SCHEDULER}}
    role = arn(environment, "iam", f"role/{names.scheduler_role(environment)}", region="")
    return {
        "topic": Place(arns=(arn(environment, "sns", names.topic(environment)),)),
        "topic's key": Place(arns=(arn(environment, "kms", "key/*"),), condition=key),
        "stop function": Place(arns=(arn(environment, "lambda", f"function:{functions['stop']}"),)),
        "functions": Place(arns=tuple(arn(environment, "lambda", f"function:{name}") for name in functions.values())),
        "logs": Place(arns=tuple(arn(environment, "logs", f"log-group:{group}:*") for group in _logs(environment))),
        "guard's rules": Place(arns=(arn(environment, "events", f"rule/{names.stack(environment, 'Guard')}-*"),)),
        "dead letters": Place(arns=(arn(environment, "sqs", names.dead_letter_queue(environment)),)),
        "schedules": Place(arns=(arn(environment, "scheduler", f"schedule/{names.schedule_group(environment)}/*"),)),
        "scheduler role": Place(arns=(role,), condition=passed),
        "budgets": Place(arns=(arn(environment, "budgets", f"budget/{names.budget(environment)}", region=""),)),
        "all budgets": Place(arns=(arn(environment, "budgets", "budget/*", region=""),)),
        "alarms": Place(arns=(arn(environment, "cloudwatch", f"alarm:{names.notifying_alarm_pattern(environment)}"),)),
        "dashboards": Place(arns=(
            arn(environment, "cloudwatch", f"dashboard/{names.dashboard(environment, '*')}", region=""),
        )),
    }  # fmt: skip


_FUNCTIONS: tuple[Literal["stop", "reap"], ...] = ("stop", "reap")


def _logs(environment: Environment) -> tuple[str, ...]:
    """Return the log groups from which the runbook reads."""
    functions = (names.function_log_group(environment, what) for what in _FUNCTIONS)
    return (*functions, names.container_log_group(environment, "application"))


def _kept(environment: Environment) -> dict[Where, Place]:
    own = names.bucket(environment)
    bucket = f"arn:{partition_of(environment.region)}:s3:::{own}"

    def objects(*keys: str, prefix: str = "") -> Place:
        return Place(arns=tuple(f"{bucket}/{prefix}{key}" for key in keys))

    former = former_prefix_of(environment)  # empty where fence and leases have always been where they are
    prefixes = (prefix_of(environment), former) if former else (prefix_of(environment),)

    def guards(*keys: str) -> Place:
        return Place(arns=tuple(arn for prefix in prefixes for arn in objects(*keys, prefix=prefix).arns))

    # what an earlier release wrote is ended where it stands; pointer and lease in one ARN, for the length of the policy
    former_leases = objects(f"*{POINTER_KEY}", prefix=former).arns if former else ()
    return {
        "bucket": Place(arns=(bucket,)),
        "bucket's key": Place(
            arns=(environment.artifacts.kms_key_arn,) if environment.artifacts.kms_key_arn else (),
            condition={"StringEquals": {"kms:ViaService": f"s3.{environment.region}.amazonaws.com"}},
        ),
        "bucket's key as it stands": Place(arns=resources(environment, "kms:DescribeKey")),
        "buckets": Place(arns=resources(environment, "s3:ListBucket")),
        "guard's objects": guards(FENCE_KEY, POINTER_KEY, lease_key("*"), heartbeat_key("*")),
        "fence": guards(FENCE_KEY),
        "leases": Place(arns=(*objects(POINTER_KEY, lease_key("*"), prefix=prefixes[0]).arns, *former_leases)),
        "models and artifacts": objects("models/*", "artifacts/*"),
        "artifacts": objects("artifacts/*"),
        "models": objects("models/*"),
        "results": objects("results/*"),
        "repositories": Place(arns=(arn(environment, "ecr", "repository/*"),)),
        "images": Place(arns=resources(environment, "ecr:DescribeImages")),
    }  # fmt: skip


def _account(environment: Environment) -> dict[Where, Place]:
    partition, region, account = partition_of(environment.region), environment.region, environment.account
    qualifier = environment.bootstrap.qualifier

    def declared(action: str) -> Place:
        found = resources(environment, action)
        return Place(arns=() if found == ("*",) else found)

    def stacks(*kinds: str) -> Place:
        return Place(arns=tuple(
            arn(environment, "cloudformation", f"stack/{names.stack(environment, kind)}/*") for kind in kinds
        ))  # fmt: skip

    return {
        "principals": declared("iam:GetRole"),
        "users": declared("iam:GetUser"),
        "boundary": declared("iam:GetPolicy"),
        "secret": declared("secretsmanager:DescribeSecret"),
        "bootstrap version": declared("ssm:GetParameter"),
        "stacks": stacks(*ORDER, STAYS),
        "going stacks": stacks(*ORDER),
        "all stacks": Place(arns=(arn(environment, "cloudformation", "stack/*"),)),
        "roles": Place(arns=tuple(
            arn(environment, "iam", f"role/{start}*", region="")
            for start in (f"{environment.name}-", f"tandem-{environment.name}")
        )),
        "keys": Place(arns=(arn(environment, "kms", "key/*"),)),
        "bootstrap roles": Place(arns=tuple(
            f"arn:{partition}:iam::{account}:role/cdk-{qualifier}-{role}-{account}-{region}" for role in BOOTSTRAP_ROLES
        )),
    }  # fmt: skip
