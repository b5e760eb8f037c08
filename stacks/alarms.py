"""Alarms in CloudFormation: metric alarms that tell nobody, and composite alarms that tell the topic.

Invariant: a composite alarm is made after every alarm that it names, and goes before them, because CloudWatch refuses
a rule of alarms that do not exist and keeps an alarm that a rule still names.
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
from tandem.monitoring.widget import Dimensions, MathExpression, MetricLine

_Alarm = cloudwatch.CfnAlarm
COMPARISONS = {"above": "GreaterThanThreshold", "below": "LessThanThreshold"}


def add_alarms(scope: Construct, alarms: EnvironmentAlarms, topic_arn: str) -> None:
    """Add all alarms of an environment.

    Args:
        topic_arn: told when a composite alarm begins, and when it ends.
    """
    parked_alarms = (alarms.suppressor,) if alarms.suppressor else ()
    alarms_by_name = {alarm.name: add_metric_alarm(scope, alarm) for alarm in (*alarms.alarms, *parked_alarms)}
    for composite in alarms.composites:
        resource = _add_composite_alarm(scope, composite, topic_arn)
        earlier_names = (*composite.alarms, *([composite.suppressor] if composite.suppressor else []))
        # all in one message to Node
        resource.node.add_dependency(*(alarms_by_name[name] for name in earlier_names))


def add_metric_alarm(scope: Construct, alarm: MetricAlarm) -> cloudwatch.CfnAlarm:
    """Add one metric alarm, of one metric or of metric math."""
    line = alarm.lines[0]
    properties: dict[str, Any] = {"metrics": [_build_query(line, alarm.period_s) for line in alarm.lines]}
    if len(alarm.lines) == 1 and isinstance(line, MetricLine):
        properties = {
            "metric_name": line.metric,
            "namespace": line.namespace,
            "dimensions": _list_dimensions(line.dimensions),
            "period": alarm.period_s,
            "extended_statistic" if line.statistic.startswith("p") else "statistic": line.statistic,
        }
    return cloudwatch.CfnAlarm(
        scope,
        alarm.name,
        alarm_name=alarm.name,
        alarm_description=alarm.description,
        comparison_operator=COMPARISONS[alarm.comparison],
        threshold=alarm.threshold,
        evaluation_periods=alarm.periods,
        datapoints_to_alarm=alarm.datapoints,
        treat_missing_data=alarm.missing,
        evaluate_low_sample_count_percentile=alarm.low_samples,
        **properties,
    )


def _build_query(line: MetricLine | MathExpression, period_s: int) -> _Alarm.MetricDataQueryProperty:
    query = _Alarm.MetricDataQueryProperty
    if isinstance(line, MathExpression):
        return query(id=line.id, label=line.label, expression=line.text, period=period_s, return_data=line.is_visible)
    assert line.id is not None, f"{line.metric} stands in an expression and has no id"
    dimensions = _list_dimensions(line.dimensions)
    metric = _Alarm.MetricProperty(namespace=line.namespace, metric_name=line.metric, dimensions=dimensions)
    stat = _Alarm.MetricStatProperty(metric=metric, period=period_s, stat=line.statistic)
    return query(id=line.id, label=line.label, metric_stat=stat, return_data=line.is_visible)


def _list_dimensions(dimensions: Dimensions) -> list[_Alarm.DimensionProperty]:
    return [_Alarm.DimensionProperty(name=name, value=value) for name, value in dimensions]


def _add_composite_alarm(scope: Construct, composite: CompositeAlarm, topic_arn: str) -> cloudwatch.CfnCompositeAlarm:
    has_suppressor = composite.suppressor is not None
    return cloudwatch.CfnCompositeAlarm(
        scope,
        composite.name,
        alarm_name=composite.name,
        alarm_description=composite.description,
        alarm_rule=composite.rule,
        alarm_actions=[topic_arn],
        ok_actions=[topic_arn],
        actions_suppressor=composite.suppressor,
        actions_suppressor_wait_period=SUPPRESSOR_WAIT_S if has_suppressor else None,
        actions_suppressor_extension_period=SUPPRESSOR_EXTENSION_S if has_suppressor else None,
    )
