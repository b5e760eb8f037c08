"""What CloudWatch makes of our alarms: their states from datapoints, and the notifications that go
out.

Invariant: as the user guide has it ("Configuring how CloudWatch alarms treat missing data",
"Suppressing composite alarm actions", "Percentile-based alarms and low data samples", read
2026-11-21); no local AWS endpoint evaluates periods, missing data, metric math or suppressors.

Stated by us, not by the guide:

- As many periods more than `periods` are looked at as in the guide's tables, two; CloudWatch does
  not say how many.
- Periods begin at their multiples since 1970; CloudWatch moves its window by a minute.
- What may be a premature alarm keeps the state there was, where the guide says only that no alarm
  follows at once. It is one as long as every value that is there breaches: the guide's tables agree
  with that, its sentence with less.
- Nothing is acted on before the first change.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from doubles.cloudwatch.expression import evaluate_periods
from doubles.cloudwatch.series_store import MINUTE_S, Points, SeriesStore
from tandem.monitoring.alarm import (
    SUPPRESSOR_EXTENSION_S,
    SUPPRESSOR_WAIT_S,
    CompositeAlarm,
    EnvironmentAlarms,
    MetricAlarm,
)
from tandem.monitoring.widget import MathExpression, MetricLine

State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]
EXTRA_PERIODS = 2  # the guide's tables: 5 looked at of 3


@dataclass(frozen=True, slots=True)
class CompositeTick:
    """A composite alarm at one moment.

    Args:
        at_s: seconds since 1970.
        state: of the composite.
        is_silent: whether its suppressor is in alarm.
    """

    at_s: int
    state: State
    is_silent: bool = False


@dataclass(frozen=True, slots=True)
class AlarmNotification:
    """What the topic is told: which composite, when, and its state."""

    at_s: int
    composite: str
    state: State


def is_breaching(alarm: MetricAlarm, value: float) -> bool:
    """Whether a value is beyond the level; the level itself is not."""
    compare = operator.gt if alarm.comparison == "above" else operator.lt
    return bool(compare(value, alarm.threshold))


def compute_state(
    alarm: MetricAlarm, period_breaches: Sequence[bool | None], previous_state: State
) -> State:
    """Return the state that follows from the last periods.

    Args:
        alarm: its periods, datapoints and treatment of missing data.
        period_breaches: whether each period breaches, the oldest first; None where it has no value.
        previous_state: the state there was.
    """
    values = [value for value in period_breaches if value is not None]
    if len(values) >= alarm.periods:
        return "ALARM" if sum(values[-alarm.periods :]) >= alarm.datapoints else "OK"
    if alarm.missing in {"breaching", "notBreaching"}:
        filler_count = (alarm.periods - len(values)) * (alarm.missing == "breaching")
        return "ALARM" if sum(values) + filler_count >= alarm.datapoints else "OK"
    if not values:
        return "INSUFFICIENT_DATA" if alarm.missing == "missing" else previous_state
    if sum(values) >= alarm.datapoints:
        return "ALARM"
    if not all(values):
        return "OK"
    oldest_age = len(period_breaches) - list(period_breaches).index(True)
    return (
        "ALARM" if alarm.missing == "missing" and oldest_age >= alarm.datapoints else previous_state
    )


def compute_state_at(
    alarm: MetricAlarm, series: SeriesStore, at_s: int, previous_state: State = "INSUFFICIENT_DATA"
) -> State:
    """Return an alarm's state at one moment, by what is published then.

    Args:
        alarm: one metric alarm.
        series: what CloudWatch holds at that moment.
        at_s: seconds since 1970; periods that have ended are looked at.
        previous_state: the state there was.
    """
    return _AlarmReader(alarm, series, at_s, at_s).state(at_s, previous_state)


def compute_states(
    alarm: MetricAlarm, series: SeriesStore, start_s: int, end_s: int
) -> dict[int, State]:
    """Return an alarm's state at every minute from the start to the end, both whole minutes."""
    reader = _AlarmReader(alarm, series, start_s, end_s)
    states_by_time: dict[int, State] = {}
    current_state: State = "INSUFFICIENT_DATA"
    for at_s in range(start_s, end_s + 1, MINUTE_S):
        current_state = states_by_time[at_s] = reader.state(at_s, current_state)
    return states_by_time


class _AlarmReader:
    """One alarm's values over a stretch of time, read once."""

    def __init__(self, alarm: MetricAlarm, series: SeriesStore, start_s: int, end_s: int) -> None:
        self._alarm = alarm
        self._span = (start_s - self._reach_s - alarm.period_s, end_s)
        self._breaches = {
            at_s: is_breaching(alarm, value)
            for at_s, value in self._read(alarm.lines, series).items()
        }
        line = next(line for line in alarm.lines if line.is_visible)
        self._percentile_line = (
            line if alarm.low_samples == "ignore" and isinstance(line, MetricLine) else None
        )
        sample_lines = (
            (replace(self._percentile_line, statistic="SampleCount"),)
            if self._percentile_line
            else ()
        )
        self._samples = self._read(sample_lines, series) if sample_lines else {}

    @property
    def _reach_s(self) -> int:
        return (self._alarm.periods + EXTRA_PERIODS) * self._alarm.period_s

    def _read(self, lines: Sequence[MetricLine | MathExpression], series: SeriesStore) -> Points:
        (result,) = evaluate_periods(lines, series, *self._span, self._alarm.period_s)
        return dict(result.points)

    def state(self, at_s: int, previous_state: State) -> State:
        """Return the state at one moment."""
        period_s = self._alarm.period_s
        end_s = at_s - at_s % period_s
        if self._has_too_few_samples(end_s):
            return previous_state
        period_starts = range(end_s - self._reach_s, end_s, period_s)
        return compute_state(
            self._alarm, [self._breaches.get(start) for start in period_starts], previous_state
        )

    def _has_too_few_samples(self, end_s: int) -> bool:
        if self._percentile_line is None:
            return False
        first_start_s = end_s - self._alarm.periods * self._alarm.period_s
        sample_count = sum(
            count for start, count in self._samples.items() if first_start_s <= start < end_s
        )
        return sample_count < count_needed_samples(float(self._percentile_line.statistic[1:]))


def count_needed_samples(percent: float) -> float:
    """Return from how many values on CloudWatch holds a percentile for significant; `percent` above
    0, below 100."""
    rank = percent / 100
    return 10 / (1 - rank) if rank >= 0.5 else 10 / rank


def list_actions(
    ticks: Iterable[CompositeTick], *, wait_s: int, extend_s: int
) -> Iterator[tuple[int, State]]:
    """Yield when a composite acts, and on which state.

    A change waits; a suppressor in alarm discards what waits; its end starts the extension, at
    whose end the state of that moment is acted on, unless a change in between has begun to wait
    anew.

    Args:
        ticks: the composite in order of time; the first is where it stood before.
        wait_s, extend_s: ActionsSuppressorWaitPeriod and ActionsSuppressorExtensionPeriod.
    """
    previous_tick: CompositeTick | None = None
    due_s: int | None = None
    for tick in ticks:
        if previous_tick and due_s is not None and due_s <= tick.at_s:
            yield due_s, previous_tick.state
            due_s = None
        if tick.is_silent:
            due_s = None
        elif previous_tick and tick.state != previous_tick.state:
            due_s = tick.at_s + wait_s
        elif previous_tick and previous_tick.is_silent:
            due_s = tick.at_s + extend_s
        if due_s == tick.at_s:
            yield due_s, tick.state
            due_s = None
        previous_tick = tick


def list_notifications(
    alarms: EnvironmentAlarms, series: SeriesStore, start_s: int, end_s: int
) -> tuple[AlarmNotification, ...]:
    """Return all that the topic is told of from the start to the end, in order of time.

    Args:
        alarms: of one environment.
        series: all that is published; each value counts from its own minute on, as if nothing came
            late.
        start_s, end_s: seconds since 1970, whole minutes.
    """
    suppressor = () if alarms.suppressor is None else (alarms.suppressor,)
    states_by_alarm = {
        alarm.name: compute_states(alarm, series, start_s, end_s)
        for alarm in chain(alarms.alarms, suppressor)
    }
    minutes = range(start_s, end_s + 1, MINUTE_S)
    composite_notifications = chain.from_iterable(
        _notify_composite(composite, states_by_alarm, minutes) for composite in alarms.composites
    )
    return tuple(
        sorted(
            composite_notifications,
            key=lambda notification: (notification.at_s, notification.composite),
        )
    )


def _notify_composite(
    composite: CompositeAlarm,
    states_by_alarm: Mapping[str, Mapping[int, State]],
    minutes: Iterable[int],
) -> Iterator[AlarmNotification]:
    def build_tick(at_s: int) -> CompositeTick:
        is_alarm = any(states_by_alarm[name][at_s] == "ALARM" for name in composite.alarms)
        is_silent = (
            composite.suppressor is not None
            and states_by_alarm[composite.suppressor][at_s] == "ALARM"
        )
        return CompositeTick(at_s, "ALARM" if is_alarm else "OK", is_silent)

    for at_s, new_state in list_actions(
        map(build_tick, minutes), wait_s=SUPPRESSOR_WAIT_S, extend_s=SUPPRESSOR_EXTENSION_S
    ):
        yield AlarmNotification(at_s, composite.name, new_state)
