"""The key of the guard: both topics, the queue of what was given up, and the two functions' logs.

Invariant: CloudWatch may use it for this environment's alarms, Budgets for this account's budgets, CloudWatch Logs for
the two functions' log groups, and none of them for anything else. A topic under the key that AWS manages would be
silent, because nobody can admit CloudWatch to that one (SNS developer guide, "Managing Amazon SNS encryption keys and
costs", event sources).
"""

from __future__ import annotations

from constructs import Construct

from stacks.keys import RotatedKey
from stacks.place import Place, place_of
from stacks.policy import Conditions, allow
from stacks.watch_key import LOG_ACTIONS
from tandem.spec import names
from tandem.spec.environment import Environment

CLOUDWATCH, BUDGETS, SNS = "cloudwatch.amazonaws.com", "budgets.amazonaws.com", "sns.amazonaws.com"
# what a publisher to an encrypted topic needs (SNS developer guide, "Configuring AWS KMS permissions"); a sender to an
# encrypted queue needs the same (SQS developer guide, "Configuring KMS permissions")
SEND = ("kms:Decrypt", "kms:GenerateDataKey")


class GuardKey(RotatedKey):
    """One key for all that tells of the fleet."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        place, name = place_of(environment), names.cluster(environment)
        groups = [
            place.arn("logs", f"log-group:{names.function_log_group(environment, what)}") for what in ("stop", "reap")
        ]
        users = [
            allow(SEND, ["*"], service=CLOUDWATCH, conditions=of_alarms(environment)),
            allow(SEND, ["*"], service=BUDGETS, conditions=of_budgets(place)),
            allow(LOG_ACTIONS, ["*"], service=f"logs.{place.region}.amazonaws.com", conditions={
                "ArnEquals": {"kms:EncryptionContext:aws:logs:arn": groups},
            }),
        ]  # fmt: skip
        super().__init__(
            scope, id_, alias=f"alias/{name}-guard", description=f"Topics, queue and logs of the guard of {name}",
            place=place, users=users,
        )  # fmt: skip


def alarm_arns(environment: Environment) -> str:
    """Return the pattern that the ARN of every alarm of an environment that notifies has, and no other alarm's."""
    return place_of(environment).arn("cloudwatch", f"alarm:{names.notifying_alarm_pattern(environment)}")


def of_alarms(environment: Environment) -> Conditions:
    """Return what holds where CloudWatch acts for an alarm of this environment."""
    return {
        "StringEquals": {"aws:SourceAccount": environment.account},
        "ArnLike": {"aws:SourceArn": alarm_arns(environment)},
    }


def of_budgets(place: Place) -> Conditions:
    """Return what holds where Budgets acts for this account; its ARNs name no region."""
    return {
        "StringEquals": {"aws:SourceAccount": place.account},
        "ArnLike": {"aws:SourceArn": f"arn:{place.partition}:budgets::{place.account}:*"},
    }
