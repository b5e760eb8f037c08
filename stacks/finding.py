"""Why a finding of cdk-nag's AwsSolutions stands, recorded at the construct that it is about.

Invariant: one reason answers one finding of one construct; no rule is switched off. A role's
wildcard without a reason stays a finding, and a new one fails the tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import aws_cdk as cdk
from constructs import IConstruct

from stacks.policy import Statement

PACK = "AwsSolutions"
Reasons = Mapping[str, str]
"""Pattern of an ARN -> why a role has it; of two patterns that fit, the first counts. `[*]` is the
star itself."""


def accept_finding(construct: IConstruct, finding: str, reason: str) -> None:
    """Record why a finding of `construct` stands.

    Args:
        finding: its rule, such as `SQS3`, and of IAM the policy or resource, as cdk-nag writes it.
    """
    acknowledge_finding(construct, f"{PACK}-{finding}", reason)


def accept_rights(
    construct: IConstruct,
    reasons: Reasons,
    *,
    statements: Sequence[Statement],
    managed_policies: Sequence[str] = (),
) -> None:
    """Record why each resource with a `*` in `statements`, and each AWS-managed policy, stands."""
    for arn in managed_policies:
        _accept_arn(construct, reasons, arn, f"IAM4[Policy::{arn}]")
    for arn in list_wildcards(statements):
        resource = re.sub(r"\$\{(.+?)\}", r"<\1>", arn)  # as cdk-nag writes a variable of a policy
        _accept_arn(construct, reasons, arn, f"IAM5[Resource::{resource}]")


def list_wildcards(statements: Sequence[Statement]) -> list[str]:
    """Return each resource with a `*`, once."""
    wildcards: dict[str, None] = {}
    for statement in statements:
        resources = statement.get("Resource", [])
        if isinstance(resources, str):
            resources = [resources]
        for arn in resources:
            if "*" in arn:
                wildcards[arn] = None
    return list(wildcards)


def acknowledge_finding(construct: IConstruct, id_: str, reason: str) -> None:
    """Tell the CDK, which keeps it with the construct."""
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=id_, reason=reason))


def _accept_arn(construct: IConstruct, reasons: Reasons, arn: str, finding: str) -> None:
    for pattern, reason in reasons.items():
        if fnmatchcase(arn, pattern):
            accept_finding(construct, finding, reason)
            return
