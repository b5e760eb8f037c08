"""Whatever an expression says, it is evaluated or refused by name: nothing else leaves the evaluator."""

from __future__ import annotations

import contextlib
import math
import random
from functools import cache

import pytest

from rehearsal.cloudwatch.expression import ExpressionError, LineResult, evaluate_periods
from rehearsal.cloudwatch.series_store import MetricKey, SeriesStore
from tandem.monitoring.widget import MathExpression, MetricLine

START = 1_700_000_040
PIECES = [
    "a", "b", "e", "nobody", "0", "1", "-1", "2.5", "1e308", "1e-320", "1e999", "10**400", "True", "None", "'text'",
    "+", "-", "*", "/", "^", "%", "**", "<", ">=", "==", "!=", "in", "and", "not", "if", "else", "lambda", ":", "=",
    "(", ")", "[", "]", "{", "}", ",", " ", "\n", "\x00", "\\", '"', "'", "\ud800", "ü", "#", "IF(", "FILL(", "SUM(",
    "MIN(", "MAX(", "RUNNING_SUM(", "REPEAT", "LINEAR", "SEARCH(", "SEARCH('{N,D} a', 'Sum')", "SEARCH('a', 'p50', 60)",
    "'{N,D} MetricName=\"a\" OR (D=x NOT \"y\")'", "'Sum'", "'p101'", "METRICS()", "a.b", "*a", "**a", "f'{a}'",
]  # fmt: skip
QUERY = [*'{}()",=\\ \t', "AND", "OR", "NOT", "and", "N", "D", "MetricName", "x", "x-y", "\u0130", "1", "None", "_0"]


@cache
def series() -> SeriesStore:
    store = SeriesStore()
    for name, values in {"a": (1.0, 0.0, -3.0), "b": (2.0**360, -(2.0**360), 2.0**360), "x": (5e-324,)}.items():
        for minute, value in enumerate(values):
            store.add(MetricKey.from_dimensions("N", name, [("D", name)]), START + 60 * minute, {value: 1 + minute})
    return store


def evaluated(text: str) -> tuple[LineResult, ...]:
    lines = [
        *(MetricLine(metric=name, namespace="N", dimensions=(("D", name),), statistic="Sum", id=name) for name in "ab"),
        MathExpression(text=text, label=None, id="e"),
    ]
    return evaluate_periods(lines, series(), START, START + 240, 60)


def finite(results: tuple[LineResult, ...]) -> bool:
    return all(math.isfinite(value) for result in results for _, value in result.points)


def seeds(number: int) -> list[object]:
    """So many draws; the first one is made by every run of the tests, all of them by `make proof`."""
    return [pytest.param(seed, marks=[pytest.mark.proof] if seed else []) for seed in range(number)]


@pytest.mark.parametrize("seed", seeds(8))
def test_random_expressions_are_evaluated_or_refused(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable
    for _ in range(1500):
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 9)))
        with contextlib.suppress(ExpressionError):
            assert finite(evaluated(text))


@pytest.mark.parametrize("seed", seeds(4))
def test_random_queries_are_searched_or_refused(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable
    for _ in range(1500):
        query = "".join(chance.choices(QUERY, k=chance.randint(1, 14)))
        with contextlib.suppress(ExpressionError):
            assert finite(evaluated(f"SEARCH({query!r}, 'Sum')"))


DEEP = {
    "parentheses": "(" * 300 + "a",
    "brackets": "[" * 300,
    "minus": "-" * 2000 + "a",
    "sums": "a" + "-(a" * 190 + ")" * 190,
    "calls": "SUM([" * 90 + "a" + "])" * 90,
}


@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
def test_deep_nesting_is_evaluated_or_refused(deep: str) -> None:
    with contextlib.suppress(ExpressionError):
        evaluated(deep)


def test_deep_terms_are_searched_or_refused() -> None:
    for query in ("(" * 900, "NOT " * 250 + "x", "(" * 400 + "x" + ")" * 400):
        with contextlib.suppress(ExpressionError):
            evaluated(f"SEARCH({query!r}, 'Sum')")


def test_pieces_are_evaluated_at_all() -> None:
    """The fuzz would prove nothing if everything were refused."""
    chance = random.Random(0)  # noqa: S311 - repeatable
    done = 0
    for _ in range(1500):
        with contextlib.suppress(ExpressionError):
            evaluated("".join(chance.choices([*PIECES[:10], "*", "/", "-", "+"], k=3)))
            done += 1

    assert done > 20
