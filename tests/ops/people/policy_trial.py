"""IAM's judgement in small: whether documents allow one action on one resource, by the rules of the
IAM user guide.

An allowance needs a statement whose action, resource and every condition match; there is no Deny in
these documents. A variable in a resource is the caller's own value; without one, IAM lets the
statement match nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tandem.declarations.environment import Environment
from tandem.declarations.names import PeopleKind
from tandem.ops.people.policies import build_policy
from tandem.ops.people.policy_targets import PolicyTarget, build_targets
from tandem.ops.people.rights import RIGHTS, list_policy_kinds

Context = Mapping[str, str]
# aws:userid of a role's session (IAM user guide, "Request information that you can use")
USER = "AROAEXAMPLEID:anna"
VARIABLE = re.compile(r"\$\{(?P<key>[\w:]+)\}")


def allows(documents: Iterable[Mapping[str, Any]], action: str, arn: str, context: Context) -> bool:
    return any(
        action in statement["Action"]
        and any(_like(_fill_in(pattern, context), arn) for pattern in statement["Resource"])
        and _holds(statement.get("Condition", {}), context)
        for document in documents
        for statement in document["Statement"]
    )


def _fill_in(pattern: str, context: Context) -> str:
    return VARIABLE.sub(lambda match: context.get(match["key"], "\0"), pattern)


def _like(pattern: str, text: str) -> bool:
    spelt = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(spelt, text) is not None


def _holds(condition: Mapping[str, Mapping[str, Any]], context: Context) -> bool:
    for operator, keys in condition.items():
        assert operator in {"StringEquals", "ForAnyValue:StringEquals"}, operator
        for key, values in keys.items():
            if context.get(key) not in ([values] if isinstance(values, str) else values):
                return False
    return True


def documents(environment: Environment, kind: PeopleKind) -> list[dict[str, Any]]:
    """What somebody of a kind has."""
    return [build_policy(environment, person_kind) for person_kind in list_policy_kinds(kind)]


def meant(place: PolicyTarget) -> list[tuple[str, Context]]:
    """A request on each ARN of a place, as AWS would send it to be judged: ids and names in place
    of wildcards."""
    context = {"aws:userid": USER} | {
        key: value if isinstance(value, str) else value[0]
        for keys in place.condition.values()
        for key, value in keys.items()
    }
    own = [_fill_in(arn, context) for arn in place.arns]
    return [
        (arn if arn == "*" else arn.replace("??????", "AbCdEf").replace("*", "x1"), context)
        for arn in own
    ]


def requests(environment: Environment, command: str) -> list[tuple[str, str, Context]]:
    """Every request of a command: each action on each place where the command's rows have it."""
    targets = build_targets(environment)
    return [
        (row.action, arn, context)
        for row in RIGHTS
        if row.need == command and row.action
        for arn, context in meant(targets[row.target])
    ]
