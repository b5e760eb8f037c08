"""The IAM policy of each kind, as one document: rights on the same place stand in one statement.

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
    on: dict[Where, list[str]] = {}
    for right in rights(kind):
        on.setdefault(right.on, []).extend(right.actions)
    known = places(environment)
    for where, actions in on.items():
        place = known[where]
        if place.arns:
            condition = {"Condition": {key: dict(value) for key, value in place.condition.items()}}
            yield {
                "Effect": "Allow", "Action": sorted(actions), "Resource": list(place.arns),
                **(condition if place.condition else {}),
            }  # fmt: skip
