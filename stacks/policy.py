"""IAM policy documents as the JSON an operator reads in the console.

Invariant: no statement has a wildcard action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Conditions = Mapping[str, Mapping[str, str | Sequence[str]]]


def policy_document(*statements: dict[str, Any]) -> dict[str, Any]:
    """Return a policy document."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(
    actions: Sequence[str], resources: Sequence[str] = (), *, service: str | None = None,
    conditions: Conditions | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return a statement that allows `actions`.

    Args:
        resources: for an identity policy.
        service: the principal, for a trust policy.
    """
    return {
        "Effect": "Allow",
        **({"Principal": {"Service": service}} if service else {}),
        "Action": list(actions),
        **({"Resource": list(resources)} if resources else {}),
        **({"Condition": conditions} if conditions else {}),
    }
