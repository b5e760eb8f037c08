"""Roles and log groups, which every part of an environment has alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.nag import acknowledge_findings
from stacks.policy import Conditions, allow, policy_document


def add_role(
    scope: Construct, service: str, *, policy_name: str, statements: Sequence[dict[str, Any]] = (),
    conditions: Conditions | None = None, actions: Sequence[str] = ("sts:AssumeRole",),
    managed_policy_arns: Sequence[str] = (), name: str | None = None, reasons: dict[str, str] | None = None,
) -> iam.CfnRole:  # fmt: skip
    """Add the role of `scope`, which one service may have.

    Args:
        policy_name: of the inline policy. statements: what it allows; none, no policy.
        conditions: under which the service may have the role. actions: how it takes it.
        reasons: for findings of cdk-nag that stand.
    """
    inline_policy = iam.CfnRole.PolicyProperty(policy_name=policy_name, policy_document=policy_document(*statements))
    role = iam.CfnRole(
        scope, "Role", role_name=name, managed_policy_arns=list(managed_policy_arns) or None,
        assume_role_policy_document=policy_document(allow(actions, service=service, conditions=conditions)),
        policies=[inline_policy] if statements else None,
    )  # fmt: skip
    if reasons:
        acknowledge_findings(role, reasons)
    return role


def add_log_group(
    scope: Construct, id_: str, retention_days: int, *, name: str | None = None, key_arn: str | None = None
) -> logs.CfnLogGroup:
    """Add a log group that forgets after some days and goes with its stack."""
    group = logs.CfnLogGroup(scope, id_, log_group_name=name, retention_in_days=retention_days, kms_key_id=key_arn)
    group.apply_removal_policy(RemovalPolicy.DESTROY)
    return group
