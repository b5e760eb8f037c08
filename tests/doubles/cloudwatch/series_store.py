"""What CloudWatch would hold, in memory: values and how often each was seen, by metric and minute.

Invariant: what is put in comes out unrounded; a statistic of a period is computed from every value
of its minutes, never from statistics of minutes, so a longer period loses nothing but time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tandem.monitoring.widget import Dimensions, Statistic

MINUTE_S = 60
# API reference, PutMetricData, MetricDatum.Values: from -2^360 to 2^360, no NaN
MAX_VALUE = 2.0**360
Points = dict[int, float]
"""Seconds since 1970 at which a period begins -> the statistic of that period."""

_PERCENTILE_PATTERN = re.compile(r"p(\d{1,2}(?:\.\d{1,10})?|100)")


class StatisticError(ValueError):
    """The name is no statistic that is computed here."""


@dataclass(frozen=True, slots=True, order=True)
class MetricKey:
    """One metric of CloudWatch: the order of its dimensions says nothing."""

    namespace: str
    metric: str
    dimensions: Dimensions

    @classmethod
    def from_dimensions(
        cls, namespace: str, metric: str, dimensions: Iterable[tuple[str, str]]
    ) -> MetricKey:
        """Return the key, whatever order the dimensions came in."""
        return cls(namespace, metric, tuple(sorted(dimensions)))


@dataclass(slots=True)
class SeriesStore:
    """A store of metrics."""

    _minutes: dict[MetricKey, dict[int, Counter[float]]] = field(default_factory=dict)

    def add(self, key: MetricKey, time_s: int, counts: Mapping[float, int]) -> None:
        """Add values of the minute that holds `time_s`; CloudWatch adds up what it is sent for one
        minute too.

        Args:
            key: the metric.
            time_s: seconds since 1970.
            counts: value -> how often it was seen.

        Raises:
            ValueError: CloudWatch takes no such value.
        """
        bad_value = next((value for value in counts if not abs(value) <= MAX_VALUE), None)
        if bad_value is not None:
            raise ValueError(f"{key.metric}: CloudWatch takes no {bad_value}")
        minute = time_s - time_s % MINUTE_S
        self._minutes.setdefault(key, {}).setdefault(minute, Counter()).update(counts)

    def metrics(self) -> tuple[MetricKey, ...]:
        """Every metric that has a value, sorted."""
        return tuple(sorted(self._minutes))

    def span(self) -> tuple[int, int] | None:
        """Return the first minute and the end of the last, in seconds since 1970; None where
        nothing is held."""
        minutes = [minute for metric_minutes in self._minutes.values() for minute in metric_minutes]
        return (min(minutes), max(minutes) + MINUTE_S) if minutes else None

    def read(self, key: MetricKey, statistic: Statistic, periods: range) -> Points:
        """Return a statistic of each period that has a value.

        Args:
            key: the metric; one that nobody sent has no points.
            statistic: SampleCount, Sum, Average, Minimum, Maximum, or p0 to p100.
            periods: when each begins, in seconds since 1970; whole minutes.

        Raises:
            StatisticError: it is none of these.
        """
        require_statistic(statistic)
        period_counts: dict[int, Counter[float]] = {}
        for minute, counts in self._minutes.get(key, {}).items():
            if periods.start <= minute < periods.stop:
                start_s = minute - (minute - periods.start) % periods.step
                period_counts.setdefault(start_s, Counter()).update(counts)
        return {
            at_s: _compute_statistic(statistic, period_counts[at_s])
            for at_s in sorted(period_counts)
        }


def require_statistic(statistic: Statistic) -> None:
    """Refuse what is no statistic.

    Raises:
        StatisticError: it is none.
    """
    if statistic not in _SIMPLE_STATISTICS and not _PERCENTILE_PATTERN.fullmatch(statistic):
        raise StatisticError(
            f"{statistic} is no statistic that is computed here: {', '.join(_SIMPLE_STATISTICS)},"
            " p0 to p100"
        )


def _sum_counts(counts: Counter[float]) -> float:
    return sum(value * count for value, count in counts.items())


_SIMPLE_STATISTICS: dict[Statistic, Callable[[Counter[float]], float]] = {
    "SampleCount": lambda counts: float(counts.total()),
    "Sum": _sum_counts,
    "Average": lambda counts: _sum_counts(counts) / counts.total(),
    "Minimum": min,
    "Maximum": max,
}


def _compute_statistic(name: Statistic, counts: Counter[float]) -> float:
    if name in _SIMPLE_STATISTICS:
        return float(_SIMPLE_STATISTICS[name](counts))
    return compute_percentile(counts, float(name[1:]))


def compute_percentile(counts: Mapping[float, int], percent: float) -> float:
    """Return the value below which `percent` of the values lie, between two of them by linear
    interpolation.

    As numpy's default and tandem.bench.figures.quantiles, so that a dashboard and summary.json agree: p99
    of 1 to 100 is 99.01. CloudWatch does not say how it interpolates; where few values lie in a
    period, its figure may be anywhere between the two values beside ours.

    Args:
        counts: value -> how often it was seen, at least one in all.
        percent: 0 to 100.
    """
    values = sorted(counts)
    rank = (sum(counts.values()) - 1) * percent / 100
    rank_floor = int(rank)
    fraction = rank % 1
    low_value = high_value = values[-1]
    cumulative_count = 0
    for value, next_value in zip(values, [*values[1:], values[-1]], strict=True):
        cumulative_count += counts[value]
        if rank_floor < cumulative_count:
            low_value = value
            high_value = value if rank_floor + 1 < cumulative_count else next_value
            break
    return low_value + (high_value - low_value) * fraction
