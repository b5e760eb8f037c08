"""The key of the guard: both topics, the queue of what was given up, and the two functions' logs.

Invariant: CloudWatch may use it for this environment's alarms, Budgets for this account's budgets, CloudWatch Logs for
the two functions' log groups, and none of them for anything else. A topic under the key that AWS manages would be
silent, because nobody can admit CloudWatch to that one (SNS developer guide, "Managing Amazon SNS encryption keys and
costs", event sources).
"""

from __future__ import annotations

from constructs import Construct

from stacks.aws_location import AwsLocation, locate_environment
from stacks.container_log_key import LOG_ACTIONS
from stacks.keys import CustomerKey
from stacks.policy import Conditions, allow
from tandem.spec import names
from tandem.spec.environment import Environment

CLOUDWATCH, BUDGETS, SNS = "cloudwatch.amazonaws.com", "budgets.amazonaws.com", "sns.amazonaws.com"
# what a publisher to an encrypted topic needs (SNS developer guide, "Configuring AWS KMS permissions"); a sender to an
# encrypted queue needs the same (SQS developer guide, "Configuring KMS permissions")
SEND_ACTIONS = ("kms:Decrypt", "kms:GenerateDataKey")


class GuardKey(CustomerKey):
    """One key for all that tells of the fleet."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        location, name = locate_environment(environment), names.cluster_name(environment)
        groups = [
            location.arn("logs", f"log-group:{names.function_log_group_name(environment, function_kind)}")
            for function_kind in ("stop", "reap")
        ]
        users = [
            allow(SEND_ACTIONS, ["*"], service=CLOUDWATCH, conditions=alarm_conditions(environment)),
            allow(SEND_ACTIONS, ["*"], service=BUDGETS, conditions=budget_conditions(location)),
            allow(LOG_ACTIONS, ["*"], service=f"logs.{location.region}.amazonaws.com", conditions={
                "ArnEquals": {"kms:EncryptionContext:aws:logs:arn": groups},
            }),
        ]  # fmt: skip
        super().__init__(
            scope, id_, alias=f"alias/{name}-guard", description=f"Topics, queue and logs of the guard of {name}",
            location=location, users=users,
        )  # fmt: skip


def alarm_arn_pattern(environment: Environment) -> str:
    """Return the pattern that the ARN of every alarm of an environment that notifies has, and no other alarm's."""
    return locate_environment(environment).arn("cloudwatch", f"alarm:{names.composite_alarm_pattern(environment)}")


def alarm_conditions(environment: Environment) -> Conditions:
    """Return what holds where CloudWatch acts for an alarm of this environment."""
    return {
        "StringEquals": {"aws:SourceAccount": environment.account},
        "ArnLike": {"aws:SourceArn": alarm_arn_pattern(environment)},
    }


def budget_conditions(location: AwsLocation) -> Conditions:
    """Return what holds where Budgets acts for this account; its ARNs name no region."""
    return {
        "StringEquals": {"aws:SourceAccount": location.account},
        "ArnLike": {"aws:SourceArn": f"arn:{location.partition}:budgets::{location.account}:*"},
    }
