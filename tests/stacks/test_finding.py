"""What answers a finding of cdk-nag."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacks.finding import accept_rights
from stacks.policy import allow, policy_document

pytestmark = pytest.mark.cdk


def check_role(folder: Path, *, accepts: str) -> None:
    """Synthesize a role with two wildcards under cdk-nag, which raises on a finding."""
    import aws_cdk as cdk  # noqa: PLC0415  # seconds, as in conftest.py
    from aws_cdk import aws_iam as iam  # noqa: PLC0415
    from cdk_nag import AwsSolutionsChecks  # noqa: PLC0415

    root = cdk.App(
        outdir=str(folder), analytics_reporting=False, builtin_cloud_formation_validation=False
    )
    statements = [allow(["s3:GetObject"], ["arn:aws:s3:::mine/*", "*"])]
    role = iam.CfnRole(
        cdk.Stack(root, "Alone"),
        "Role",
        assume_role_policy_document=policy_document(
            allow(["sts:AssumeRole"], service="lambda.amazonaws.com")
        ),
        policies=[
            iam.CfnRole.PolicyProperty(
                policy_name="read", policy_document=policy_document(*statements)
            )
        ],
    )
    accept_rights(
        role, {"arn:*": "the objects are not known", accepts: "all"}, statements=statements
    )
    cdk.Validations.of(root).add_plugins(AwsSolutionsChecks(root, verbose=False))
    root.synth()


def test_reason_for_each_wildcard_answers_them(tmp_path: Path) -> None:
    check_role(tmp_path, accepts="[*]")


def test_wildcard_without_a_reason_is_a_finding(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        check_role(tmp_path, accepts="none")
