"""What a lease's one-shot stop stands on: the group of its schedules, the role that calls EKS, the queue of the rest.

Invariant: Scheduler alone may have the role, for schedules of this group alone; and the role sizes this node group and
does nothing else but say that it could not.
"""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.guard_rights import node_group_arn, of_one_shot
from stacks.nag import acknowledge
from stacks.place import place_of
from stacks.policy import allow, document
from tandem.spec import names
from tandem.spec.environment import Environment

SCHEDULER = "scheduler.amazonaws.com"
KEPT_S = 14 * 24 * 3600  # the longest SQS keeps a message


class DeadLetters(Construct):
    """The queue of calls that were given up, encrypted, for senders that use TLS.

    Attributes:
        arn: the queue.
    """

    def __init__(self, scope: Construct, id_: str, *, environment: Environment, key_arn: str) -> None:
        super().__init__(scope, id_)
        queue = sqs.CfnQueue(
            self, "Queue", queue_name=names.dead_letter_queue(environment), kms_master_key_id=key_arn,
            message_retention_period=KEPT_S,
        )  # fmt: skip
        queue.apply_removal_policy(RemovalPolicy.DESTROY)
        in_the_clear = {
            "Effect": "Deny", "Principal": "*", "Action": ["sqs:*"], "Resource": [queue.attr_arn],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }  # fmt: skip
        sqs.CfnQueuePolicy(self, "Policy", queues=[queue.ref], policy_document=document(in_the_clear))
        acknowledge(
            queue, {"AwsSolutions-SQS3": "this is the queue of what others gave up; nothing reads it but people"}
        )
        self.arn = queue.attr_arn


class OneShot(Construct):
    """The group of the schedules and their role."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment, queue_arn: str, key_arn: str) -> None:
        super().__init__(scope, id_)
        place, name = place_of(environment), names.schedule_group(environment)
        scheduler.CfnScheduleGroup(self, "Group", name=name)
        trust = allow(
            ["sts:AssumeRole"], service=SCHEDULER,
            conditions={"StringEquals": {
                "aws:SourceAccount": place.account, "aws:SourceArn": place.arn("scheduler", f"schedule-group/{name}"),
            }},
        )  # fmt: skip
        role = iam.CfnRole(
            self, "Role", role_name=names.scheduler_role(environment), assume_role_policy_document=document(trust),
            policies=[iam.CfnRole.PolicyProperty(
                policy_name="stop",
                policy_document=document(*of_one_shot(environment, queue_arn=queue_arn, key_arn=key_arn)),
            )],
        )  # fmt: skip
        acknowledge(role, {
            f"AwsSolutions-IAM5[Resource::{node_group_arn(environment)}]": "EKS ends the ARN of a node group with an "
            "id of its own; cluster and node group are literal",
        })  # fmt: skip
