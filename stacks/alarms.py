"""Alarms in CloudFormation: metric alarms notify nobody, composite alarms notify the topic.

Invariant: a composite alarm is made after every alarm that it names, and deleted before them.
CloudWatch refuses a rule of missing alarms, and keeps an alarm that a rule still names.
"""

from __future__ import annotations

from typing import Any

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from tandem.monitoring.alarm import (
    SUPPRESSOR_EXTENSION_S,
    SUPPRESSOR_WAIT_S,
    CompositeAlarm,
    EnvironmentAlarms,
    MetricAlarm,
)
from tandem.monitoring.widget import MathExpression, MetricLine

COMPARISONS = {"above": "GreaterThanThreshold", "below": "LessThanThreshold"}
_Alarm = cloudwatch.CfnAlarm


def add_alarms(scope: Construct, alarms: EnvironmentAlarms, topic_arn: str) -> None:
    """Add all alarms of an environment to `scope`.

    Args:
        topic_arn: notified when a composite alarm begins, and when it ends.
    """
    resources = {}
    for alarm in alarms.alarms:
        resources[alarm.name] = _add_metric_alarm(scope, alarm)
    if alarms.suppressor:
        resources[alarms.suppressor.name] = _add_metric_alarm(scope, alarms.suppressor)

    for composite in alarms.composites:
        names = list(composite.alarms)
        if composite.suppressor:
            names.append(composite.suppressor)
        resource = _add_composite_alarm(scope, composite, topic_arn)
        resource.node.add_dependency(*(resources[name] for name in names))


def _add_metric_alarm(scope: Construct, alarm: MetricAlarm) -> cloudwatch.CfnAlarm:
    """Add an alarm on one metric or on metric math.

    `cloudwatch.Alarm` would write its own ids and labels into metric math.
    """
    return cloudwatch.CfnAlarm(
        scope,
        alarm.name,
        alarm_name=alarm.name,
        alarm_description=alarm.description,
        treat_missing_data=alarm.missing,
        comparison_operator=COMPARISONS[alarm.comparison],
        threshold=alarm.threshold,
        evaluation_periods=alarm.periods,
        datapoints_to_alarm=alarm.datapoints,
        evaluate_low_sample_count_percentile=alarm.low_samples,
        **_build_source(alarm),
    )


def _build_source(alarm: MetricAlarm) -> dict[str, Any]:
    """Return the properties that say what an alarm compares: one metric, or a query a line."""
    line = alarm.lines[0]
    if len(alarm.lines) > 1 or isinstance(line, MathExpression):
        return {"metrics": [_build_query(line, alarm.period_s) for line in alarm.lines]}
    statistic = "extended_statistic" if line.statistic.startswith("p") else "statistic"
    return {
        "namespace": line.namespace,
        "metric_name": line.metric,
        "dimensions": _build_dimensions(line),
        "period": alarm.period_s,
        statistic: line.statistic,
    }


def _build_query(
    line: MetricLine | MathExpression, period_s: int
) -> cloudwatch.CfnAlarm.MetricDataQueryProperty:
    if isinstance(line, MathExpression):
        return _Alarm.MetricDataQueryProperty(
            id=line.id,
            label=line.label or None,
            return_data=line.is_visible,
            expression=line.text,
            period=period_s,
        )
    assert line.id is not None, f"{line.metric} stands in an expression and has no id"
    metric = _Alarm.MetricProperty(
        namespace=line.namespace, metric_name=line.metric, dimensions=_build_dimensions(line)
    )
    return _Alarm.MetricDataQueryProperty(
        id=line.id,
        label=line.label or None,
        return_data=line.is_visible,
        metric_stat=_Alarm.MetricStatProperty(metric=metric, period=period_s, stat=line.statistic),
    )


def _build_dimensions(line: MetricLine) -> list[cloudwatch.CfnAlarm.DimensionProperty]:
    return [_Alarm.DimensionProperty(name=name, value=value) for name, value in line.dimensions]


def _add_composite_alarm(
    scope: Construct, composite: CompositeAlarm, topic_arn: str
) -> cloudwatch.CfnCompositeAlarm:
    """Add an alarm that notifies the topic; a suppressor silences it while in alarm."""
    is_muted = composite.suppressor is not None
    return cloudwatch.CfnCompositeAlarm(
        scope,
        composite.name,
        alarm_name=composite.name,
        alarm_description=composite.description,
        alarm_rule=composite.rule,
        alarm_actions=[topic_arn],
        ok_actions=[topic_arn],
        actions_suppressor=composite.suppressor,
        actions_suppressor_wait_period=SUPPRESSOR_WAIT_S if is_muted else None,
        actions_suppressor_extension_period=SUPPRESSOR_EXTENSION_S if is_muted else None,
    )
