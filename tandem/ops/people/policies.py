"""The IAM policy of each kind and of the runner: a statement for all rights on a target.

Targets with the same actions and the same condition share a statement too.

Invariant: the same environment gives the same documents; no action is a wildcard.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tandem.declarations.environment import Environment
from tandem.declarations.names import PeopleKind
from tandem.ops.people.policy_targets import build_targets
from tandem.ops.people.rights import RIGHTS, RUNNER_RIGHTS, group_rights, list_rights

# of a managed policy, without white space: IAM user guide, "IAM and AWS STS quotas"
MAX_POLICY_CHARACTERS = 6144


def build_policy(environment: Environment, kind: PeopleKind) -> dict[str, Any]:
    """Return the policy of one kind: the rights that the kinds before it lack."""
    return _build_document(environment, list_rights(kind))


def build_command_policy(environment: Environment, *commands: str) -> dict[str, Any]:
    """Return the policy that allows the calls of commands, and nothing else."""
    return _build_document(
        environment, group_rights(right for right in RIGHTS if right.need in commands)
    )


def build_runner_policy(environment: Environment) -> dict[str, Any]:
    """Return the policy of the runner's role."""
    return _build_document(environment, group_rights(RUNNER_RIGHTS))


def _build_document(
    environment: Environment, actions: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    targets = build_targets(environment)
    statements: dict[str, dict[str, Any]] = {}
    for target_name, action_names in actions.items():
        target = targets[target_name]
        statement = {"Effect": "Allow", "Action": list(action_names), "Resource": []}
        first_statement = statements.setdefault(
            json.dumps([statement, target.condition]), statement
        )
        first_statement["Resource"] += target.arns
        if target.condition:
            first_statement["Condition"] = target.condition
    return {
        "Version": "2012-10-17",
        "Statement": [row for row in statements.values() if row["Resource"]],
    }


def count_policy_characters(document: dict[str, Any]) -> int:
    """Return how many characters of a document IAM counts."""
    return len("".join(json.dumps(document).split()))
