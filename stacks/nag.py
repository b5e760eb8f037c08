"""Written reasons for findings of cdk-nag that stand.

Invariant: a reason names the full id of one finding on one construct; no rule is switched off.
"""

from __future__ import annotations

from aws_cdk import Acknowledgment, Validations
from constructs import IConstruct

PACK = "AwsSolutions"


def acknowledge_findings(construct: IConstruct, reasons: dict[str, str]) -> None:
    """Record, for each finding id such as `AwsSolutions-IAM4[Policy::...]`, why it stands."""
    Validations.of(construct).acknowledge(
        *(Acknowledgment(id=f"{PACK}::{finding}", reason=reason) for finding, reason in reasons.items())
    )
