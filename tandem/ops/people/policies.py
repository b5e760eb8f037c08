"""The IAM policy of each kind, as one document: rights on the same place stand in one statement.

Places with the same actions and the same condition share a statement too.

Invariant: the same environment gives the same documents; no action is a wildcard.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tandem.ops.people.policy_targets import TargetName, build_targets
from tandem.ops.people.rights import list_rights
from tandem.spec.environment import Environment
from tandem.spec.names import PeopleKind

MAX_POLICY_CHARACTERS = 6144  # of a managed policy, white space not counted: IAM user guide, "IAM and AWS STS quotas"


def build_policy(environment: Environment, kind: PeopleKind) -> dict[str, Any]:
    """Return the policy of one kind."""
    return {"Version": "2012-10-17", "Statement": list(_build_statements(environment, kind))}


def count_policy_characters(document: dict[str, Any]) -> int:
    """Return how many characters of a document IAM counts."""
    return len("".join(json.dumps(document).split()))


def _build_statements(environment: Environment, kind: PeopleKind) -> Iterator[dict[str, Any]]:
    actions: dict[TargetName, set[str]] = {}
    for right in list_rights(kind):
        actions.setdefault(right.target, set()).update(right.actions)
    targets = build_targets(environment)
    statements: dict[str, dict[str, Any]] = {}
    for target_name, action_names in actions.items():
        condition = {key: dict(value) for key, value in targets[target_name].condition.items()}
        statement = {"Effect": "Allow", "Action": sorted(action_names), "Resource": []}
        first_statement = statements.setdefault(json.dumps([statement, condition]), statement)
        first_statement["Resource"] += targets[target_name].arns
        if condition:
            first_statement["Condition"] = condition
    yield from (statement for statement in statements.values() if statement["Resource"])
