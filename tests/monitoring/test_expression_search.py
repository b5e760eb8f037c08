"""SEARCH in the form that our dashboards write."""

from __future__ import annotations

import pytest
from doubles.cloudwatch.expression import evaluate_periods
from doubles.cloudwatch.search import search_metrics
from doubles.cloudwatch.series_store import MetricKey, SeriesStore

from tandem.monitoring.widget import MathExpression

NAMESPACE = "Tandem/test"
START = 1_700_000_040


def key(metric: str, namespace: str = NAMESPACE, **dimensions: str) -> MetricKey:
    return MetricKey.from_dimensions(namespace, metric, dimensions.items())


BASE = key("tpot_ms", Variant="base", Concurrency="4")
DRAFT = key("tpot_ms", Variant="base-sd", Concurrency="4")
OPEN = key("tpot_ms", Variant="base", Concurrency="rate-2.5")
BARE = key("tpot_ms", Variant="base")
TTFT = key("ttft_ms", Variant="base", Concurrency="4")
OTHER = key("tpot_ms", "Tandem/other", Variant="base", Concurrency="4")
ALL = (BASE, DRAFT, OPEN, BARE, TTFT, OTHER)
SCHEMA = '{"Tandem/test",Variant,Concurrency}'


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(
            SCHEMA + ' MetricName="tpot_ms"',
            (BASE, DRAFT, OPEN),
            id="the schema names all dimensions",
        ),
        pytest.param(
            '{"Tandem/test",Variant} MetricName="tpot_ms"',
            (BARE,),
            id="fewer dimensions find others",
        ),
        pytest.param(
            SCHEMA + ' MetricName="tpot_ms" Variant="base" Concurrency="4"',
            (BASE,),
            id="blanks mean AND",
        ),
        pytest.param(SCHEMA + ' Variant="Base"', (), id="a term is compared by case"),
        pytest.param(SCHEMA + ' Variant="bas"', (), id="a term is compared whole"),
    ],
)
def test_a_search_finds(query: str, expected: tuple[MetricKey, ...]) -> None:
    assert search_metrics(query, reversed(ALL)) == expected


def shown(text: str, label: str | None = None, period_s: int = 60) -> list[tuple[str, float]]:
    series = SeriesStore()
    for at, metric in enumerate((BASE, DRAFT, OPEN, TTFT)):
        series.add(metric, START, {float(at + 1): 1})
    found = evaluate_periods(
        [MathExpression(text=text, label=label, id="e")], series, START, START + 60, period_s
    )
    return [(each.label, each.points[0][1]) for each in found]


def test_a_label_may_hold_the_value_of_a_dimension() -> None:
    text = f"SEARCH('{SCHEMA} MetricName=\"tpot_ms\" Concurrency=\"4\"', 'Sum')"
    assert shown(text, "${PROP('Dim.Variant')} p50") == [("base p50", 1), ("base-sd p50", 2)]
    assert shown(f"{text} / 2", "${PROP('Dim.Variant')}") == [("base", 0.5), ("base-sd", 1)]


@pytest.mark.parametrize("period_s", [60, 300])
def test_a_sum_of_what_is_found_is_one_series_of_the_period_that_is_evaluated(
    period_s: int,
) -> None:
    assert shown(f"SUM(SEARCH('{SCHEMA} MetricName=\"tpot_ms\"', 'Sum', 60))", "all", period_s) == [
        ("all", 6)
    ]
