"""Alarms of one metric at the local endpoint: values make them fire, and a queue behind the topic hears of it.

The endpoint evaluates no metric math, no row of periods and no dimensions: it compares a statistic of all values of a
metric's name within the look back. So each case has an environment, and so a namespace, of its own. A suppressor in
alarm silences a composite; the waits before and after that are not kept to.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from alarmed import BASELINE, DRAFTING, REFERENCE, of, watched

from rehearsal.aws.endpoint import AwsEndpoint
from tandem.monitoring.alarm import EnvironmentAlarms, MetricAlarm
from tandem.monitoring.alarms import build_alarms
from tandem.monitoring.widget import MathExpression, MetricLine

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("watch-endpoint")]

COMPARISONS = {"above": "GreaterThanThreshold", "below": "LessThanThreshold"}
HEARD_S = 10.0


@pytest.fixture(scope="module")
def endpoint() -> Iterator[AwsEndpoint]:
    with AwsEndpoint(account="555566667777", region="us-east-2", report=lambda _: None) as running:
        yield running


def named(name: str) -> EnvironmentAlarms:
    scope = watched(only=["post"], reference=REFERENCE)
    return build_alarms(replace(scope, environment=scope.environment.model_copy(update={"name": name})))


def metric(line: MetricLine) -> dict[str, Any]:
    dimensions = [{"Name": name, "Value": value} for name, value in line.dimensions]
    return {"Namespace": line.namespace, "MetricName": line.metric, "Dimensions": dimensions}


def query(line: MetricLine | MathExpression, period_s: int) -> dict[str, Any]:
    if isinstance(line, MathExpression):
        return {"Id": line.id, "Expression": line.text, "Label": line.label, "ReturnData": line.is_visible}
    stat = {"Metric": metric(line), "Period": period_s, "Stat": line.statistic}
    return {"Id": line.id, "MetricStat": stat, "ReturnData": line.is_visible}


def request(alarm: MetricAlarm) -> dict[str, Any]:
    """What PutMetricAlarm is asked."""
    asked = {
        "AlarmName": alarm.name, "AlarmDescription": alarm.description, "Threshold": alarm.threshold,
        "ComparisonOperator": COMPARISONS[alarm.comparison], "EvaluationPeriods": alarm.periods,
        "DatapointsToAlarm": alarm.datapoints, "TreatMissingData": alarm.missing,
    }  # fmt: skip
    if alarm.low_samples:
        asked["EvaluateLowSampleCountPercentile"] = alarm.low_samples
    if len(alarm.lines) > 1:
        return {**asked, "Metrics": [query(line, alarm.period_s) for line in alarm.lines]}
    (line,) = alarm.lines
    assert isinstance(line, MetricLine)
    statistic = "ExtendedStatistic" if line.statistic.startswith("p") else "Statistic"
    return {**asked, **metric(line), "Period": alarm.period_s, statistic: line.statistic}


class Listening:
    """One environment's alarms at the endpoint, and the queue that hears of them."""

    def __init__(self, endpoint: AwsEndpoint, name: str) -> None:
        self.cloudwatch, self._sqs, sns = (endpoint.client(one) for one in ("cloudwatch", "sqs", "sns"))
        self.alarms = named(name)
        topic = sns.create_topic(Name=f"tandem-{name}-alarms")["TopicArn"]
        self._queue = self._sqs.create_queue(QueueName=f"heard-{name}")["QueueUrl"]
        arn = self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn["Attributes"]["QueueArn"])
        for alarm in (*self.alarms.alarms, *([self.alarms.suppressor] if self.alarms.suppressor else [])):
            self.cloudwatch.put_metric_alarm(**request(alarm))
        for composite in self.alarms.composites:
            self.cloudwatch.put_composite_alarm(
                AlarmName=composite.name, AlarmDescription=composite.description, AlarmRule=composite.rule,
                AlarmActions=[topic], ActionsSuppressor=composite.suppressor,
                ActionsSuppressorWaitPeriod=composite.wait_s, ActionsSuppressorExtensionPeriod=composite.extension_s,
            )  # fmt: skip

    def send(self, alarm: MetricAlarm, values: list[float]) -> None:
        (line,) = (line for line in alarm.lines if isinstance(line, MetricLine))
        asked = metric(line)
        self.cloudwatch.put_metric_data(
            Namespace=asked.pop("Namespace"),
            MetricData=[{**asked, "Timestamp": datetime.now(UTC), "Values": values, "Counts": [1] * len(values)}],
        )

    def state(self, alarm: MetricAlarm) -> str:
        (found,) = self.cloudwatch.describe_alarms(AlarmNames=[alarm.name])["MetricAlarms"]
        return str(found["StateValue"])

    def heard(self) -> list[str]:
        """The composites that the queue was told of, once it was told of any."""
        until = time.monotonic() + HEARD_S
        while time.monotonic() < until:
            found = self._sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10).get("Messages", [])
            if found:
                return [json.loads(json.loads(one["Body"])["Message"])["AlarmName"] for one in found]
            time.sleep(0.05)
        return []

    def silent(self) -> bool:
        return "Messages" not in self._sqs.receive_message(QueueUrl=self._queue, WaitTimeSeconds=0)


@pytest.fixture
def listening(endpoint: AwsEndpoint, request: pytest.FixtureRequest) -> Callable[[str], Listening]:
    number = zlib.crc32(request.node.name.encode())

    def begin(what: str) -> Listening:
        return Listening(endpoint, f"{what}-{number}")

    return begin


PLAIN = [
    pytest.param("ttft", BASELINE, [200.0, 210.0, 900.0], [260.0 + at for at in range(9)], "latency", id="ttft"),
    pytest.param("tpot", DRAFTING, [15.0, 15.5, 90.0], [20.0 + at for at in range(9)], "latency", id="tpot"),
    pytest.param(
        "acceptance", DRAFTING, [4.0, 4.1, 1.0], [2.0 + at / 10 for at in range(9)], "drafting", id="acceptance"
    ),
]


@pytest.mark.parametrize(("what", "variant", "good", "bad", "kind"), PLAIN)
def test_medians_beyond_the_reference_reach_the_queue_and_good_ones_with_an_outlier_do_not(
    listening, what, variant, good, bad, kind
):
    begun = listening(what)
    alarm = of(begun.alarms, what, variant)

    begun.send(alarm, good)
    assert (begun.state(alarm), begun.silent()) == ("OK", True)
    begun.send(alarm, bad)

    assert begun.state(alarm) == "ALARM"
    (composite,) = begun.heard()
    assert composite.endswith(f"-notify-{kind}")


def test_a_parked_fleet_keeps_the_queue_silent(listening):
    begun = listening("muted")
    alarm = of(begun.alarms, "tpot", DRAFTING)
    assert begun.alarms.suppressor

    begun.send(begun.alarms.suppressor, [0.0])
    begun.send(alarm, [99.0])

    assert [begun.state(one) for one in (begun.alarms.suppressor, alarm)] == ["ALARM", "ALARM"]
    assert begun.silent()
