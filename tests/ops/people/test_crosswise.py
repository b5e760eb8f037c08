"""Two environments of one account whose names begin alike: neither may change what is the
other's."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from itertools import permutations
from typing import Any

import pytest
from committed import environment
from policy_trial import allows, documents, meant

from stacks.guard_rights import alarm_conditions, list_function_statements, list_schedule_statements
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.declarations.names import PEOPLE
from tandem.monitoring import alarms, guard_alarms
from tandem.ops.people.policy_targets import build_targets
from tandem.ops.people.rights import RIGHTS, list_policy_kinds

READS = re.compile(r":(BatchGet|Describe|Get|List|Lookup|View|Filter|Start(Query|LiveTail))")
SHARED = {"bootstrap roles"}  # one bootstrap of an account and region deploys all its environments
PAIRS = list(permutations(("prod", "prod-eu")))


def named(name: str) -> Environment:
    return environment("post-us-east-2").model_copy(update={"name": name})


@pytest.mark.parametrize(("mine", "theirs"), PAIRS)
@pytest.mark.parametrize("kind", PEOPLE)
def test_people_of_one_change_nothing_of_the_other(kind, mine, theirs):
    targets = build_targets(named(theirs))
    own = documents(named(mine), kind)
    requests = [
        (row.action, arn, context)
        for row in RIGHTS
        if row.kind in list_policy_kinds(kind)
        and row.target not in SHARED
        and not READS.search(row.action)
        for arn, context in meant(targets[row.target])
        if arn != "*"
    ]

    assert len(requests) > 0 or kind in {"viewer", "pipeline"}
    assert [request for request in requests if allows(own, *request)] == []


@pytest.mark.parametrize(("mine", "theirs"), PAIRS)
def test_the_guard_of_one_stops_nothing_of_the_other(mine, theirs):
    def statements(name: str) -> list[dict[str, Any]]:
        topic = f"arn:aws:sns:us-east-2:111122223333:{names.topic_name(named(name))}"
        key = f"arn:aws:kms:::key/{name}"
        queue = f"arn:aws:sqs:us-east-2:111122223333:{names.dead_letter_queue_name(named(name))}"
        return [
            *list_function_statements(named(name), topic_arn=topic, key_arn=key),
            *list_schedule_statements(named(name), queue_arn=queue, key_arn=key),
        ]

    requests = [
        (action, arn.replace("*", "x1"), statement.get("Condition", {}).get("StringEquals", {}))
        for statement in statements(theirs)
        for arn in statement["Resource"]
        for action in statement["Action"]
        if not READS.search(action) and (arn != "*" or "Condition" in statement)
    ]

    assert len(requests) > 10
    assert [
        request for request in requests if allows([{"Statement": statements(mine)}], *request)
    ] == []


@pytest.mark.parametrize(("mine", "theirs"), PAIRS)
def test_alarms_of_one_notify_no_topic_of_the_other(mine, theirs):
    pattern = alarm_conditions(named(mine))["ArnLike"]["aws:SourceArn"]
    kinds = (*alarms.COMPOSITE_KINDS, *guard_alarms.COMPOSITE_KINDS)
    own, foreign = (
        [
            f"arn:aws:cloudwatch:us-east-2:111122223333:alarm:{names.alarm_name(named(name), 'notify', kind)}"
            for kind in kinds
        ]
        for name in (mine, theirs)
    )

    assert all(fnmatchcase(arn, str(pattern)) for arn in own)
    assert not any(fnmatchcase(arn, str(pattern)) for arn in foreign)
