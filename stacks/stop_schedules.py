"""What a lease's one-shot stop stands on: the group of its schedules, the role that calls EKS, the queue of the rest.

Invariant: Scheduler alone may have the role, for schedules of this group alone; and the role sizes this node group and
does nothing else but say that it could not.
"""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.aws_location import locate_environment
from stacks.guard_rights import list_schedule_statements, node_group_arn
from stacks.nag import acknowledge_findings
from stacks.policy import policy_document
from stacks.role import add_role
from tandem.spec import names
from tandem.spec.environment import Environment

SCHEDULER = "scheduler.amazonaws.com"
MESSAGE_RETENTION_S = 14 * 24 * 3600  # the longest SQS keeps a message


class DeadLetterQueue(Construct):
    """The queue of calls that were given up, encrypted, for senders that use TLS.

    Attributes:
        arn: the queue.
    """

    def __init__(self, scope: Construct, id_: str, *, environment: Environment, key_arn: str) -> None:
        super().__init__(scope, id_)
        queue = sqs.CfnQueue(
            self, "Queue", queue_name=names.dead_letter_queue_name(environment), kms_master_key_id=key_arn,
            message_retention_period=MESSAGE_RETENTION_S,
        )  # fmt: skip
        queue.apply_removal_policy(RemovalPolicy.DESTROY)
        deny_plain_transport = {
            "Effect": "Deny", "Principal": "*", "Action": ["sqs:*"], "Resource": [queue.attr_arn],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }  # fmt: skip
        sqs.CfnQueuePolicy(self, "Policy", queues=[queue.ref], policy_document=policy_document(deny_plain_transport))
        acknowledge_findings(
            queue, {"AwsSolutions-SQS3": "this is the queue of what others gave up; nothing reads it but people"}
        )
        self.arn = queue.attr_arn


class StopScheduleGroup(Construct):
    """The group of the schedules and their role."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment, queue_arn: str, key_arn: str) -> None:
        super().__init__(scope, id_)
        location, name = locate_environment(environment), names.schedule_group_name(environment)
        scheduler.CfnScheduleGroup(self, "Group", name=name)
        group_arn = location.arn("scheduler", f"schedule-group/{name}")
        reason = "EKS ends the ARN of a node group with an id of its own; cluster and node group are literal"
        add_role(
            self, SCHEDULER, name=names.scheduler_role_name(environment), policy_name="stop",
            statements=list_schedule_statements(environment, queue_arn=queue_arn, key_arn=key_arn),
            conditions={"StringEquals": {"aws:SourceAccount": location.account, "aws:SourceArn": group_arn}},
            reasons={f"AwsSolutions-IAM5[Resource::{node_group_arn(environment)}]": reason},
        )  # fmt: skip
