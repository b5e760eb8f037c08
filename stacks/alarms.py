"""Alarms in CloudFormation: metric alarms that tell nobody, and composite alarms that tell the topic.

Invariant: a composite alarm is made after every alarm that it names, and goes before them, because CloudWatch refuses
a rule of alarms that do not exist and keeps an alarm that a rule still names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from tandem.watch.alarm import Alarm, Alarms, Composite
from tandem.watch.widget import Dimensions, Expression, Line

_Alarm = cloudwatch.CfnAlarm
_Query = _Alarm.MetricDataQueryProperty
COMPARISONS = {"above": "GreaterThanThreshold", "below": "LessThanThreshold"}


class AlarmSet(Construct):
    """All alarms of an environment.

    Args:
        topic_arn: told when a composite alarm begins, and when it ends.
    """

    def __init__(self, scope: Construct, id_: str, *, alarms: Alarms, topic_arn: str) -> None:
        super().__init__(scope, id_)
        parked = (alarms.parked,) if alarms.parked else ()
        made = {alarm.name: metric_alarm(self, alarm) for alarm in (*alarms.alarms, *parked)}
        for composite in alarms.composites:
            _composite(self, composite, made=made, topic_arn=topic_arn)


def metric_alarm(scope: Construct, alarm: Alarm) -> cloudwatch.CfnAlarm:
    """Add one metric alarm, of one metric or of metric math."""
    plain = alarm.lines[0] if len(alarm.lines) == 1 else None
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
        **(_one(plain, alarm.period_s) if isinstance(plain, Line) else _math(alarm)),
    )


def _one(line: Line, period_s: int) -> dict[str, Any]:
    percentile = line.statistic.startswith("p")
    return {
        "metric_name": line.metric,
        "namespace": line.namespace,
        "dimensions": _dimensions(line.dimensions),
        "period": period_s,
        "extended_statistic" if percentile else "statistic": line.statistic,
    }


def _math(alarm: Alarm) -> dict[str, Any]:
    return {"metrics": [_query(line, alarm.period_s) for line in alarm.lines]}


def _query(line: Line | Expression, period_s: int) -> _Query:
    if isinstance(line, Expression):
        return _Query(id=line.id, label=line.label, expression=line.text, period=period_s, return_data=line.shown)
    assert line.id is not None, f"{line.metric} stands in an expression and has no id"
    metric = _Alarm.MetricProperty(
        namespace=line.namespace, metric_name=line.metric, dimensions=_dimensions(line.dimensions)
    )
    stat = _Alarm.MetricStatProperty(metric=metric, period=period_s, stat=line.statistic)
    return _Query(id=line.id, label=line.label, metric_stat=stat, return_data=line.shown)


def _dimensions(dimensions: Dimensions) -> list[_Alarm.DimensionProperty]:
    return [_Alarm.DimensionProperty(name=name, value=value) for name, value in dimensions]


def _composite(
    scope: Construct, composite: Composite, *, made: Mapping[str, cloudwatch.CfnAlarm], topic_arn: str
) -> None:
    muted = composite.suppressor is not None
    resource = cloudwatch.CfnCompositeAlarm(
        scope,
        composite.name,
        alarm_name=composite.name,
        alarm_description=composite.description,
        alarm_rule=composite.rule,
        alarm_actions=[topic_arn],
        ok_actions=[topic_arn],
        actions_suppressor=composite.suppressor,
        actions_suppressor_wait_period=composite.wait_s if muted else None,
        actions_suppressor_extension_period=composite.extend_s if muted else None,
    )
    for name in (*composite.alarms, *([composite.suppressor] if composite.suppressor else [])):
        resource.add_resource_dependency(made[name])
