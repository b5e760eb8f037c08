"""The key of what is watched: the alarms' topic and the containers' logs.

Invariant: CloudWatch may use it for this environment's alarms, and CloudWatch Logs for this cluster's log groups, and
neither for anything else. A topic under the key that AWS manages would be silent, because nobody can admit CloudWatch
to that one (SNS developer guide, "Managing Amazon SNS encryption keys and costs", event sources).
"""

from __future__ import annotations

from constructs import Construct

from stacks.keys import RotatedKey
from stacks.place import place_of
from stacks.policy import allow
from tandem.spec import names
from tandem.spec.environment import Environment

CLOUDWATCH = "cloudwatch.amazonaws.com"
# what a publisher to an encrypted topic needs (SNS developer guide, "Configuring AWS KMS permissions")
_PUBLISH = ("kms:Decrypt", "kms:GenerateDataKey")
# CloudWatch Logs user guide, "Encrypt log data in CloudWatch Logs using AWS KMS", its wildcards written out
_LOG = (
    "kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyPair",
    "kms:GenerateDataKeyPairWithoutPlaintext", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)  # fmt: skip


class WatchKey(RotatedKey):
    """One key for both: who may read the alarms may read what they are about."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        place, name = place_of(environment), names.cluster(environment)
        groups = place.arn("logs", f"log-group:{names.container_log_group(environment, '*')}")
        users = [
            allow(_PUBLISH, ["*"], service=CLOUDWATCH, conditions={
                "StringEquals": {"aws:SourceAccount": place.account},
                "ArnLike": {"aws:SourceArn": alarm_arns(environment)},
            }),
            allow(_LOG, ["*"], service=f"logs.{place.region}.amazonaws.com", conditions={
                "ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups},
            }),
        ]  # fmt: skip
        super().__init__(
            scope, id_, alias=f"alias/{name}-watch", description=f"Alarms and container logs of {name}", place=place,
            users=users,
        )  # fmt: skip


def alarm_arns(environment: Environment) -> str:
    """Return the pattern that the ARN of every alarm of an environment has."""
    return place_of(environment).arn("cloudwatch", f"alarm:{names.alarm(environment, '*')}")
