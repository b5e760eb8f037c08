"""The IAM policy of each kind, as one document: rights on the same place stand in one statement.

Places with the same actions and the same condition share a statement too.

Invariant: the same environment gives the same documents; no action is a wildcard.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tandem.ops.people.places import Where, places
from tandem.ops.people.rights import rights
from tandem.spec.environment import Environment
from tandem.spec.names import PeopleKind

MOST_CHARACTERS = 6144  # of a managed policy, white space not counted: IAM user guide, "IAM and AWS STS quotas"


def policy(environment: Environment, kind: PeopleKind) -> dict[str, Any]:
    """Return the policy of one kind."""
    return {"Version": "2012-10-17", "Statement": list(_statements(environment, kind))}


def size(document: dict[str, Any]) -> int:
    """Return how many characters of a document IAM counts."""
    return len("".join(json.dumps(document).split()))


def _statements(environment: Environment, kind: PeopleKind) -> Iterator[dict[str, Any]]:
    actions: dict[Where, set[str]] = {}
    for right in rights(kind):
        actions.setdefault(right.on, set()).update(right.actions)
    known = places(environment)
    merged: dict[str, dict[str, Any]] = {}
    for where, names in actions.items():
        condition = {key: dict(value) for key, value in known[where].condition.items()}
        statement = {"Effect": "Allow", "Action": sorted(names), "Resource": []}
        same = merged.setdefault(json.dumps([statement, condition]), statement)
        same["Resource"] += known[where].arns
        if condition:
            same["Condition"] = condition
    yield from (statement for statement in merged.values() if statement["Resource"])
