"""Alarms as values: what is watched, from which level on, for how long, and where a person reads what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tandem.watch.widget import Expression, Line

Comparison = Literal["above", "below"]
Missing = Literal["missing", "ignore", "breaching", "notBreaching"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One metric alarm; it notifies nobody by itself.

    Args:
        name: unique in the account and region; starts with the environment's name.
        says: one sentence of what is wrong when it fires.
        reason: why this threshold.
        anchor: heading in docs/runbook.md, as its anchor.
        publishers: whose metrics it reads.
        lines: what is read; exactly one is shown, and that one is compared.
        comparison, threshold: it fires above (or below) this level, in the unit of the shown line.
        period_s: of the statistic.
        periods, datapoints: fires when `datapoints` of the last `periods` are beyond the level.
        missing: what a period without data counts as.
    """

    name: str
    says: str
    reason: str
    anchor: str
    publishers: tuple[str, ...]
    lines: tuple[Line | Expression, ...]
    comparison: Comparison
    threshold: float
    period_s: int
    periods: int
    datapoints: int
    missing: Missing

    @property
    def description(self) -> str:
        """What stands in the console and in the notification."""
        return f"{self.says} Threshold: {self.reason}. What to do: docs/runbook.md#{self.anchor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """What notifies: fires when any of its alarms does, and is silent while its suppressor is in alarm.

    Args:
        name: unique in the account and region.
        says: one sentence.
        alarms: names of alarms; CloudWatch takes a rule of at most 10,240 characters.
        suppressor: name of the alarm that is in alarm while the fleet is parked.
        wait_s: how long it waits for the suppressor before it notifies.
        extend_s: how long it stays silent after the suppressor's end.
    """

    name: str
    says: str
    alarms: tuple[str, ...]
    suppressor: str
    wait_s: int
    extend_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarms:
    """All alarms of an environment; `parked` is the suppressor, None where nobody publishes what it needs."""

    alarms: tuple[Alarm, ...]
    parked: Alarm | None
    composites: tuple[Composite, ...]
