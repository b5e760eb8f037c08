"""Roles, functions, log groups and customer keys, alike in every part of an environment."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.finding import Reasons, accept_finding, accept_rights
from stacks.policy import Conditions, Statement, allow, policy_document
from tandem.declarations.arns import build_arn
from tandem.declarations.environment import Environment

LAMBDA = "lambda.amazonaws.com"
MEMORY_MIB = 256  # of each function
DELETION_WINDOW_DAYS = 30  # KMS's longest wait before a key is gone for good
KEY_ADMINISTRATION = (
    "kms:CancelKeyDeletion",
    "kms:CreateAlias",
    "kms:CreateGrant",
    "kms:Decrypt",
    "kms:DeleteAlias",
    "kms:DescribeKey",
    "kms:DisableKey",
    "kms:DisableKeyRotation",
    "kms:EnableKey",
    "kms:EnableKeyRotation",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GetKeyPolicy",
    "kms:GetKeyRotationStatus",
    "kms:ListGrants",
    "kms:ListKeyPolicies",
    "kms:ListKeyRotations",
    "kms:ListResourceTags",
    "kms:PutKeyPolicy",
    "kms:RetireGrant",
    "kms:RevokeGrant",
    "kms:ScheduleKeyDeletion",
    "kms:TagResource",
    "kms:UntagResource",
    "kms:UpdateAlias",
    "kms:UpdateKeyDescription",
)
# CloudWatch Logs user guide, "Encrypt log data in CloudWatch Logs using AWS KMS", with its
# wildcards written out
LOG_KEY_ACTIONS = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyPair",
    "kms:GenerateDataKeyPairWithoutPlaintext",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)


def add_role(
    scope: Construct,
    service: str,
    *,
    policy_name: str,
    statements: Sequence[Statement],
    conditions: Conditions | None = None,
    actions: Sequence[str] = ("sts:AssumeRole",),
    managed_policy_arns: Sequence[str] = (),
    name: str | None = None,
    reasons: Reasons = MappingProxyType({}),
) -> iam.CfnRole:
    """Add the role of `scope`, which one service may assume.

    Args:
        policy_name: of the inline policy.
        statements: of that policy; none, no policy.
        conditions: under which the service may assume the role.
        actions: of the trust.
        reasons: why the role has a policy of AWS, or a resource with a `*`; cdk-nag finds both.
    """
    inline_policy = iam.CfnRole.PolicyProperty(
        policy_name=policy_name, policy_document=policy_document(*statements)
    )
    role = iam.CfnRole(
        scope,
        "Role",
        role_name=name,
        managed_policy_arns=list(managed_policy_arns) or None,
        assume_role_policy_document=policy_document(
            allow(actions, service=service, conditions=conditions)
        ),
        policies=[inline_policy] if statements else None,
    )
    accept_rights(role, reasons, statements=statements, managed_policies=managed_policy_arns)
    return role


def add_python_function(
    scope: Construct,
    role: iam.CfnRole,
    code: lambda_.Code,
    log_group: logs.ILogGroup,
    *,
    timeout_s: int,
    **properties: Any,
) -> lambda_.Function:
    """Add the function of `scope`, whose handler is in `code`.

    The function sees its role as a foreign one, so that nothing can add a right to it.
    """
    function = lambda_.Function(
        scope,
        "Function",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="handler.handler",
        role=iam.Role.from_role_arn(scope, "OwnRole", role.attr_arn, mutable=False),
        timeout=Duration.seconds(timeout_s),
        memory_size=MEMORY_MIB,
        log_group=log_group,
        code=code,
        **properties,
    )
    accept_finding(function, "L1", "the Python is that of the tools image; ours to move")
    return function


def add_log_group(
    scope: Construct,
    id_: str,
    retention_days: int,
    *,
    name: str | None = None,
    key: kms.IKey | None,
    removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
) -> logs.LogGroup:
    """Add a log group with a retention in days, by default deleted with its stack."""
    group = logs.LogGroup(
        scope, id_, log_group_name=name, encryption_key=key, removal_policy=removal_policy
    )
    # a LogGroup takes no number of days
    resource = group.node.default_child
    assert isinstance(resource, logs.CfnLogGroup)
    resource.retention_in_days = retention_days
    return group


def add_customer_key(
    scope: Construct,
    environment: Environment,
    *,
    alias: str,
    description: str,
    users: Sequence[Statement] = (),
) -> kms.Key:
    """Add the key of `scope`, rotated yearly and administered by its account.

    Its policy is written here, because the CDK's own would allow the account `kms:*`.

    Args:
        users: further statements of its policy, in which the resource `*` is the key itself.
    """
    account_arn = build_arn(environment, "iam", "root", region="")
    owner = allow(KEY_ADMINISTRATION, ["*"]) | {"Principal": {"AWS": account_arn}}
    key = kms.Key(
        scope,
        "Key",
        description=description,
        enable_key_rotation=True,
        pending_window=Duration.days(DELETION_WINDOW_DAYS),
        policy=iam.PolicyDocument.from_json(policy_document(owner, *users)),
        removal_policy=RemovalPolicy.DESTROY,
    )
    # by the key's id, as KMS lists it; an alias of the CDK names the ARN
    kms.CfnAlias(scope, "Alias", alias_name=alias, target_key_id=key.key_id)
    return key


def import_log_key(scope: Construct, environment: Environment) -> kms.IKey | None:
    """Return the operator's log key, whose policy stays its owner's; None if undeclared."""
    arn = environment.log_kms_key_arn
    if not arn:
        return None
    return kms.Key.from_key_arn(scope, "LogKey", arn)


def allow_log_key(environment: Environment, operator: str, groups: str | list[str]) -> Statement:
    """Return the right of CloudWatch Logs to use a key for some log groups, and for nothing else.

    Args:
        operator: to compare the ARNs, ArnEquals or ArnLike.
        groups: ARNs of the log groups.
    """
    service = f"logs.{environment.region}.amazonaws.com"
    conditions = {operator: {"kms:EncryptionContext:aws:logs:arn": groups}}
    return allow(LOG_KEY_ACTIONS, ["*"], service=service, conditions=conditions)
