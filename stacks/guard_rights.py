"""What the guard's functions and the one-shot stop may do, action by action, and who acts for its key and topics.

Invariant: nothing here can raise a fleet on purpose: EKS and Auto Scaling know one action for every size, so that the
code is what keeps to 0, and only instances and Auto Scaling groups that EKS tagged as this node group's may be touched.
"""

from __future__ import annotations

from stacks.policy import Conditions, Statement, allow, allow_bucket_key, locate_environment
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import POINTER_KEY, heartbeat_key, lease_key
from tandem.guard.observe import CLUSTER_TAG, NODE_GROUP_TAG
from tandem.ops.guard_config import object_prefix
from tandem.spec import names
from tandem.spec.environment import Environment

READ_KEYS = (FENCE_KEY, POINTER_KEY, lease_key("*"), heartbeat_key("*"))
# Service Authorization Reference: these take no narrower resource (EC2, EC2 Auto Scaling, EventBridge Scheduler,
# CloudWatch)
LISTING_ACTIONS = (
    "ec2:DescribeInstances", "autoscaling:DescribeAutoScalingGroups", "scheduler:ListSchedules",
    "cloudwatch:GetMetricStatistics",
)  # fmt: skip
# the third lever: where EKS refuses or ignores an update, no instance of the node group starts any more
SCALING_ACTIONS = ("autoscaling:SuspendProcesses", "autoscaling:UpdateAutoScalingGroup")
# what a publisher to an encrypted topic needs (SNS developer guide, "Configuring AWS KMS permissions"); a sender to an
# encrypted queue needs the same (SQS developer guide, "Configuring KMS permissions")
SEND_ACTIONS = ("kms:Decrypt", "kms:GenerateDataKey")


def list_function_statements(environment: Environment, *, topic_arn: str, key_arn: str) -> list[Statement]:
    """Return what a pass and a stop call, which are the same.

    ListBucket stands here without a prefix: a missing object is told apart from a forbidden one only by who may list
    the bucket (S3 API reference, GetObject, permissions), and a fence that is not there must not look like one that
    cannot be read.
    """
    location = locate_environment(environment)
    bucket = location.bucket_arn(names.bucket_name(environment))
    prefix = f"{bucket}/{object_prefix(environment)}"
    tag_conditions = {"StringEquals": {
        f"aws:ResourceTag/{CLUSTER_TAG}": names.cluster_name(environment),
        f"aws:ResourceTag/{NODE_GROUP_TAG}": names.node_group_name(environment),
    }}  # fmt: skip
    metric_conditions = {"StringEquals": {"cloudwatch:namespace": names.guard_namespace(environment)}}
    return [
        allow(["s3:GetObject"], [f"{prefix}{key}" for key in READ_KEYS]),
        allow(["s3:PutObject"], [f"{prefix}{FENCE_KEY}"]),
        allow(["s3:ListBucket"], [bucket]),
        *allow_bucket_key(environment, writes=True),
        allow(["eks:DescribeNodegroup", "eks:UpdateNodegroupConfig"], [node_group_arn(environment)]),
        allow(LISTING_ACTIONS, ["*"]),
        allow(["ec2:TerminateInstances"], [location.arn("ec2", "instance/*")], conditions=tag_conditions),
        allow(SCALING_ACTIONS, [scaling_group_arn(environment)], conditions=tag_conditions),
        allow(["cloudwatch:PutMetricData"], ["*"], conditions=metric_conditions),
        allow(["sns:Publish"], [topic_arn]),
        allow(SEND_ACTIONS, [key_arn]),
    ]


def list_schedule_statements(environment: Environment, *, queue_arn: str, key_arn: str) -> list[Statement]:
    """Return what Scheduler calls in the name of a lease."""
    return [
        allow(["eks:UpdateNodegroupConfig"], [node_group_arn(environment)]),
        allow(["sqs:SendMessage"], [queue_arn]),
        allow(SEND_ACTIONS, [key_arn]),
    ]


def node_group_arn(environment: Environment) -> str:
    """Return the ARN of the accelerator node group; EKS ends it with an id of its own."""
    cluster, group = names.cluster_name(environment), names.node_group_name(environment)
    return locate_environment(environment).arn("eks", f"nodegroup/{cluster}/{group}/*")


def scaling_group_arn(environment: Environment) -> str:
    """Return the ARN of any Auto Scaling group; EKS chooses the name of a node group's own, and tags it."""
    return locate_environment(environment).arn("autoscaling", "autoScalingGroup:*:autoScalingGroupName/*")


def alarm_conditions(environment: Environment) -> Conditions:
    """Return what holds where CloudWatch acts for an alarm of this environment that notifies, and for no other."""
    pattern = f"alarm:{names.composite_alarm_pattern(environment)}"
    return {
        "StringEquals": {"aws:SourceAccount": environment.account},
        "ArnLike": {"aws:SourceArn": locate_environment(environment).arn("cloudwatch", pattern)},
    }


def budget_conditions(environment: Environment) -> Conditions:
    """Return what holds where Budgets acts for this account; its ARNs name no region."""
    arn = f"arn:{locate_environment(environment).partition}:budgets::{environment.account}:*"
    return {"StringEquals": {"aws:SourceAccount": environment.account}, "ArnLike": {"aws:SourceArn": arn}}
