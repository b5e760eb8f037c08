"""Alarms as values: what is watched, from which level on, for how long, and where a person reads what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tandem.monitoring.widget import MathExpression, MetricLine

Comparison = Literal["above", "below"]
Missing = Literal["missing", "ignore", "breaching", "notBreaching"]
LowSamples = Literal["evaluate", "ignore"]

# CloudWatch API reference, PutMetricAlarm, PutCompositeAlarm and MetricDataQuery, of botocore 1.44.5
MAX_NAME_CHARACTERS = 255
MAX_DESCRIPTION_CHARACTERS = 1024
MAX_RULE_CHARACTERS = 10_240
MAX_CHILDREN = 100  # alarms that a composite's rule names
MAX_ALARM_METRICS = 10  # metrics of one alarm's expression; a SEARCH is refused
# of an environment: its template takes 500 resources (CloudFormation user guide, quotas), composites, dashboards,
# subscribers and log groups among them
MAX_ALARMS = 460
MAX_EVALUATION_S = 86_400  # periods x period_s, for a period below an hour


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricAlarm:
    """One metric alarm; it notifies nobody by itself.

    Args:
        name: unique in the account and region; starts with the environment's name.
        sentence: one sentence of what is wrong when it fires.
        reason: why this threshold.
        anchor: heading in docs/runbook.md, as its anchor.
        publishers: whose metrics it reads.
        lines: what is read; exactly one is shown, and that one is compared.
        comparison, threshold: it fires above (or below) this level, in the unit of the shown line.
        period_s: of the statistic.
        periods, datapoints: fires when `datapoints` of the last `periods` are beyond the level.
        missing: what a period without data counts as.
        low_samples: of a percentile alone: whether it is evaluated where CloudWatch holds the values for too few
            (below 20 for a median); `ignore` keeps whatever state it is in.
    """

    name: str
    sentence: str
    reason: str
    anchor: str
    publishers: tuple[str, ...]
    lines: tuple[MetricLine | MathExpression, ...]
    comparison: Comparison
    threshold: float
    period_s: int
    periods: int
    datapoints: int
    missing: Missing
    low_samples: LowSamples | None = None

    @property
    def description(self) -> str:
        """What stands in the console and in the notification."""
        return f"{self.sentence} Threshold: {self.reason}. What to do: docs/runbook.md#{self.anchor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeAlarm:
    """What notifies: fires when any of its alarms does, and is silent while its suppressor is in alarm.

    Args:
        name: unique in the account and region.
        sentence: one sentence.
        anchor: heading in docs/runbook.md, as its anchor.
        alarms: names of alarms.
        suppressor: name of the alarm that is in alarm while the fleet is parked; None where there is none, and then
            nothing is muted.
        wait_s: how long it waits for the suppressor before it notifies.
        extension_s: how long it stays silent after the suppressor's end.
    """

    name: str
    sentence: str
    anchor: str
    alarms: tuple[str, ...]
    suppressor: str | None
    wait_s: int
    extension_s: int

    @property
    def description(self) -> str:
        """What stands in the console and in the notification."""
        return f"{self.sentence} What to do: docs/runbook.md#{self.anchor}"

    @property
    def rule(self) -> str:
        """The rule in CloudWatch's words, by the alarms' names."""
        return " OR ".join(f'ALARM("{name}")' for name in self.alarms)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentAlarms:
    """All alarms of an environment.

    Args:
        alarms: without actions of their own.
        suppressor: the suppressor; None where nobody publishes what it needs.
        composites: what notifies; each alarm belongs to one.
        coverage_gaps: what no alarm sees, and why, a sentence each.
    """

    alarms: tuple[MetricAlarm, ...]
    suppressor: MetricAlarm | None
    composites: tuple[CompositeAlarm, ...]
    coverage_gaps: tuple[str, ...] = ()
