"""Budgets and timed rules beyond plain MiniStack."""

from __future__ import annotations

import itertools

import pytest
from twin_looking import client

from rehearsal.aws.fleet_behavior import FleetBehavior

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]

_NUMBER = itertools.count()
NOTIFICATION = {
    "Notification": {
        "NotificationType": "ACTUAL",
        "ComparisonOperator": "GREATER_THAN",
        "Threshold": 80,
    },
    "Subscribers": [{"SubscriptionType": "EMAIL", "Address": "ops@example.com"}],
}


def budget(name, amount=250, *notifications):
    return {
        "Money": {
            "Type": "AWS::Budgets::Budget",
            "Properties": {
                "Budget": {
                    "BudgetName": name,
                    "BudgetType": "COST",
                    "TimeUnit": "DAILY",
                    "BudgetLimit": {"Amount": amount, "Unit": "USD"},
                },
                "NotificationsWithSubscribers": list(notifications or (NOTIFICATION,)),
            },
        }
    }


@pytest.fixture
def name():
    return f"guarded-{next(_NUMBER)}"


def test_a_budget_keeps_whom_it_tells_while_its_limit_changes(endpoint, deploy, name):
    stack = deploy(budget(name))
    deploy(budget(name, 300), stack.name, update=True)
    answer = client(endpoint, "budgets").describe_notifications_for_budget(
        AccountId=endpoint.account, BudgetName=name
    )
    assert [row["Threshold"] for row in answer["Notifications"]] == [80]


@pytest.fixture
def count_messages(endpoint, deploy, name):
    """A rule that puts a message into a queue every five minutes; how many stand there."""
    endpoint.set_fleet()
    deploy(
        {
            "Queue": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": name}},
            "Rule": {
                "Type": "AWS::Events::Rule",
                "Properties": {
                    "Name": name,
                    "ScheduleExpression": "rate(5 minutes)",
                    "State": "ENABLED",
                    "Targets": [{"Id": "queue", "Arn": {"Fn::GetAtt": ["Queue", "Arn"]}}],
                },
            },
        }
    )
    sqs = client(endpoint, "sqs")
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]

    def count():
        answer = sqs.get_queue_attributes(
            QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"]
        )
        return int(answer["Attributes"]["ApproximateNumberOfMessages"])

    yield count
    endpoint.set_fleet()


def test_a_timed_rule_fires_when_the_clock_has_passed_its_time(endpoint, count_messages):
    counts = []
    for offset in (290, 310, 320, 620):
        endpoint.set_fleet(FleetBehavior(clock_offset_s=offset))
        counts.append(count_messages())

    assert counts == [0, 1, 1, 2]
