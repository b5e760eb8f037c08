"""Every call that the doctor may make, and the IAM policy that allows just these.

Invariant: `AllowlistedAccount.ask` makes no call that is not in DOCTOR_CALLS, and each of them reads; the proof of the
one-shot stop, and nothing else, may make those of PROOF_CALLS too. Actions and the resources that they take are those
of the Service Authorization Reference; `*` stands where it names no narrower resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tandem.guard.lease import POINTER_KEY
from tandem.ops.faults import FREE_ACTIONS, find_action
from tandem.ops.guard_config import aws_partition, former_object_prefix, object_prefix
from tandem.spec import names
from tandem.spec.environment import Environment
from tandem.spec.project_image import PROJECT_IMAGES

PROOF_NAME_PREFIX = "prove-stop-"  # a proof's schedule begins with it; a lease's with `stop-`
GUARD_OBJECT_KEYS = ("stop.json", POINTER_KEY, "runs/*/lease.json", "runs/*/heartbeat.json")


class AwsCall(NamedTuple):
    """One call of one service.

    Args:
        service: as boto3 names it.
        operation: as the API reference spells it.
    """

    service: str
    operation: str

    @property
    def action(self) -> str:
        """The action that IAM must allow; empty for a call that needs no right."""
        action = find_action(self.service, self.operation)
        return "" if action in FREE_ACTIONS else action


DOCTOR_CALLS = (
    AwsCall("sts", "GetCallerIdentity"),
    AwsCall("autoscaling", "DescribeAutoScalingGroups"),
    AwsCall("budgets", "DescribeBudget"),
    AwsCall("ce", "ListCostAllocationTags"),
    AwsCall("cloudformation", "DescribeStacks"),
    AwsCall("ec2", "DescribeAvailabilityZones"),
    AwsCall("ec2", "DescribeCapacityReservations"),
    AwsCall("ec2", "DescribeInstanceTypeOfferings"),
    AwsCall("ec2", "DescribeInstances"),
    AwsCall("ec2", "DescribeRegions"),
    AwsCall("ec2", "DescribeSubnets"),
    AwsCall("ecr", "DescribeImages"),
    AwsCall("ecr", "DescribePullThroughCacheRules"),
    AwsCall("eks", "DescribeAddonVersions"),
    AwsCall("eks", "DescribeCluster"),
    AwsCall("eks", "DescribeClusterVersions"),
    AwsCall("eks", "DescribeNodegroup"),
    AwsCall("iam", "GetPolicy"),
    AwsCall("iam", "GetRole"),
    AwsCall("iam", "GetUser"),
    AwsCall("kms", "DescribeKey"),
    AwsCall("lambda", "GetFunctionConfiguration"),
    AwsCall("s3", "GetObject"),
    AwsCall("s3", "HeadBucket"),
    AwsCall("s3", "ListBuckets"),
    AwsCall("scheduler", "GetSchedule"),
    AwsCall("scheduler", "ListSchedules"),
    AwsCall("secretsmanager", "DescribeSecret"),
    AwsCall("service-quotas", "ListAWSDefaultServiceQuotas"),
    AwsCall("service-quotas", "ListServiceQuotas"),
    AwsCall("sns", "ListSubscriptionsByTopic"),
    AwsCall("ssm", "GetParameter"),
)
"""In the order of their names, after the one that says who asks."""

PROOF_CALLS = (
    AwsCall("eks", "DescribeUpdate"),
    AwsCall("eks", "ListUpdates"),
    AwsCall("scheduler", "CreateSchedule"),
    AwsCall("scheduler", "DeleteSchedule"),
    AwsCall("sqs", "DeleteMessage"),
    AwsCall("sqs", "GetQueueUrl"),
    AwsCall("sqs", "ReceiveMessage"),
)
"""What `--prove-stop` asks beside DOCTOR_CALLS: its schedule, EKS's updates, and the queue of dead letters."""

# what IAM asks for beside a schedule with a role, an encrypted queue
PASS_ROLE_ACTION, DECRYPT_ACTION = "iam:PassRole", "kms:Decrypt"


def list_action_arns(environment: Environment, action: str) -> tuple[str, ...]:
    """Return the ARNs that an action is needed on, `*` where it takes none."""
    return tuple(_map_action_arns(environment).get(action, ("*",)))


def _map_action_arns(environment: Environment) -> dict[str, list[str]]:
    partition, region, account = aws_partition(environment.region), environment.region, environment.account
    bucket, cluster, group = (
        names.bucket_name(environment),
        names.cluster_name(environment),
        names.node_group_name(environment),
    )
    buckets = [bucket] if environment.artifacts.existing_bucket else [bucket, names.log_bucket_name(environment)]
    # an image behind a mirror may lie in any repository of the account
    repositories = (
        [names.repository_name(environment, image.name) for image in PROJECT_IMAGES]
        if not environment.registry_mirrors
        else ["*"]
    )

    def arn(service: str, rest: str) -> str:
        return f"arn:{partition}:{service}:{region}:{account}:{rest}"

    principals = _list_principals(environment)
    update_arns = [arn("eks", f"cluster/{cluster}"), arn("eks", f"nodegroup/{cluster}/{group}/*")]
    proof_schedules = [arn("scheduler", f"schedule/{names.schedule_group_name(environment)}/{PROOF_NAME_PREFIX}*")]
    all_schedules = [arn("scheduler", f"schedule/{names.schedule_group_name(environment)}/*")]
    prefixes = {object_prefix(environment), former_object_prefix(environment)}  # an older release's objects still rule
    queue = [arn("sqs", names.dead_letter_queue_name(environment))]
    arns_by_action = {
        "budgets:ViewBudget": [f"arn:{partition}:budgets::{account}:budget/{names.budget_name(environment)}"],
        "cloudformation:DescribeStacks": [arn("cloudformation", f"stack/{environment.name}-*/*")],
        "ecr:DescribeImages": [arn("ecr", f"repository/{name}") for name in repositories],
        "eks:DescribeCluster": [arn("eks", f"cluster/{cluster}")],
        "eks:DescribeNodegroup": [arn("eks", f"nodegroup/{cluster}/{group}/*")],
        "iam:GetRole": [principal for principal in principals if ":role/" in principal],
        "iam:GetUser": [principal for principal in principals if ":user/" in principal],
        "kms:DescribeKey": [environment.artifacts.kms_key_arn] if environment.artifacts.kms_key_arn else [],
        "lambda:GetFunctionConfiguration": [
            arn("lambda", f"function:{names.guard_function_name(environment, 'stop')}")
        ],
        "s3:GetObject": [
            f"arn:{partition}:s3:::{bucket}/{prefix}{key}" for prefix in prefixes for key in GUARD_OBJECT_KEYS
        ],
        "s3:ListBucket": [f"arn:{partition}:s3:::{name}" for name in buckets],
        "sns:ListSubscriptionsByTopic": [topic_arn(environment)],
        "eks:DescribeUpdate": update_arns,
        "eks:ListUpdates": update_arns,
        "scheduler:CreateSchedule": proof_schedules,
        "scheduler:DeleteSchedule": proof_schedules,
        "scheduler:GetSchedule": all_schedules,
        "sqs:DeleteMessage": queue,
        "sqs:GetQueueUrl": queue,
        "sqs:ReceiveMessage": queue,
        PASS_ROLE_ACTION: [f"arn:{partition}:iam::{account}:role/{names.scheduler_role_name(environment)}"],
        DECRYPT_ACTION: [arn("kms", "key/*")],
        "ssm:GetParameter": [arn("ssm", f"parameter{version_parameter(environment)}")],
        "iam:GetPolicy": [boundary_arn(environment)] if environment.bootstrap.permissions_boundary else [],
        "secretsmanager:DescribeSecret": (
            # Secrets Manager puts six characters of its own behind a name
            [arn("secretsmanager", f"secret:{environment.hub.token_secret}-??????")]
            if environment.hub.token_secret
            else []
        ),
    }
    return {action: sorted(set(arns)) for action, arns in arns_by_action.items()}


def _list_principals(environment: Environment) -> list[str]:
    access = environment.cluster.access
    return [arn for kind in (access.admin, access.operator, access.engineer, access.viewer) for arn in kind]


def version_parameter(environment: Environment) -> str:
    """Return the SSM parameter in which a bootstrap keeps its version (CDK guide, "Bootstrap template")."""
    return f"/cdk-bootstrap/{environment.bootstrap.qualifier}/version"


def boundary_arn(environment: Environment) -> str:
    """Return the ARN of the permissions boundary's policy."""
    partition = aws_partition(environment.region)
    return f"arn:{partition}:iam::{environment.account}:policy/{environment.bootstrap.permissions_boundary}"


def topic_arn(environment: Environment) -> str:
    """Return the ARN of the topic that tells people."""
    partition, region_account = aws_partition(environment.region), f"{environment.region}:{environment.account}"
    return f"arn:{partition}:sns:{region_account}:{names.topic_name(environment)}"


def build_policy(environment: Environment, *, with_proof: bool = False) -> dict[str, Any]:
    """Return the IAM policy that allows all the doctor asks of this environment, and nothing else.

    Args:
        environment: as declared.
        with_proof: whether it is to allow the proof of the one-shot stop too.
    """
    statements = list(_list_statements(environment, (*DOCTOR_CALLS, *PROOF_CALLS) if with_proof else DOCTOR_CALLS))
    return {
        "Version": "2012-10-17",
        "Statement": [*statements, *(_list_proof_statements(environment) if with_proof else ())],
    }


def _list_proof_statements(environment: Environment) -> Iterator[dict[str, Any]]:
    """Yield what a schedule with a role and an encrypted queue need beside their own calls."""
    for action, condition in (
        (PASS_ROLE_ACTION, {"iam:PassedToService": "scheduler.amazonaws.com"}),
        (DECRYPT_ACTION, {"kms:ViaService": f"sqs.{environment.region}.amazonaws.com"}),
    ):
        yield {
            "Effect": "Allow", "Action": action, "Resource": list(list_action_arns(environment, action)),
            "Condition": {"StringEquals": condition},
        }  # fmt: skip


def _list_statements(environment: Environment, calls: Iterable[AwsCall]) -> Iterator[dict[str, Any]]:
    wildcard_actions: list[str] = []
    for action in sorted({call.action for call in calls if call.action}):
        arns = list_action_arns(environment, action)
        if arns == ("*",):
            wildcard_actions.append(action)
        elif arns:
            yield {"Effect": "Allow", "Action": action, "Resource": list(arns)}
    if environment.artifacts.kms_key_arn:  # what S3 asks of whoever reads an object under the key
        condition = {"StringEquals": {"kms:ViaService": f"s3.{environment.region}.amazonaws.com"}}
        key = environment.artifacts.kms_key_arn
        yield {"Effect": "Allow", "Action": DECRYPT_ACTION, "Resource": [key], "Condition": condition}
    yield {"Effect": "Allow", "Action": wildcard_actions, "Resource": "*"}
