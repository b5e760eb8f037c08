"""The key of what is watched: the containers' logs.

Invariant: CloudWatch Logs may use it for this cluster's log groups, and for nothing else.
"""

from __future__ import annotations

from constructs import Construct

from stacks.keys import RotatedKey
from stacks.place import place_of
from stacks.policy import allow
from tandem.spec import names
from tandem.spec.environment import Environment

# CloudWatch Logs user guide, "Encrypt log data in CloudWatch Logs using AWS KMS", its wildcards written out
LOG_ACTIONS = (
    "kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyPair",
    "kms:GenerateDataKeyPairWithoutPlaintext", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)  # fmt: skip


class WatchKey(RotatedKey):
    """One key for all log groups of Container Insights."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        place, name = place_of(environment), names.cluster(environment)
        groups = place.arn("logs", f"log-group:{names.container_log_group(environment, '*')}")
        logs = allow(LOG_ACTIONS, ["*"], service=f"logs.{place.region}.amazonaws.com", conditions={
            "ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups},
        })  # fmt: skip
        super().__init__(
            scope, id_, alias=f"alias/{name}-watch", description=f"Container logs of {name}", place=place, users=[logs]
        )
