"""What CloudWatch makes of our alarms: their states from datapoints, and the notifications that go out.

Invariant: as the user guide has it ("Configuring how CloudWatch alarms treat missing data", "Suppressing composite
alarm actions", "Percentile-based alarms and low data samples", read 2026-11-21); no local AWS endpoint evaluates
periods, missing data, metric math or suppressors.

Stated by us, not by the guide:

- As many periods more than `periods` are looked at as in the guide's tables, two; CloudWatch does not say how many.
- Periods begin at their multiples since 1970; CloudWatch moves its window by a minute.
- What may be a premature alarm keeps the state there was, where the guide says only that no alarm follows at once. It
  is one as long as every value that is there breaches: the guide's tables agree with that, its sentence with less.
- Nothing is acted on before the first change.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from tandem.watch.alarm import Alarm, Alarms, Composite
from tandem.watch.expression import evaluate
from tandem.watch.series import MINUTE_S, Points, Series
from tandem.watch.widget import Expression, Line

State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]
FURTHER_PERIODS = 2  # the guide's tables: 5 looked at of 3


@dataclass(frozen=True, slots=True)
class Tick:
    """A composite alarm at one moment.

    Args:
        at_s: seconds since 1970.
        state: of the composite.
        muted: whether its suppressor is in alarm.
    """

    at_s: int
    state: State
    muted: bool = False


@dataclass(frozen=True, slots=True)
class Notification:
    """What the topic is told: which composite, when, and its state."""

    at_s: int
    composite: str
    state: State


def breaches(alarm: Alarm, value: float) -> bool:
    """Whether a value is beyond the level; the level itself is not."""
    beyond = operator.gt if alarm.comparison == "above" else operator.lt
    return bool(beyond(value, alarm.threshold))


def state(alarm: Alarm, looked_at: Sequence[bool | None], before: State) -> State:
    """Return the state that follows from the last periods.

    Args:
        alarm: its periods, datapoints and treatment of missing data.
        looked_at: whether each period breaches, the oldest first; None where it has no value.
        before: the state there was.
    """
    values = [value for value in looked_at if value is not None]
    if len(values) >= alarm.periods:
        return "ALARM" if sum(values[-alarm.periods :]) >= alarm.datapoints else "OK"
    if alarm.missing in {"breaching", "notBreaching"}:
        filled = (alarm.periods - len(values)) * (alarm.missing == "breaching")
        return "ALARM" if sum(values) + filled >= alarm.datapoints else "OK"
    if not values:
        return "INSUFFICIENT_DATA" if alarm.missing == "missing" else before
    if sum(values) >= alarm.datapoints:
        return "ALARM"
    if not all(values):
        return "OK"
    oldest = len(looked_at) - list(looked_at).index(True)
    return "ALARM" if alarm.missing == "missing" and oldest >= alarm.datapoints else before


def state_at(alarm: Alarm, series: Series, at_s: int, before: State = "INSUFFICIENT_DATA") -> State:
    """Return an alarm's state at one moment, by what is published then.

    Args:
        alarm: one metric alarm.
        series: what CloudWatch holds at that moment.
        at_s: seconds since 1970; periods that have ended are looked at.
        before: the state there was.
    """
    return _Reader(alarm, series, at_s, at_s).state(at_s, before)


def states(alarm: Alarm, series: Series, start_s: int, end_s: int) -> dict[int, State]:
    """Return an alarm's state at every minute from the start to the end, both whole minutes."""
    reader = _Reader(alarm, series, start_s, end_s)
    found: dict[int, State] = {}
    now: State = "INSUFFICIENT_DATA"
    for at_s in range(start_s, end_s + 1, MINUTE_S):
        now = found[at_s] = reader.state(at_s, now)
    return found


class _Reader:
    """One alarm's values over a stretch of time, read once."""

    def __init__(self, alarm: Alarm, series: Series, start_s: int, end_s: int) -> None:
        self._alarm = alarm
        self._span = (start_s - self._reach_s - alarm.period_s, end_s)
        self._breached = {at_s: breaches(alarm, value) for at_s, value in self._read(alarm.lines, series).items()}
        line = next(line for line in alarm.lines if line.shown)
        self._percentile = line if alarm.low_samples == "ignore" and isinstance(line, Line) else None
        counted = (replace(self._percentile, statistic="SampleCount"),) if self._percentile else ()
        self._samples = self._read(counted, series) if counted else {}

    @property
    def _reach_s(self) -> int:
        return (self._alarm.periods + FURTHER_PERIODS) * self._alarm.period_s

    def _read(self, lines: Sequence[Line | Expression], series: Series) -> Points:
        (shown,) = evaluate(lines, series, *self._span, self._alarm.period_s)
        return dict(shown.points)

    def state(self, at_s: int, before: State) -> State:
        """Return the state at one moment."""
        period_s = self._alarm.period_s
        ended = at_s - at_s % period_s
        if self._too_few(ended):
            return before
        begun = range(ended - self._reach_s, ended, period_s)
        return state(self._alarm, [self._breached.get(start) for start in begun], before)

    def _too_few(self, ended: int) -> bool:
        if self._percentile is None:
            return False
        first = ended - self._alarm.periods * self._alarm.period_s
        found = sum(count for start, count in self._samples.items() if first <= start < ended)
        return found < enough_samples(float(self._percentile.statistic[1:]))


def enough_samples(percent: float) -> float:
    """Return from how many values on CloudWatch holds a percentile for significant; `percent` above 0, below 100."""
    rank = percent / 100
    return 10 / (1 - rank) if rank >= 0.5 else 10 / rank  # noqa: PLR2004 - the guide: a median counts from above


def actions(ticks: Iterable[Tick], *, wait_s: int, extend_s: int) -> Iterator[tuple[int, State]]:
    """Yield when a composite acts, and on which state.

    A change waits; a suppressor in alarm discards what waits; its end starts the extension, at whose end the state of
    that moment is acted on, unless a change in between has begun to wait anew.

    Args:
        ticks: the composite in order of time; the first is where it stood before.
        wait_s, extend_s: ActionsSuppressorWaitPeriod and ActionsSuppressorExtensionPeriod.
    """
    before: Tick | None = None
    due_s: int | None = None
    for tick in ticks:
        if before and due_s is not None and due_s <= tick.at_s:
            yield due_s, before.state
            due_s = None
        if tick.muted:
            due_s = None
        elif before and tick.state != before.state:
            due_s = tick.at_s + wait_s
        elif before and before.muted:
            due_s = tick.at_s + extend_s
        if due_s == tick.at_s:
            yield due_s, tick.state
            due_s = None
        before = tick


def notifications(alarms: Alarms, series: Series, start_s: int, end_s: int) -> tuple[Notification, ...]:
    """Return all that the topic is told of from the start to the end, in order of time.

    Args:
        alarms: of one environment.
        series: all that is published; each value counts from its own minute on, as if nothing came late.
        start_s, end_s: seconds since 1970, whole minutes.
    """
    suppressor = () if alarms.parked is None else (alarms.parked,)
    known = {alarm.name: states(alarm, series, start_s, end_s) for alarm in chain(alarms.alarms, suppressor)}
    minutes = range(start_s, end_s + 1, MINUTE_S)
    told = chain.from_iterable(_told(composite, known, minutes) for composite in alarms.composites)
    return tuple(sorted(told, key=lambda one: (one.at_s, one.composite)))


def _told(
    composite: Composite, known: Mapping[str, Mapping[int, State]], minutes: Iterable[int]
) -> Iterator[Notification]:
    def tick(at_s: int) -> Tick:
        alarmed = any(known[name][at_s] == "ALARM" for name in composite.alarms)
        muted = composite.suppressor is not None and known[composite.suppressor][at_s] == "ALARM"
        return Tick(at_s, "ALARM" if alarmed else "OK", muted)

    for at_s, reached in actions(map(tick, minutes), wait_s=composite.wait_s, extend_s=composite.extend_s):
        yield Notification(at_s, composite.name, reached)
