"""Every call that the doctor may make, and the IAM policy that allows just these.

Invariant: `AllowlistedAccount.ask` makes no call that is not in DOCTOR_CALLS, and each of them reads; the proof of the
one-shot stop, and nothing else, may make those of PROOF_CALLS too. Actions and the resources that they take are those
of the Service Authorization Reference; `*` stands where it names no narrower resource.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tandem.ops.faults import list_calls
from tandem.ops.guard_config import build_arn
from tandem.ops.people.policy_targets import build_targets
from tandem.spec import names
from tandem.spec.environment import Environment

PROOF_NAME_PREFIX = "prove-stop-"  # a proof's schedule begins with it; a lease's with `stop-`

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


# action -> the place of people's rights that it is needed on, where it takes one
ACTION_TARGETS = {
    "budgets:ViewBudget": "budgets",
    "ecr:DescribeImages": "images",
    "eks:DescribeCluster": "cluster",
    "eks:DescribeNodegroup": "node group",
    "eks:DescribeUpdate": "updates",
    "eks:ListUpdates": "updates",
    "iam:GetPolicy": "boundary",
    "iam:GetRole": "principals",
    "iam:GetUser": "users",
    "kms:DescribeKey": "bucket's key",
    "lambda:GetFunctionConfiguration": "stop function",
    "s3:GetObject": "guard's objects",
    "s3:ListBucket": "buckets",
    "scheduler:GetSchedule": "schedules",
    "secretsmanager:DescribeSecret": "secret",
    "sns:ListSubscriptionsByTopic": "topic",
    "sqs:DeleteMessage": "dead letters",
    "sqs:GetQueueUrl": "dead letters",
    "sqs:ReceiveMessage": "dead letters",
    "ssm:GetParameter": "bootstrap version",
    PASS_ROLE_ACTION: "scheduler role",
    DECRYPT_ACTION: "keys",
}


def list_action_arns(environment: Environment, action: str) -> tuple[str, ...]:
    """Return the ARNs that an action is needed on, `*` where it takes none; none where nothing is declared."""
    if action == "cloudformation:DescribeStacks":
        return (build_arn(environment, "cloudformation", f"stack/{environment.name}-*/*"),)
    if action in {"scheduler:CreateSchedule", "scheduler:DeleteSchedule"}:
        proofs = f"schedule/{names.schedule_group_name(environment)}/{PROOF_NAME_PREFIX}*"
        return (build_arn(environment, "scheduler", proofs),)
    if action not in ACTION_TARGETS:
        return ("*",)
    return tuple(sorted(set(build_targets(environment)[ACTION_TARGETS[action]].arns)))


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
