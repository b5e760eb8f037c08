"""The key of what is watched: the containers' logs.

Invariant: CloudWatch Logs may use it for this cluster's log groups, and for nothing else.
"""

from __future__ import annotations

from constructs import Construct

from stacks.aws_location import locate_environment
from stacks.keys import CustomerKey
from stacks.policy import allow
from tandem.spec import names
from tandem.spec.environment import Environment

# CloudWatch Logs user guide, "Encrypt log data in CloudWatch Logs using AWS KMS", its wildcards written out
LOG_ACTIONS = (
    "kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyPair",
    "kms:GenerateDataKeyPairWithoutPlaintext", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)  # fmt: skip


class ContainerLogKey(CustomerKey):
    """One key for all log groups of Container Insights."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        location, name = locate_environment(environment), names.cluster_name(environment)
        groups = location.arn("logs", f"log-group:{names.container_log_group_name(environment, '*')}")
        statement = allow(LOG_ACTIONS, ["*"], service=f"logs.{location.region}.amazonaws.com", conditions={
            "ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups},
        })  # fmt: skip
        super().__init__(
            scope,
            id_,
            alias=f"alias/{name}-watch",
            description=f"Container logs of {name}",
            location=location,
            users=[statement],
        )
