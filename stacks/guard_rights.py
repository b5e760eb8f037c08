"""Rights of the guard's functions and one-shot stop by action; users of its key and topics.

Invariant: nothing here can raise a fleet on purpose. EKS and Auto Scaling have one action for every
size, so only the code limits the size to 0. Only instances and Auto Scaling groups that EKS tagged
as this node group's may be touched.
"""

from __future__ import annotations

from stacks.policy import Conditions, Statement, account_condition, allow, allow_bucket_key
from tandem.declarations import names
from tandem.declarations.arns import build_arn
from tandem.declarations.environment import Environment
from tandem.ops.people.policy_targets import build_targets

# Service Authorization Reference: these take no narrower resource (EC2, EC2 Auto Scaling,
# EventBridge Scheduler, CloudWatch)
LISTING_ACTIONS = (
    "ec2:DescribeInstances",
    "ec2:DescribeCapacityReservations",
    "autoscaling:DescribeAutoScalingGroups",
    "scheduler:ListSchedules",
    "cloudwatch:GetMetricStatistics",
)
# The third lever: if EKS refuses or ignores an update, this still keeps new instances of the node
# group from starting.
SCALING_ACTIONS = ("autoscaling:SuspendProcesses", "autoscaling:UpdateAutoScalingGroup")
# Rights of a publisher to an encrypted topic (SNS developer guide, "Configuring AWS KMS
# permissions"). A sender to an encrypted queue needs the same (SQS developer guide, "Configuring
# KMS permissions").
SEND_ACTIONS = ("kms:Decrypt", "kms:GenerateDataKey")

WILDCARD_REASONS = {
    "arn:*:eks:*": (
        "EKS ends the ARN of a node group with an id of its own; cluster and node group are literal"
    ),
    "arn:*:s3:::*": "names of runs are not known beforehand; the names of the files are literal",
    "arn:*": (
        "instances and groups are not known beforehand; the tags that EKS puts on this node group"
        " bound them"
    ),
    "[*]": "listings and metrics take no narrower resource",
}


def list_function_statements(
    environment: Environment, *, topic_arn: str, key_arn: str
) -> list[Statement]:
    """Return the rights of a pass and of a stop, which are the same.

    ListBucket has no prefix here: only to callers that may list the bucket does S3 tell a missing
    object from a forbidden one (S3 API reference, GetObject). A missing fence must not look like
    one that cannot be read.
    """
    targets = build_targets(environment)

    def allow_on(target: str, *actions: str) -> Statement:
        return allow(actions, targets[target].arns, conditions=targets[target].condition)

    metric_conditions = {
        "StringEquals": {"cloudwatch:namespace": names.guard_namespace(environment)}
    }
    return [
        allow_on("guard's objects", "s3:GetObject"),
        allow_on("fence", "s3:PutObject"),
        allow_on("bucket", "s3:ListBucket"),
        *allow_bucket_key(environment, writes=True),
        allow_on("node group", "eks:DescribeNodegroup", "eks:UpdateNodegroupConfig"),
        allow(LISTING_ACTIONS, ["*"]),
        allow_on("accelerators", "ec2:TerminateInstances"),
        allow_on("Auto Scaling groups", *SCALING_ACTIONS),
        allow(["cloudwatch:PutMetricData"], ["*"], conditions=metric_conditions),
        allow(["sns:Publish"], [topic_arn]),
        allow(SEND_ACTIONS, [key_arn]),
    ]


def list_schedule_statements(
    environment: Environment, *, queue_arn: str, key_arn: str
) -> list[Statement]:
    """Return the rights of Scheduler for a lease."""
    return [
        allow(["eks:UpdateNodegroupConfig"], build_targets(environment)["node group"].arns),
        allow(["sqs:SendMessage"], [queue_arn]),
        allow(SEND_ACTIONS, [key_arn]),
    ]


def alarm_conditions(environment: Environment) -> Conditions:
    """Return the conditions for CloudWatch to act: this environment's notifying alarms only."""
    (arn,) = build_targets(environment)["alarms"].arns
    return {**account_condition(environment), "ArnLike": {"aws:SourceArn": arn}}


def budget_conditions(environment: Environment) -> Conditions:
    """Return the conditions under which Budgets acts for this account; its ARNs name no region."""
    arn = build_arn(environment, "budgets", "*", region="")
    return {**account_condition(environment), "ArnLike": {"aws:SourceArn": arn}}
