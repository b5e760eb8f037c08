"""Roles, functions, log groups and customer keys, which are alike in every part of an environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from stacks.policy import Conditions, Statement, allow, policy_document
from tandem.ops.guard_config import build_arn
from tandem.spec.environment import Environment

LAMBDA = "lambda.amazonaws.com"
MEMORY_MIB = 256  # of each function
DELETION_WINDOW_DAYS = 30  # KMS's longest wait before a key is gone for good
KEY_ADMINISTRATION = (
    "kms:CancelKeyDeletion", "kms:CreateAlias", "kms:CreateGrant", "kms:Decrypt", "kms:DeleteAlias",
    "kms:DescribeKey", "kms:DisableKey", "kms:DisableKeyRotation", "kms:EnableKey", "kms:EnableKeyRotation",
    "kms:Encrypt", "kms:GenerateDataKey", "kms:GetKeyPolicy", "kms:GetKeyRotationStatus", "kms:ListGrants",
    "kms:ListKeyPolicies", "kms:ListKeyRotations", "kms:ListResourceTags", "kms:PutKeyPolicy",
    "kms:RetireGrant", "kms:RevokeGrant", "kms:ScheduleKeyDeletion", "kms:TagResource", "kms:UntagResource",
    "kms:UpdateAlias", "kms:UpdateKeyDescription",
)  # fmt: skip
# CloudWatch Logs user guide, "Encrypt log data in CloudWatch Logs using AWS KMS", with its wildcards written out
LOG_KEY_ACTIONS = (
    "kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyPair",
    "kms:GenerateDataKeyPairWithoutPlaintext", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)  # fmt: skip


def add_role(
    scope: Construct, service: str, *, policy_name: str, statements: Sequence[Statement] = (),
    conditions: Conditions | None = None, actions: Sequence[str] = ("sts:AssumeRole",),
    managed_policy_arns: Sequence[str] = (), name: str | None = None,
) -> iam.CfnRole:  # fmt: skip
    """Add the role of `scope`, which one service may assume.

    cdk-nag finds each AWS policy and each resource with a `*`; tests/stacks/nag_reasons.yaml has the reason for each.

    Args:
        policy_name: of the inline policy. statements: of that policy; none, no policy.
        conditions: under which the service may assume the role. actions: of the trust.
    """
    inline_policy = iam.CfnRole.PolicyProperty(policy_name=policy_name, policy_document=policy_document(*statements))
    return iam.CfnRole(
        scope, "Role", role_name=name, managed_policy_arns=list(managed_policy_arns) or None,
        assume_role_policy_document=policy_document(allow(actions, service=service, conditions=conditions)),
        policies=[inline_policy] if statements else None,
    )  # fmt: skip


def add_python_function(
    scope: Construct, role: iam.CfnRole, code: assets.Asset, log_group: logs.CfnLogGroup, *, timeout_s: int,
    **properties: Any,
) -> lambda_.CfnFunction:  # fmt: skip
    """Add the function of `scope`, whose handler is in `code`."""
    return lambda_.CfnFunction(
        scope, "Function", runtime="python3.13", handler="handler.handler", role=role.attr_arn, timeout=timeout_s,
        memory_size=MEMORY_MIB, logging_config=lambda_.CfnFunction.LoggingConfigProperty(log_group=log_group.ref),
        code=lambda_.CfnFunction.CodeProperty(s3_bucket=code.s3_bucket_name, s3_key=code.s3_object_key), **properties,
    )  # fmt: skip


def add_log_group(
    scope: Construct, id_: str, retention_days: int, *, name: str | None = None, key_arn: str | None = None
) -> logs.CfnLogGroup:
    """Add a log group with a retention in days that is deleted with its stack."""
    group = logs.CfnLogGroup(scope, id_, log_group_name=name, retention_in_days=retention_days, kms_key_id=key_arn)
    group.apply_removal_policy(RemovalPolicy.DESTROY)
    return group


def add_customer_key(
    scope: Construct, environment: Environment, *, alias: str, description: str, users: Sequence[Statement] = ()
) -> str:
    """Add the key of `scope`, rotated yearly and administered by its account, and return its ARN.

    Args:
        users: further statements of its policy, in which the resource `*` is the key itself.
    """
    account_arn = build_arn(environment, "iam", "root", region="")
    owner = allow(KEY_ADMINISTRATION, ["*"]) | {"Principal": {"AWS": account_arn}}
    key = kms.CfnKey(
        scope, "Key", description=description, enable_key_rotation=True, pending_window_in_days=DELETION_WINDOW_DAYS,
        key_policy=policy_document(owner, *users),
    )  # fmt: skip
    key.apply_removal_policy(RemovalPolicy.DESTROY)
    kms.CfnAlias(scope, "Alias", alias_name=alias, target_key_id=key.ref)
    return key.attr_arn


def allow_log_key(environment: Environment, operator: str, groups: str | list[str]) -> Statement:
    """Return the right of CloudWatch Logs to use a key for some log groups, and for nothing else.

    Args:
        operator: to compare the ARNs, ArnEquals or ArnLike.
        groups: ARNs of the log groups.
    """
    service = f"logs.{environment.region}.amazonaws.com"
    conditions = {operator: {"kms:EncryptionContext:aws:logs:arn": groups}}
    return allow(LOG_KEY_ACTIONS, ["*"], service=service, conditions=conditions)
