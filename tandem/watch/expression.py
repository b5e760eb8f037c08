"""CloudWatch's metric math for the expressions of our dashboards and alarms, evaluated without CloudWatch.

Invariant: a form is evaluated as the user guide states it ("Using math expressions with CloudWatch metrics", read
2026-11-21), or refused by name; no local AWS endpoint evaluates any of them (each answers with nothing).

- Numbers, ids, `+ - * /`, unary minus: where one of two series lacks a point it counts as 0; a point that would
  divide by zero is dropped. A ratio of two arms is therefore 0 where only the divisor has a point.
- `== != < <= > >=` between series (a missing point counts as 0) or with a number: 1 or 0.
- `IF(condition, then[, else])` at the points of the condition: a point that `then` lacks is 0, one that `else` lacks
  is dropped. `IF(a * b > 0, a / b)` draws a ratio only where both have a point.
- `FILL(series, number)`, `RUNNING_SUM(series)`, and `SUM(array)`: one series, of the points there are at each time.
- `SEARCH('...', 'statistic'[, period])`: tandem.watch.search. The period of who evaluates is used, as CloudWatch does
  where a widget's period is overridden, whatever the SEARCH says.

Refused, because Python's `ast` reads expressions: AND, OR, `^` as a power. A label may hold `${PROP('Dim.NAME')}`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tandem.watch.drawn import Drawn
from tandem.watch.formula import ExpressionError, Formula, Value
from tandem.watch.search import search
from tandem.watch.series import Key, Series, StatisticError
from tandem.watch.widget import Expression, Line

_ID = re.compile(r"[a-z][a-zA-Z0-9_]*")
_PROPERTY = re.compile(r"\$\{PROP\('Dim\.([^']*)'\)\}")


@dataclass(frozen=True, slots=True)
class Result:
    """One drawn line: its label, and (seconds since 1970 at which a period begins, value) in order of time."""

    label: str
    points: tuple[tuple[int, float], ...]


def evaluate(
    lines: Sequence[Line | Expression], series: Series, start_s: int, end_s: int, period_s: int
) -> tuple[Result, ...]:
    """Evaluate one widget or alarm.

    Args:
        lines: its metrics and expressions.
        series: what CloudWatch would hold.
        start_s, end_s: seconds since 1970; from the period that holds the start, up to the end without it.
        period_s: of every statistic; whole minutes.

    Returns:
        One result a shown line, in their order; a SEARCH may give several, or none.

    Raises:
        ExpressionError: a line is of a form that is not evaluated here, or names what is not there.
    """
    return _results(_Widget(lines, series, range(start_s - start_s % period_s, end_s, period_s)), lines)


def overall(lines: Sequence[Line | Expression], series: Series, start_s: int, end_s: int) -> tuple[Result, ...]:
    """Evaluate one widget with the whole time range as its one period, as CloudWatch's setPeriodToTimeRange does.

    Args:
        lines, series: as of evaluate.
        start_s, end_s: as of evaluate, and one after the other.

    Raises:
        ExpressionError: as evaluate.
    """
    return _results(_Widget(lines, series, range(start_s, end_s, end_s - start_s)), lines)


def _results(widget: _Widget, lines: Sequence[Line | Expression]) -> tuple[Result, ...]:
    shown = (drawn for line in lines if line.shown for drawn in widget.shown(line))
    return tuple(Result(drawn.label, tuple(sorted(drawn.points.items()))) for drawn in shown)


class _Widget:
    """The lines of one widget, each evaluated once."""

    def __init__(self, lines: Sequence[Line | Expression], series: Series, grid: range) -> None:
        self.grid = grid
        self._series = series
        self._by_id: dict[str, Line | Expression] = {}
        self._done: dict[str, Value] = {}
        self._open: set[str] = set()
        for line in lines:
            if line.id is not None:
                self._name(line, line.id)

    def _name(self, line: Line | Expression, name: str) -> None:
        if name in self._by_id:
            raise ExpressionError("two lines have this id", text=_text(line), place=name)
        if not _ID.fullmatch(name):
            problem = "an id begins with a small letter and has letters, digits and underscores"
            raise ExpressionError(problem, text=_text(line), place=name)
        self._by_id[name] = line

    def shown(self, line: Line | Expression) -> tuple[Drawn, ...]:
        """Return what is drawn of a line, labelled."""
        found = self._line(line) if isinstance(line, Line) else self._evaluated(line)
        if isinstance(found, float):
            problem = "it gives a number, and only series can be drawn"
            raise ExpressionError(problem, text=_text(line), place=line.id or _text(line))
        if isinstance(found, Drawn):
            return (replace(found, label=_put_in(line.label or line.id or _text(line), found)),)
        return tuple(replace(each, label=_labelled(line.label, each)) for each in found)

    def value(self, name: str) -> Value | None:
        """Return what an id stands for; None for no id."""
        line = self._by_id.get(name)
        if line is None:
            return None
        return self._line(line) if isinstance(line, Line) else self._evaluated(line)

    def _evaluated(self, line: Expression) -> Value:
        if line.id in self._open:
            raise ExpressionError("it reads itself", text=line.text, place=line.id)
        if line.id not in self._done:
            self._open.add(line.id)
            self._done[line.id] = Formula(line, self).compute()
            self._open.remove(line.id)
        return self._done[line.id]

    def _line(self, line: Line) -> Drawn:
        key = Key.of(line.namespace, line.metric, line.dimensions)
        try:
            return self._drawn(key, line.statistic, line.label or line.metric)
        except StatisticError as error:
            raise ExpressionError(str(error), text=line.metric, place=line.id or _text(line)) from error

    def _drawn(self, key: Key, statistic: str, label: str) -> Drawn:
        points = self._series.read(key, statistic, self.grid)
        return Drawn(points, label, key)

    def search(self, query: str, statistic: str) -> tuple[Drawn, ...]:
        """Return the series that a search finds, each labelled by what tells it from the others."""
        keys = search(query, self._series.metrics())
        return tuple(self._drawn(key, statistic, label) for key, label in zip(keys, _telling_apart(keys), strict=True))


def _text(line: Line | Expression) -> str:
    return line.metric if isinstance(line, Line) else line.text


def _labelled(label: str | None, each: Drawn) -> str:
    """Return the label of one series of several: the expression's, then its own, unless the former names it."""
    if label and "${" in label:
        return _put_in(label, each)
    return f"{label or ''} {each.label}".strip()


def _put_in(label: str, drawn: Drawn) -> str:
    """Return the label with the values of dimensions put in; what is not known stays as it stands."""
    values = dict(drawn.key.dimensions) if drawn.key else {}
    return _PROPERTY.sub(lambda found: values.get(found[1], found[0]), label)


def _telling_apart(keys: Sequence[Key]) -> list[str]:
    """Return of each metric the dimensions in which it differs from others, and its name where names differ."""
    values: dict[str, set[str]] = {}
    for key in keys:
        for name, value in key.dimensions:
            values.setdefault(name, set()).add(value)
    named = len({key.metric for key in keys}) > 1
    told = [[value for name, value in key.dimensions if len(values[name]) > 1] for key in keys]
    return [" ".join([key.metric, *by] if named or not by else by) for key, by in zip(keys, told, strict=True)]
