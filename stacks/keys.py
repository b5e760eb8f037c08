"""A customer key: rotated yearly, administered by its account, used by whom its policy names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from constructs import Construct

from stacks.aws_location import AwsLocation
from stacks.policy import allow, policy_document

DELETION_WINDOW_DAYS = 30  # the longest KMS waits before a key is gone for good
KEY_ADMINISTRATION = (
    "kms:CancelKeyDeletion", "kms:CreateAlias", "kms:CreateGrant", "kms:Decrypt", "kms:DeleteAlias",
    "kms:DescribeKey", "kms:DisableKey", "kms:DisableKeyRotation", "kms:EnableKey", "kms:EnableKeyRotation",
    "kms:Encrypt", "kms:GenerateDataKey", "kms:GetKeyPolicy", "kms:GetKeyRotationStatus", "kms:ListGrants",
    "kms:ListKeyPolicies", "kms:ListKeyRotations", "kms:ListResourceTags", "kms:PutKeyPolicy",
    "kms:RetireGrant", "kms:RevokeGrant", "kms:ScheduleKeyDeletion", "kms:TagResource", "kms:UntagResource",
    "kms:UpdateAlias", "kms:UpdateKeyDescription",
)  # fmt: skip


class CustomerKey(Construct):
    """A key and its alias.

    Args:
        users: further statements of its policy, in which the resource `*` is the key itself.

    Attributes:
        arn: the key.
    """

    def __init__(
        self, scope: Construct, id_: str, *, alias: str, description: str, location: AwsLocation,
        users: Sequence[dict[str, Any]] = (),
    ) -> None:  # fmt: skip
        super().__init__(scope, id_)
        account = f"arn:{location.partition}:iam::{location.account}:root"
        owner = allow(KEY_ADMINISTRATION, ["*"]) | {"Principal": {"AWS": account}}
        key = kms.CfnKey(
            self, "Key", description=description, enable_key_rotation=True, pending_window_in_days=DELETION_WINDOW_DAYS,
            key_policy=policy_document(owner, *users),
        )  # fmt: skip
        key.apply_removal_policy(RemovalPolicy.DESTROY)
        kms.CfnAlias(self, "Alias", alias_name=alias, target_key_id=key.ref)
        self.arn = key.attr_arn
