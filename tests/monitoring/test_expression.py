"""Metric math against cases worked by hand, most of them the user guide's own tables."""

from __future__ import annotations

import pytest
from doubles.cloudwatch.expression import ExpressionError, evaluate_periods, evaluate_range
from doubles.cloudwatch.series_store import MetricKey, SeriesStore

from tandem.monitoring.widget import MathExpression, MetricLine

NAMESPACE = "Tandem/test"
START = 1_700_000_040  # a whole minute
GONE = None
FOUND = "SEARCH('{\"Tandem/test\",Of,All} All=\"yes\"', 'Sum')"


def line(
    name: str, *, shown: bool = False, statistic: str = "Sum", label: str | None = None
) -> MetricLine:
    return MetricLine(
        metric=name,
        namespace=NAMESPACE,
        dimensions=(("Of", name), ("All", "yes")),
        statistic=statistic,
        label=label,
        id=name,
        is_visible=shown,
    )


def stored(**values: list[float | None]) -> SeriesStore:
    """One value a minute and metric; None for a minute without."""
    series = SeriesStore()
    for name, minutes in values.items():
        for minute, value in enumerate(minutes):
            if value is not None:
                series.add(
                    MetricKey.from_dimensions(NAMESPACE, name, [("Of", name), ("All", "yes")]),
                    START + 60 * minute,
                    {value: 1},
                )
    return series


def drawn(text: str, minutes: int = 5, **values: list[float | None]) -> list[float | None]:
    lines = [*(line(name) for name in values), MathExpression(text=text, label="shown", id="shown")]
    (result,) = evaluate_periods(lines, stored(**values), START, START + 60 * minutes, 60)
    points = dict(result.points)
    assert set(points) <= {START + 60 * minute for minute in range(minutes)}
    return [points.get(START + 60 * minute) for minute in range(minutes)]


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        pytest.param(
            "a / b",
            {"a": [6, 9], "b": [3, 2]},
            [2, 4.5],
            id="two series are divided minute by minute",
        ),
        pytest.param(
            "a / b", {"a": [6, 9], "b": [3, 0]}, [2, GONE], id="a division by zero drops the point"
        ),
        pytest.param(
            "a / b",
            {"a": [6, 9], "b": [3]},
            [2, GONE],
            id="a missing divisor counts as 0 and drops it",
        ),
        pytest.param("a / b", {"a": [6], "b": [3, 2]}, [2, 0], id="a missing dividend counts as 0"),
        pytest.param(
            "a - b",
            {"a": [6], "b": [GONE, 2]},
            [6, -2],
            id="a missing point counts as 0 on either side",
        ),
        pytest.param(
            "a + b",
            {"a": [1, GONE, 3], "b": [1]},
            [2, GONE, 3],
            id="no point where neither has one",
        ),
        pytest.param("100 * a / b", {"a": [1, 2], "b": [4, 4]}, [25, 50], id="a share in percent"),
        pytest.param("a / 60 * 35.76", {"a": [60, 30]}, [35.76, 17.88], id="left before right"),
        pytest.param("-a + 1", {"a": [1, 2]}, [0, -1], id="unary minus"),
        pytest.param(
            "IF(a * b > 0, a / b)",
            {"a": [6], "b": [3, 2]},
            [2, GONE],
            id="a ratio where both have a point",
        ),
        pytest.param(
            "a < b",
            {"a": [30, 20, 0, 0], "b": [20, GONE, 20]},
            [0, 0, 1, 0],
            id="less, of the user guide",
        ),
        pytest.param(
            "a >= 30", {"a": [30, 20, 0, 0]}, [1, 0, 0, 0], id="not less, of the user guide"
        ),
        pytest.param(
            "a == 0",
            {"a": [0, GONE, 1]},
            [1, GONE, 0],
            id="a number is compared at the series' points",
        ),
        pytest.param(
            "a != b", {"a": [1, 2], "b": [1, GONE]}, [0, 1], id="unequal to a missing point"
        ),
        pytest.param(
            "IF(a, b, c)",
            {"a": [1, 1, 0, 0, GONE], "b": [30, GONE, 0, 0, 30], "c": [0, 0, 20, GONE, 20]},
            [30, 0, 20, GONE, GONE],
            id="IF of three series, of the user guide",
        ),
        pytest.param(
            "IF(a, 5, c)",
            {"a": [1, 1, 0, 0, GONE], "c": [0, 0, 20, GONE, 20]},
            [5, 5, 20, GONE, GONE],
            id="IF with a number to take, of the user guide",
        ),
        pytest.param(
            "IF(a, b, 5)",
            {"a": [1, 1, 0, 0, GONE], "b": [30, GONE, 0, 0, 30]},
            [30, 0, 5, 5, GONE],
            id="IF with a number otherwise, of the user guide",
        ),
        pytest.param(
            "IF(a > 1, a)",
            {"a": [1, 2, GONE, 3]},
            [GONE, 2, GONE, 3],
            id="IF without otherwise drops",
        ),
        pytest.param(
            f"SUM({FOUND})",
            {"a": [1, GONE], "b": [2, 5]},
            [3, 5],
            id="SUM of what was found is a series",
        ),
        pytest.param(
            f"SUM({FOUND} / c)", {"a": [2], "b": [4], "c": [2]}, [4], id="an array by a series"
        ),
        pytest.param(f"SUM(12 / {FOUND})", {"a": [2], "b": [4]}, [9], id="a number by an array"),
        pytest.param(
            "FILL(a, 0)", {"a": [GONE, 2, GONE]}, [0, 2, 0, 0, 0], id="FILL with a number"
        ),
        pytest.param(
            "RUNNING_SUM(a)", {"a": [1, GONE, 3]}, [1, GONE, 4], id="RUNNING_SUM passes over a gap"
        ),
        pytest.param(
            "RUNNING_SUM(FILL(a, 0)) / 60",
            {"a": [60, GONE, 30]},
            [1, 1, 1.5, 1.5, 1.5],
            id="hours so far",
        ),
        pytest.param(
            "RUNNING_SUM(FILL(a, 0)) / 60 * 2.5",
            {"a": [60, GONE, 30]},
            [2.5, 2.5, 3.75, 3.75, 3.75],
            id="dollars",
        ),
    ],
)
def test_an_expression_gives_what_was_worked_by_hand(
    text: str, values: dict[str, list[float | None]], expected: list[float | None]
) -> None:
    found = drawn(text, **values)
    assert found == [*expected, *([GONE] * (5 - len(expected)))]


def test_the_whole_range_is_one_period() -> None:
    series = stored(a=[1, 2, 9], b=[2, 2, 2])
    lines = [
        line("a", statistic="p50"),
        line("b", statistic="p50"),
        MathExpression(text="a / b", label="x", id="e"),
    ]
    (found,) = evaluate_range(lines, series, START, START + 180)
    assert found.points == ((START, 1.0),)


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [
        ("p0", 1.0),
        ("p50", 50.5),
        ("p90", 90.1),
        ("p99", 99.01),
        ("p100", 100.0),
        ("Average", 50.5),
        ("Sum", 5050.0),
        ("SampleCount", 100.0),
        ("Minimum", 1.0),
        ("Maximum", 100.0),
    ],
)
def test_statistics_of_1_to_100(statistic: str, expected: float) -> None:
    series = SeriesStore()
    series.add(
        MetricKey.from_dimensions(NAMESPACE, "a", [("Of", "a"), ("All", "yes")]),
        START,
        {float(value): 1 for value in range(1, 101)},
    )

    (found,) = evaluate_periods(
        [line("a", shown=True, statistic=statistic)], series, START, START + 60, 60
    )

    assert found.points[0][1] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nobody / a", "no line of the widget has the id nobody"),
        ("a ^ 2", "is of no form that is evaluated here"),
        ("a > 1 AND a < 3", "it cannot be read as an expression"),
        ("5", "it gives a number, and only series can be drawn"),
        ("SUM(a)", "SUM is evaluated of what a SEARCH finds"),
        (f"{FOUND} + {FOUND}", "two arrays are joined"),
        ("IF(a)", "IF takes 2 or 3 arguments"),
        ("a / (1 / 0)", "it divides by zero, or the number is too large"),
        ("a + shown", "it reads itself"),
        ("a" + "+ a" * 1000, "CloudWatch takes 2048"),
        (FOUND.replace("'Sum'", "'median'"), "median is no statistic"),
    ],
)
def test_refuses_what_is_of_no_known_form(text: str, says: str) -> None:
    with pytest.raises(ExpressionError, match=r"^shown") as refused:
        drawn(text, a=[1, 2, 3], empty=[None])
    assert says in str(refused.value)
    assert refused.value.text == text
