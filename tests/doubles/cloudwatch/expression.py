"""CloudWatch's metric math for the expressions of our dashboards and alarms, evaluated without
CloudWatch.

Invariant: a form is evaluated as the user guide states it ("Using math expressions with CloudWatch
metrics", read 2026-11-21), or refused by name; no local AWS endpoint evaluates any of them (each
answers with nothing).

- Numbers, ids, `+ - * /`, unary minus: where one of two series lacks a point it counts as 0; a
  point that would divide by zero is dropped. A ratio of two arms is therefore 0 where only the
  divisor has a point.
- `== != < <= > >=` between series (a missing point counts as 0) or with a number: 1 or 0.
- `IF(condition, then[, else])` at the points of the condition: a point that `then` lacks is 0, one
  that `else` lacks is dropped. `IF(a * b > 0, a / b)` draws a ratio only where both have a point.
- `FILL(series, number)`, `RUNNING_SUM(series)`, and `SUM(array)`: one series, of the points there
  are at each time.
- `SEARCH('...', 'statistic'[, period])`: doubles.cloudwatch.search. The period of who evaluates is
  used, as CloudWatch does where a widget's period is overridden, whatever the SEARCH says.

Refused, because Python's `ast` reads expressions: AND, OR, `^` as a power. A label may hold
`${PROP('Dim.NAME')}`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from doubles.cloudwatch.formula import ExpressionError, MathFormula, Value
from doubles.cloudwatch.point_series import PointSeries
from doubles.cloudwatch.search import search_metrics
from doubles.cloudwatch.series_store import MetricKey, SeriesStore, StatisticError
from tandem.monitoring.widget import MathExpression, MetricLine

_ID_PATTERN = re.compile(r"[a-z][a-zA-Z0-9_]*")
_PROPERTY_PATTERN = re.compile(r"\$\{PROP\('Dim\.([^']*)'\)\}")


@dataclass(frozen=True, slots=True)
class LineResult:
    """One drawn line: its label, and (seconds since 1970 at which a period begins, value) in order
    of time."""

    label: str
    points: tuple[tuple[int, float], ...]


def evaluate_periods(
    lines: Sequence[MetricLine | MathExpression],
    series: SeriesStore,
    start_s: int,
    end_s: int,
    period_s: int,
) -> tuple[LineResult, ...]:
    """Evaluate one widget or alarm.

    Args:
        lines: its metrics and expressions.
        series: what CloudWatch would hold.
        start_s, end_s: seconds since 1970; from the period that holds the start, up to the end
            without it.
        period_s: of every statistic; whole minutes.

    Returns:
        One result a shown line, in their order; a SEARCH may give several, or none.

    Raises:
        ExpressionError: a line is of a form that is not evaluated here, or names what is not there.
    """
    return _collect_results(
        _WidgetEvaluation(lines, series, range(start_s - start_s % period_s, end_s, period_s)),
        lines,
    )


def evaluate_range(
    lines: Sequence[MetricLine | MathExpression], series: SeriesStore, start_s: int, end_s: int
) -> tuple[LineResult, ...]:
    """Evaluate one widget with the whole time range as its one period, as CloudWatch's
    setPeriodToTimeRange does.

    Args:
        lines, series: as of evaluate.
        start_s, end_s: as of evaluate, and one after the other.

    Raises:
        ExpressionError: as evaluate.
    """
    return _collect_results(
        _WidgetEvaluation(lines, series, range(start_s, end_s, end_s - start_s)), lines
    )


def _collect_results(
    widget: _WidgetEvaluation, lines: Sequence[MetricLine | MathExpression]
) -> tuple[LineResult, ...]:
    visible_series = (
        point_series
        for line in lines
        if line.is_visible
        for point_series in widget.list_visible(line)
    )
    return tuple(
        LineResult(point_series.label, tuple(sorted(point_series.points.items())))
        for point_series in visible_series
    )


class _WidgetEvaluation:
    """The lines of one widget, each evaluated once."""

    def __init__(
        self, lines: Sequence[MetricLine | MathExpression], series: SeriesStore, grid: range
    ) -> None:
        self.grid = grid
        self._series = series
        self._by_id: dict[str, MetricLine | MathExpression] = {}
        self._values: dict[str, Value] = {}
        self._open_ids: set[str] = set()
        for line in lines:
            if line.id is not None:
                self._register_line(line, line.id)

    def _register_line(self, line: MetricLine | MathExpression, name: str) -> None:
        if name in self._by_id:
            raise ExpressionError("two lines have this id", text=_line_text(line), place=name)
        if not _ID_PATTERN.fullmatch(name):
            problem = "an id begins with a small letter and has letters, digits and underscores"
            raise ExpressionError(problem, text=_line_text(line), place=name)
        self._by_id[name] = line

    def list_visible(self, line: MetricLine | MathExpression) -> tuple[PointSeries, ...]:
        """Return what is drawn of a line, labelled."""
        value = self._read_line(line) if isinstance(line, MetricLine) else self._evaluate(line)
        if isinstance(value, float):
            problem = "it gives a number, and only series can be drawn"
            raise ExpressionError(problem, text=_line_text(line), place=line.id or _line_text(line))
        if isinstance(value, PointSeries):
            return (
                replace(value, label=_fill_label(line.label or line.id or _line_text(line), value)),
            )
        return tuple(
            replace(member, label=_fill_label(line.label or member.label, member))
            for member in value
        )

    def value(self, name: str) -> Value | None:
        """Return what an id stands for; None for no id."""
        line = self._by_id.get(name)
        if line is None:
            return None
        return self._read_line(line) if isinstance(line, MetricLine) else self._evaluate(line)

    def _evaluate(self, line: MathExpression) -> Value:
        if line.id in self._open_ids:
            raise ExpressionError("it reads itself", text=line.text, place=line.id)
        if line.id not in self._values:
            self._open_ids.add(line.id)
            self._values[line.id] = MathFormula(line, self).compute()
            self._open_ids.remove(line.id)
        return self._values[line.id]

    def _read_line(self, line: MetricLine) -> PointSeries:
        key = MetricKey.from_dimensions(line.namespace, line.metric, line.dimensions)
        try:
            return self._read_series(key, line.statistic, line.label or line.metric)
        except StatisticError as error:
            raise ExpressionError(
                str(error), text=line.metric, place=line.id or _line_text(line)
            ) from error

    def _read_series(self, key: MetricKey, statistic: str, label: str) -> PointSeries:
        points = self._series.read(key, statistic, self.grid)
        return PointSeries(points, label, key)

    def search(self, query: str, statistic: str) -> tuple[PointSeries, ...]:
        """Return the series that a search finds."""
        keys = search_metrics(query, self._series.metrics())
        return tuple(self._read_series(key, statistic, key.metric) for key in keys)


def _line_text(line: MetricLine | MathExpression) -> str:
    return line.metric if isinstance(line, MetricLine) else line.text


def _fill_label(label: str, point_series: PointSeries) -> str:
    """Return the label with the values of dimensions put in; what is not known stays as it
    stands."""
    values = dict(point_series.key.dimensions) if point_series.key else {}
    return _PROPERTY_PATTERN.sub(lambda match: values.get(match[1], match[0]), label)
