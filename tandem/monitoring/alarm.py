"""Alarms as values: the metric, its level and duration, and the page that says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.monitoring.widget import MathExpression, MetricLine

Comparison = Literal["above", "below"]
Missing = Literal["missing", "ignore", "breaching", "notBreaching"]
LowSamples = Literal["evaluate", "ignore"]

# CloudWatch API reference, PutMetricAlarm, PutCompositeAlarm and MetricDataQuery, of botocore
# 1.44.5
MAX_RULE_CHARACTERS = 10_240
MAX_CHILDREN = 100  # alarms that a composite's rule names
MAX_ALARM_METRICS = 10  # metrics of one alarm's expression; a SEARCH is refused
# of an environment: its template takes 500 resources (CloudFormation user guide, quotas),
# composites, dashboards, subscribers and log groups among them
MAX_ALARMS = 460
# A parked fleet takes its servers along: requests fail and pods go. The suppressor shows it three
# minutes later, plus one or two for Container Insights and the log. Nobody is notified within that
# time.
SUPPRESSOR_WAIT_S = 300
# As long after a fleet woke: an alarm that is still active then notifies.
SUPPRESSOR_EXTENSION_S = 300
_LONGEST_ARN = "arn:aws-us-gov:cloudwatch:ap-southeast-4:111122223333:alarm:"


@dataclass(frozen=True, kw_only=True)
class MetricAlarm:
    """One metric alarm; it notifies nobody itself.

    Args:
        name: unique in the account and region; starts with the environment's name.
        sentence: one sentence on the fault when it fires.
        reason: of this threshold.
        anchor: heading in the page, as its anchor.
        page: of docs/, which says what to do.
        lines: the metrics that it reads; exactly one is shown, and that one is compared.
        comparison, threshold: it fires above (or below) this level, in the unit of the shown line.
        period_s: of the statistic.
        periods, datapoints: fires when `datapoints` of the last `periods` are beyond the level.
        missing: how a period without data counts.
        low_samples: of a percentile alone: whether it is evaluated with too few values for
            CloudWatch (below 20 for a median); `ignore` keeps the state.
    """

    name: str
    sentence: str
    reason: str
    anchor: str
    page: str = "runbook-serving.md"
    lines: tuple[MetricLine | MathExpression, ...]
    comparison: Comparison = "above"
    threshold: float = 0
    period_s: int
    periods: int
    datapoints: int
    missing: Missing = "notBreaching"
    low_samples: LowSamples | None = None

    @property
    def description(self) -> str:
        """The text in the console and in the notification."""
        return (
            f"{self.sentence} Threshold: {self.reason}. What to do: docs/{self.page}#{self.anchor}"
        )


@dataclass(frozen=True, kw_only=True)
class CompositeAlarm:
    """An alarm that notifies when any of its alarms fires, and is silent while suppressed.

    Args:
        name: unique in the account and region.
        sentence: one sentence.
        anchor: heading in docs/runbook.md, as its anchor.
        alarms: names of alarms.
        suppressor: name of the alarm that is in alarm while the fleet is parked; None: there is
            none, and nothing is muted.
    """

    name: str
    sentence: str
    anchor: str
    alarms: tuple[str, ...]
    suppressor: str | None

    @property
    def description(self) -> str:
        """The text in the console and in the notification."""
        return f"{self.sentence} What to do: docs/runbook.md#{self.anchor}"

    @property
    def rule(self) -> str:
        """The rule in CloudWatch's syntax, by the alarms' names."""
        return " OR ".join(f'ALARM("{name}")' for name in self.alarms)


@dataclass(frozen=True, kw_only=True)
class EnvironmentAlarms:
    """All alarms of an environment.

    Args:
        alarms: without actions of their own.
        suppressor: the suppressor; None if nobody publishes its metric.
        composites: the alarms that notify; each metric alarm belongs to one.
    """

    alarms: tuple[MetricAlarm, ...]
    suppressor: MetricAlarm | None
    composites: tuple[CompositeAlarm, ...]


def build_alarm(
    environment: Environment,
    name_parts: Sequence[str],
    sentence: str,
    reason: str,
    *lines: MetricLine | MathExpression,
    **fields: Any,
) -> MetricAlarm:
    """Return a metric alarm, beyond its level in all its periods unless `datapoints` says else.

    A median of few values is evaluated too. With `ignore` an alarm and its composite would stay in
    alarm after the end of a run, when no more values come.

    Args:
        name_parts: of its name; the first is its kind, and its heading in the runbook.
        fields: of MetricAlarm.
    """
    is_percentile = any(
        isinstance(line, MetricLine) and line.statistic.startswith("p") for line in lines
    )
    defaults = {
        "datapoints": fields["periods"],
        "low_samples": "evaluate" if is_percentile else None,
    }
    name = names.alarm_name(environment, *name_parts)
    return MetricAlarm(
        name=name,
        sentence=sentence,
        reason=reason,
        anchor=name_parts[0],
        lines=lines,
        **{**defaults, **fields},
    )


def build_composites(
    environment: Environment,
    kinds: Mapping[str, tuple[tuple[str, ...], str]],
    anchor: str,
    metric_alarms: Sequence[MetricAlarm],
    suppressor: MetricAlarm | None = None,
) -> Iterator[CompositeAlarm]:
    """Yield the composites that notify of some alarms: one a kind of fault, more if a rule is long.

    Args:
        environment: of the alarms.
        kinds: name of the composite -> the anchors of its alarms, and the fault when it fires.
        anchor: heading in docs/runbook.md of all of them.
        metric_alarms: of which the composites notify.
        suppressor: mutes the composites; None: nothing does.
    """
    for kind, (alarm_anchors, sentence) in kinds.items():
        groups = list(
            _group_names([alarm.name for alarm in metric_alarms if alarm.anchor in alarm_anchors])
        )
        for number, group in enumerate(groups, 1):
            suffix = [str(number)] if len(groups) > 1 else []
            yield CompositeAlarm(
                name=names.alarm_name(environment, names.NOTIFY, kind, *suffix),
                sentence=f"{environment.name}: {sentence}.",
                anchor=anchor,
                alarms=group,
                suppressor=suppressor.name if suppressor else None,
            )


def _group_names(alarm_names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Split names so that each rule keeps CloudWatch's limits, measured with ARNs."""
    group: list[str] = []
    length = 0
    for name in alarm_names:
        name_length = len(f'ALARM("{_LONGEST_ARN}{name}") OR ')
        if group and (len(group) == MAX_CHILDREN or length + name_length > MAX_RULE_CHARACTERS):
            yield tuple(group)
            group = []
            length = 0
        group.append(name)
        length += name_length
    if group:
        yield tuple(group)
