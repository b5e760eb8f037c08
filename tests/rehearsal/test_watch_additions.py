"""Alarms, dashboards and topics beyond plain MiniStack."""

from __future__ import annotations

import itertools
import json

import pytest

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]

_NUMBER = itertools.count()
QUERIES = [
    {
        "Id": "a",
        "ReturnData": False,
        "MetricStat": {
            "Metric": {
                "Namespace": "N",
                "MetricName": "m",
                "Dimensions": [{"Name": "d", "Value": "v"}],
            },
            "Period": 60,
            "Stat": "p50",
        },
    },
    {"Id": "b", "Expression": "100 * a", "ReturnData": True, "Period": 60},
]


def alarm(name, **more):
    metric = {"Namespace": "N", "MetricName": "m", "Statistic": "Sum", "Period": 60}
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "AlarmName": name,
            "EvaluationPeriods": 1,
            "Threshold": 1,
            "ComparisonOperator": "GreaterThanThreshold",
            **(more if "Metrics" in more else {**metric, **more}),
        },
    }


def composite(name, rule, **more):
    return {
        "Type": "AWS::CloudWatch::CompositeAlarm",
        "DependsOn": ["Child", "Muting"],
        "Properties": {"AlarmName": name, "AlarmRule": rule, **more},
    }


@pytest.fixture
def name():
    """A prefix that no other test has."""
    return f"n{next(_NUMBER)}"


@pytest.fixture
def inbox(endpoint, name):
    """A queue behind a topic: the alarms' names that it was told of."""
    sqs = endpoint.client("sqs")
    sns = endpoint.client("sns")
    topic = sns.create_topic(Name=name)["TopicArn"]
    queue = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)

    def act():
        messages = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
        return [
            json.loads(json.loads(message["Body"])["Message"])["AlarmName"] for message in messages
        ]

    act.topic = topic
    return act


def pair(name, topic, **more):
    return {
        "Child": alarm(f"{name}-child"),
        "Muting": alarm(f"{name}-muting"),
        "Called": composite(
            f"{name}-called", f'ALARM("{name}-child")', AlarmActions=[topic], **more
        ),
    }


def muted(name):
    return {
        "ActionsSuppressor": f"{name}-muting",
        "ActionsSuppressorWaitPeriod": 60,
        "ActionsSuppressorExtensionPeriod": 60,
    }


def into(endpoint, name, state):
    endpoint.client("cloudwatch").set_alarm_state(
        AlarmName=name, StateValue=state, StateReason="a test"
    )


def read_alarm(endpoint, name):
    client = endpoint.client("cloudwatch")
    (row,) = client.describe_alarms(AlarmNames=[f"{name}-called"], AlarmTypes=["CompositeAlarm"])[
        "CompositeAlarms"
    ]
    return row


def test_an_updated_alarm_is_as_its_new_template_says(deploy, check_resources, name):
    stack = deploy({"Share": alarm(name, Metrics=QUERIES, Threshold=5)})
    deploy(
        {
            "Share": alarm(
                name, Metrics=[*QUERIES[:1], {**QUERIES[1], "Expression": "2 * a"}], Threshold=7.5
            )
        },
        stack.name,
        update=True,
    )
    assert check_resources(stack.name)["Share"].differences == ()


def test_a_composite_tells_its_topic(endpoint, deploy, inbox, name):
    deploy(pair(name, inbox.topic, **muted(name)))
    into(endpoint, f"{name}-child", "ALARM")
    assert inbox() == [f"{name}-called"]


def test_a_muted_composite_is_in_alarm_and_tells_nobody(endpoint, deploy, inbox, name):
    deploy(pair(name, inbox.topic, **muted(name)))
    into(endpoint, f"{name}-muting", "ALARM")
    into(endpoint, f"{name}-child", "ALARM")

    alarm_row = read_alarm(endpoint, name)
    assert (alarm_row["StateValue"], alarm_row["ActionsSuppressedBy"], inbox()) == (
        "ALARM",
        "Alarm",
        [],
    )


@pytest.mark.parametrize(
    "body",
    ["{", '{"start": "-P1D"}', json.dumps({"widgets": [{}] * 501})],
    ids=["no-json", "no-widgets", "501-widgets"],
)
def test_rejects_a_dashboard_that_cannot_be_drawn(deploy, name, body):
    board = {
        "Type": "AWS::CloudWatch::Dashboard",
        "Properties": {"DashboardName": name, "DashboardBody": body},
    }
    assert "The dashboard body is invalid" in str(deploy({"Board": board}).reasons)
