"""Alarms in CloudFormation: metric alarms that notify nobody, and composite alarms that notify the topic.

Invariant: a composite alarm is made after every alarm that it names, and deleted before them: CloudWatch refuses a rule
of missing alarms, and keeps an alarm that a rule still names.
"""

from __future__ import annotations

from constructs import Construct

from stacks.fragment import Fragment, Properties
from tandem.monitoring.alarm import (
    SUPPRESSOR_EXTENSION_S,
    SUPPRESSOR_WAIT_S,
    CompositeAlarm,
    EnvironmentAlarms,
    MetricAlarm,
)
from tandem.monitoring.widget import MathExpression, MetricLine

SCOPE = "Alarms"  # in every stack with alarms
COMPARISONS = {"above": "GreaterThanThreshold", "below": "LessThanThreshold"}


def add_alarms(stack: Construct, alarms: EnvironmentAlarms, topic_arn: str) -> None:
    """Add all alarms of an environment, in one fragment.

    Args:
        topic_arn: notified when a composite alarm begins, and when it ends.
    """
    fragment, ids = Fragment(), dict[str, str]()
    for alarm in filter(None, (*alarms.alarms, alarms.suppressor)):
        properties = build_alarm_properties(alarm)
        ids[alarm.name] = fragment.add_resource((SCOPE, alarm.name), "AWS::CloudWatch::Alarm", properties)
    for composite in alarms.composites:
        properties = _build_composite_properties(composite, topic_arn)
        named_ids = [ids[name] for name in (*composite.alarms, composite.suppressor) if name]
        ids[composite.name] = fragment.add_resource(
            (SCOPE, composite.name), "AWS::CloudWatch::CompositeAlarm", properties, waits_for=named_ids
        )
    fragment.include(stack, SCOPE)


def build_alarm_properties(alarm: MetricAlarm) -> Properties:
    """Return the properties of one metric alarm, of one metric or of metric math."""
    line = alarm.lines[0]
    source: Properties = {"Metrics": [_build_query(line, alarm.period_s) for line in alarm.lines]}
    if len(alarm.lines) == 1 and isinstance(line, MetricLine):
        statistic = "ExtendedStatistic" if line.statistic.startswith("p") else "Statistic"
        source = {**_build_metric(line), "Period": alarm.period_s, statistic: line.statistic}
    if alarm.low_samples:
        source["EvaluateLowSampleCountPercentile"] = alarm.low_samples
    return source | {
        "AlarmName": alarm.name, "AlarmDescription": alarm.description, "TreatMissingData": alarm.missing,
        "ComparisonOperator": COMPARISONS[alarm.comparison], "Threshold": alarm.threshold,
        "EvaluationPeriods": alarm.periods, "DatapointsToAlarm": alarm.datapoints,
    }  # fmt: skip


def _build_query(line: MetricLine | MathExpression, period_s: int) -> Properties:
    query = {"Id": line.id, "ReturnData": line.is_visible, **({"Label": line.label} if line.label else {})}
    if isinstance(line, MathExpression):
        return {**query, "Expression": line.text, "Period": period_s}
    assert line.id is not None, f"{line.metric} stands in an expression and has no id"
    return {**query, "MetricStat": {"Metric": _build_metric(line), "Period": period_s, "Stat": line.statistic}}


def _build_metric(line: MetricLine) -> Properties:
    dimensions = [{"Name": name, "Value": value} for name, value in line.dimensions]
    return {"Namespace": line.namespace, "MetricName": line.metric, "Dimensions": dimensions}


def _build_composite_properties(composite: CompositeAlarm, topic_arn: str) -> Properties:
    suppression = {
        "ActionsSuppressor": composite.suppressor, "ActionsSuppressorWaitPeriod": SUPPRESSOR_WAIT_S,
        "ActionsSuppressorExtensionPeriod": SUPPRESSOR_EXTENSION_S,
    }  # fmt: skip
    return {
        "AlarmName": composite.name, "AlarmDescription": composite.description, "AlarmRule": composite.rule,
        "AlarmActions": [topic_arn], "OKActions": [topic_arn],
        **(suppression if composite.suppressor else {}),
    }  # fmt: skip
