"""The IAM policy of each kind, as one document: rights on the same place stand in one statement.

Places with the same actions and the same condition share a statement too.

Invariant: the same environment gives the same documents; no action is a wildcard.
"""

from __future__ import annotations

import json
from typing import Any

from tandem.ops.people.policy_targets import build_targets
from tandem.ops.people.rights import list_rights
from tandem.spec.environment import Environment
from tandem.spec.names import PeopleKind

MAX_POLICY_CHARACTERS = 6144  # of a managed policy, white space not counted: IAM user guide, "IAM and AWS STS quotas"


def build_policy(environment: Environment, kind: PeopleKind) -> dict[str, Any]:
    """Return the policy of one kind."""
    actions: dict[str, set[str]] = {}
    for right in list_rights(kind):
        actions.setdefault(right.target, set()).update(right.actions)
    targets = build_targets(environment)
    statements: dict[str, dict[str, Any]] = {}
    for target_name, action_names in actions.items():
        target = targets[target_name]
        statement = {"Effect": "Allow", "Action": sorted(action_names), "Resource": []}
        first_statement = statements.setdefault(json.dumps([statement, target.condition]), statement)
        first_statement["Resource"] += target.arns
        if target.condition:
            first_statement["Condition"] = target.condition
    return {"Version": "2012-10-17", "Statement": [row for row in statements.values() if row["Resource"]]}


def count_policy_characters(document: dict[str, Any]) -> int:
    """Return how many characters of a document IAM counts."""
    return len("".join(json.dumps(document).split()))
