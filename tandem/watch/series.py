"""What CloudWatch would hold, in memory: values and how often each was seen, by metric and minute.

Invariant: what is put in comes out unrounded; a statistic of a period is computed from every value of its minutes,
never from statistics of minutes, so a longer period loses nothing but time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tandem.watch.widget import Dimensions, Statistic

MINUTE_S = 60
MOST = 2.0**360  # API reference, PutMetricData, MetricDatum.Values: from -2^360 to 2^360, no NaN
Points = dict[int, float]
"""Seconds since 1970 at which a period begins -> the statistic of that period."""

_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d{1,10})?|100)")


class StatisticError(ValueError):
    """The name is no statistic that is computed here."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One metric of CloudWatch: the order of its dimensions says nothing."""

    namespace: str
    metric: str
    dimensions: Dimensions

    @classmethod
    def of(cls, namespace: str, metric: str, dimensions: Iterable[tuple[str, str]]) -> Key:
        """Return the key, whatever order the dimensions came in."""
        return cls(namespace, metric, tuple(sorted(dimensions)))


@dataclass(slots=True)
class Series:
    """A store of metrics."""

    _minutes: dict[Key, dict[int, Counter[float]]] = field(default_factory=dict)

    def add(self, key: Key, at_s: int, counts: Mapping[float, int]) -> None:
        """Add values of the minute that holds `at_s`; CloudWatch adds up what it is sent for one minute too.

        Args:
            key: the metric.
            at_s: seconds since 1970.
            counts: value -> how often it was seen.

        Raises:
            ValueError: CloudWatch takes no such value.
        """
        refused = next((value for value in counts if not abs(value) <= MOST), None)
        if refused is not None:
            raise ValueError(f"{key.metric}: CloudWatch takes no {refused}")
        minute = at_s - at_s % MINUTE_S
        self._minutes.setdefault(key, {}).setdefault(minute, Counter()).update(counts)

    def metrics(self) -> tuple[Key, ...]:
        """Every metric that has a value, sorted."""
        return tuple(sorted(self._minutes))

    def span(self) -> tuple[int, int] | None:
        """Return the first minute and the end of the last, in seconds since 1970; None where nothing is held."""
        minutes = [minute for of_metric in self._minutes.values() for minute in of_metric]
        return (min(minutes), max(minutes) + MINUTE_S) if minutes else None

    def read(self, key: Key, statistic: Statistic, periods: range) -> Points:
        """Return a statistic of each period that has a value.

        Args:
            key: the metric; one that nobody sent has no points.
            statistic: SampleCount, Sum, Average, Minimum, Maximum, or p0 to p100.
            periods: when each begins, in seconds since 1970; whole minutes.

        Raises:
            StatisticError: it is none of these.
        """
        known(statistic)
        counted: dict[int, Counter[float]] = {}
        for minute, counts in self._minutes.get(key, {}).items():
            if periods.start <= minute < periods.stop:
                begins = minute - (minute - periods.start) % periods.step
                counted.setdefault(begins, Counter()).update(counts)
        return {at_s: _statistic(statistic, counted[at_s]) for at_s in sorted(counted)}


def known(statistic: Statistic) -> None:
    """Refuse what is no statistic.

    Raises:
        StatisticError: it is none.
    """
    if statistic not in _SIMPLE and not _PERCENTILE.fullmatch(statistic):
        raise StatisticError(f"{statistic} is no statistic that is computed here: {', '.join(_SIMPLE)}, p0 to p100")


def _sum(counts: Counter[float]) -> float:
    return sum(value * count for value, count in counts.items())


_SIMPLE: dict[Statistic, Callable[[Counter[float]], float]] = {
    "SampleCount": lambda counts: float(counts.total()),
    "Sum": _sum,
    "Average": lambda counts: _sum(counts) / counts.total(),
    "Minimum": min,
    "Maximum": max,
}


def _statistic(name: Statistic, counts: Counter[float]) -> float:
    if name in _SIMPLE:
        return float(_SIMPLE[name](counts))
    return percentile(counts, float(name[1:]))


def percentile(counts: Mapping[float, int], percent: float) -> float:
    """Return the value below which `percent` of the values lie, between two of them by linear interpolation.

    As numpy's default and tandem.bench.quantiles, so that a dashboard and summary.json agree: p99 of 1 to 100 is
    99.01. CloudWatch does not say how it interpolates; where few values lie in a period, its figure may be anywhere
    between the two values beside ours.

    Args:
        counts: value -> how often it was seen, at least one in all.
        percent: 0 to 100.
    """
    values = sorted(counts)
    rank = (sum(counts.values()) - 1) * percent / 100
    below, share = int(rank), rank % 1
    low = high = values[-1]
    seen = 0
    for value, after in zip(values, [*values[1:], values[-1]], strict=True):
        seen += counts[value]
        if below < seen:
            low, high = value, value if below + 1 < seen else after
            break
    return low + (high - low) * share
