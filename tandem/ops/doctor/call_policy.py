"""Every call that the doctor may make, and the IAM policy that allows just these.

Invariant: `AllowlistedAccount.ask` makes no call that is not in DOCTOR_CALLS, and each of them reads; the proof of the
one-shot stop, and nothing else, may make those of PROOF_CALLS too. Actions and the resources that they take are those
of the Service Authorization Reference; `*` stands where it names no narrower resource.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tandem.guard.lease import POINTER_KEY
from tandem.ops.faults import list_calls
from tandem.ops.guard_config import (
    build_arn,
    build_bucket_arn,
    former_object_prefix,
    object_prefix,
    topic_arn,
)
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.project_image import PROJECT_IMAGES

PROOF_NAME_PREFIX = "prove-stop-"  # a proof's schedule begins with it; a lease's with `stop-`
GUARD_OBJECT_KEYS = ("stop.json", POINTER_KEY, "runs/*/lease.json", "runs/*/heartbeat.json")

DOCTOR_CALLS = list_calls(
    "sts GetCallerIdentity",
    "autoscaling DescribeAutoScalingGroups",
    "budgets DescribeBudget",
    "ce ListCostAllocationTags",
    "cloudformation DescribeStacks",
    "ec2 DescribeAvailabilityZones DescribeCapacityReservations DescribeInstanceTypeOfferings DescribeInstances",
    "ec2 DescribeRegions DescribeSubnets",
    "ecr DescribeImages DescribePullThroughCacheRules",
    "eks DescribeAddonVersions DescribeCluster DescribeClusterVersions DescribeNodegroup",
    "iam GetPolicy GetRole GetUser",
    "kms DescribeKey",
    "lambda GetFunctionConfiguration",
    "s3 GetObject HeadBucket ListBuckets",
    "scheduler GetSchedule ListSchedules",
    "secretsmanager DescribeSecret",
    "service-quotas ListAWSDefaultServiceQuotas ListServiceQuotas",
    "sns ListSubscriptionsByTopic",
    "ssm GetParameter",
)
"""In the order of their names, after the one that says who asks."""

PROOF_CALLS = list_calls(
    "eks DescribeUpdate ListUpdates",
    "scheduler CreateSchedule DeleteSchedule",
    "sqs DeleteMessage GetQueueUrl ReceiveMessage",
)
"""What `--prove-stop` asks beside DOCTOR_CALLS: its schedule, EKS's updates, and the queue of dead letters."""

# what IAM asks for beside a schedule with a role, an encrypted queue
PASS_ROLE_ACTION, DECRYPT_ACTION = "iam:PassRole", "kms:Decrypt"


def list_action_arns(environment: Environment, action: str) -> tuple[str, ...]:
    """Return the ARNs that an action is needed on, `*` where it takes none; none where nothing is declared."""
    arns = _map_guard_arns(environment) | _map_declared_arns(environment)
    return tuple(sorted(set(arns.get(action, ["*"]))))


def _map_guard_arns(environment: Environment) -> dict[str, list[str]]:
    """Return the ARNs of each action on cluster and guard."""
    cluster, group = names.cluster_name(environment), names.schedule_group_name(environment)
    cluster_arn = build_arn(environment, "eks", f"cluster/{cluster}")
    node_group_arn = build_arn(environment, "eks", f"nodegroup/{cluster}/{names.node_group_name(environment)}/*")
    proof_schedules = [build_arn(environment, "scheduler", f"schedule/{group}/{PROOF_NAME_PREFIX}*")]
    queue = [build_arn(environment, "sqs", names.dead_letter_queue_name(environment))]
    stop_function = f"function:{names.guard_function_name(environment, 'stop')}"
    scheduler_role = f"role/{names.scheduler_role_name(environment)}"
    prefixes = {object_prefix(environment), former_object_prefix(environment)}  # an older release's objects still rule
    return {
        "budgets:ViewBudget": [
            build_arn(environment, "budgets", f"budget/{names.budget_name(environment)}", region="")
        ],
        "eks:DescribeCluster": [cluster_arn],
        "eks:DescribeNodegroup": [node_group_arn],
        "eks:DescribeUpdate": [cluster_arn, node_group_arn],
        "eks:ListUpdates": [cluster_arn, node_group_arn],
        "lambda:GetFunctionConfiguration": [build_arn(environment, "lambda", stop_function)],
        "s3:GetObject": [
            build_bucket_arn(environment, f"/{prefix}{key}") for prefix in prefixes for key in GUARD_OBJECT_KEYS
        ],
        "sns:ListSubscriptionsByTopic": [topic_arn(environment)],
        "scheduler:CreateSchedule": proof_schedules,
        "scheduler:DeleteSchedule": proof_schedules,
        "scheduler:GetSchedule": [build_arn(environment, "scheduler", f"schedule/{group}/*")],
        "sqs:DeleteMessage": queue,
        "sqs:GetQueueUrl": queue,
        "sqs:ReceiveMessage": queue,
        PASS_ROLE_ACTION: [build_arn(environment, "iam", scheduler_role, region="")],
        DECRYPT_ACTION: [build_arn(environment, "kms", "key/*")],
    }


def _map_declared_arns(environment: Environment) -> dict[str, list[str]]:
    """Return the ARNs of each action on what is the account's, or is declared."""
    artifacts, secret = environment.artifacts, environment.hub.token_secret
    principals = list_principals(environment)
    # an image behind a mirror may lie in any repository of the account
    own_repositories = [names.repository_name(environment, image.name) for image in PROJECT_IMAGES]
    repositories = ["*"] if environment.registry_mirrors else own_repositories
    log_bucket = [] if artifacts.existing_bucket else [names.log_bucket_name(environment)]
    return {
        "cloudformation:DescribeStacks": [build_arn(environment, "cloudformation", f"stack/{environment.name}-*/*")],
        "ecr:DescribeImages": [build_arn(environment, "ecr", f"repository/{name}") for name in repositories],
        "iam:GetRole": [principal for principal in principals if ":role/" in principal],
        "iam:GetUser": [principal for principal in principals if ":user/" in principal],
        "iam:GetPolicy": [boundary_arn(environment)] if environment.bootstrap.permissions_boundary else [],
        "kms:DescribeKey": [artifacts.kms_key_arn] if artifacts.kms_key_arn else [],
        "s3:ListBucket": [
            build_bucket_arn(environment, bucket=bucket) for bucket in (names.bucket_name(environment), *log_bucket)
        ],
        # Secrets Manager puts six characters of its own behind a name
        "secretsmanager:DescribeSecret": (
            [build_arn(environment, "secretsmanager", f"secret:{secret}-??????")] if secret else []
        ),
        "ssm:GetParameter": [build_arn(environment, "ssm", f"parameter{version_parameter(environment)}")],
    }


def list_principals(environment: Environment) -> tuple[str, ...]:
    """Return the ARNs of `cluster.access`."""
    access = environment.cluster.access
    return (*access.admin, *access.operator, *access.engineer, *access.viewer)


def version_parameter(environment: Environment) -> str:
    """Return the SSM parameter in which a bootstrap keeps its version (CDK guide, "Bootstrap template")."""
    return f"/cdk-bootstrap/{environment.bootstrap.qualifier}/version"


def boundary_arn(environment: Environment) -> str:
    """Return the ARN of the permissions boundary's policy."""
    return build_arn(environment, "iam", f"policy/{environment.bootstrap.permissions_boundary}", region="")


def build_policy(environment: Environment, *, with_proof: bool = False) -> dict[str, Any]:
    """Return the IAM policy that allows all the doctor asks of this environment, and nothing else.

    Args:
        environment: as declared.
        with_proof: whether it is to allow the proof of the one-shot stop too.
    """
    return {"Version": "2012-10-17", "Statement": list(_list_statements(environment, with_proof=with_proof))}


def _list_statements(environment: Environment, *, with_proof: bool) -> Iterator[dict[str, Any]]:
    def allow(action: str, arns: list[str], **condition: dict[str, str]) -> dict[str, Any]:
        statement = {"Effect": "Allow", "Action": action, "Resource": arns}
        return statement | ({"Condition": condition} if condition else {})

    calls = (*DOCTOR_CALLS, *PROOF_CALLS) if with_proof else DOCTOR_CALLS
    actions = sorted({call.action for call in calls} - {""})
    arns = {action: list(list_action_arns(environment, action)) for action in actions}
    yield from (allow(action, arns[action]) for action in arns if arns[action] not in (["*"], []))
    if environment.artifacts.kms_key_arn:  # what S3 asks of whoever reads an object under the key
        condition = {"kms:ViaService": f"s3.{environment.region}.amazonaws.com"}
        yield allow(DECRYPT_ACTION, [environment.artifacts.kms_key_arn], StringEquals=condition)
    yield {"Effect": "Allow", "Action": [action for action in arns if arns[action] == ["*"]], "Resource": "*"}
    if with_proof:  # what a schedule with a role and an encrypted queue need beside their own calls
        for action, condition in (
            (PASS_ROLE_ACTION, {"iam:PassedToService": "scheduler.amazonaws.com"}),
            (DECRYPT_ACTION, {"kms:ViaService": f"sqs.{environment.region}.amazonaws.com"}),
        ):
            yield allow(action, list(list_action_arns(environment, action)), StringEquals=condition)
