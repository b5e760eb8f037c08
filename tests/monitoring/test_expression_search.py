"""SEARCH against the user guide's own examples."""

from __future__ import annotations

import pytest

from rehearsal.cloudwatch.expression import ExpressionError, evaluate_periods
from rehearsal.cloudwatch.search import SearchError, search_metrics, split_tokens
from rehearsal.cloudwatch.series_store import MetricKey, SeriesStore
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
NAMED = key("requests", Variant="tpot_ms", Concurrency="4")
ALL = (BASE, DRAFT, OPEN, BARE, TTFT, OTHER, NAMED)
SCHEMA = '{"Tandem/test",Variant,Concurrency}'


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(SCHEMA, {BASE, DRAFT, OPEN, TTFT, NAMED}, id="a schema names all dimensions of what it finds"),
        pytest.param('{"Tandem/test",Variant}', {BARE}, id="a schema with fewer dimensions finds others"),
        pytest.param("{Tandem/test, Concurrency ,Variant}", {BASE, DRAFT, OPEN, TTFT, NAMED}, id="quotes and order"),
        pytest.param(SCHEMA + ' MetricName="tpot_ms"', {BASE, DRAFT, OPEN}, id="a property holds a term to one name"),
        pytest.param(SCHEMA + ' "tpot_ms"', {BASE, DRAFT, OPEN, NAMED}, id="without one, any name will do"),
        pytest.param(SCHEMA + ', MetricName="tpot_ms"', {BASE, DRAFT, OPEN}, id="a comma behind the schema"),
        pytest.param(SCHEMA + ' MetricName="tpot_ms" Variant="base" Concurrency="4"', {BASE}, id="blanks mean AND"),
        pytest.param(SCHEMA + ' MetricName="tpot_ms" AND Variant="base"', {BASE, OPEN}, id="AND"),
        pytest.param(SCHEMA + ' MetricName="tpot_ms" NOT Variant="base"', {DRAFT}, id="NOT"),
        pytest.param(SCHEMA + ' "ttft_ms" OR Variant="base-sd"', {TTFT, DRAFT}, id="OR"),
        pytest.param(
            SCHEMA + ' (Variant="base" OR Variant="base-sd") MetricName="tpot_ms"', {BASE, DRAFT, OPEN}, id="groups"
        ),
        pytest.param(
            SCHEMA + ' Variant="base-sd" OR Variant="base" MetricName="ttft_ms"', {DRAFT, TTFT}, id="AND before OR"
        ),
        pytest.param(SCHEMA + ' Variant="Base"', set(), id="an exact term is compared by case"),
        pytest.param(SCHEMA + ' Variant="bas"', set(), id="an exact term is compared whole"),
        pytest.param(SCHEMA + " Variant=sd", {DRAFT}, id="a token is part of a name"),
        pytest.param(SCHEMA + " Variant=SD", {DRAFT}, id="a token is compared without case"),
        pytest.param(SCHEMA + " 5", {OPEN}, id="a number is a token"),
        pytest.param('MetricName="ttft_ms"', {TTFT}, id="without a schema"),
        pytest.param('Namespace="Tandem/other"', {OTHER}, id="a namespace as property"),
        pytest.param(SCHEMA + ' "Concurrency"', {BASE, DRAFT, OPEN, TTFT, NAMED}, id="a dimension's name is a name"),
    ],
)
def test_a_search_finds(query: str, expected: set[MetricKey]) -> None:
    assert set(search_metrics(query, ALL)) == expected


def test_what_is_found_is_sorted_by_name_and_dimensions() -> None:
    assert search_metrics(SCHEMA + ' MetricName="tpot_ms"', reversed(ALL)) == (BASE, DRAFT, OPEN)


def test_an_escaped_quote_is_part_of_an_exact_term() -> None:
    strange = key('a "b" \\ (c)', Variant="v", Concurrency="1")

    assert search_metrics(SCHEMA + r' "a \"b\" \\ \(c\)"', (*ALL, strange)) == (strange,)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CustomCount1", {"customcount1", "custom", "count", "1"}),
        ("SDBFailure", {"sdbfailure", "sdb", "failure"}),
        ("Project2-trial333", {"project2trial333", "project", "2", "trial", "333"}),
    ],
)
def test_tokens_are_those_of_the_user_guide(name: str, expected: set[str]) -> None:
    assert set(split_tokens(name)) == expected


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "neither a schema nor a term"),
        ("{Tandem/test", "braces do not close"),
        ("{}", "names no namespace"),
        ("{a b}", "is no list of names"),
        (SCHEMA + " base-sd", "base-sd has not one token alone: quote it"),
        (SCHEMA + ' "a" OR', "are not joined by AND, OR, NOT and parentheses"),
        (SCHEMA + ' ("a"', "are not joined by AND, OR, NOT and parentheses"),
        (SCHEMA + ' "a', '"a is no term'),
        (SCHEMA + " :aws.AccountId = 'LOCAL'", ":aws.AccountId has not one token alone"),
        ("x" * 1025, "CloudWatch takes 1024"),
    ],
)
def test_rejects_a_query_of_no_known_form(query: str, says: str) -> None:
    with pytest.raises(SearchError) as refused:
        search_metrics(query, ALL)

    assert says in str(refused.value)


def stored() -> SeriesStore:
    series = SeriesStore()
    for at, metric in enumerate((BASE, DRAFT, OPEN, TTFT)):
        series.add(metric, START, {float(at + 1): 1})
    return series


def shown(text: str, label: str | None = None, period_s: int = 60) -> list[tuple[str, float]]:
    found = evaluate_periods([MathExpression(text=text, label=label, id="e")], stored(), START, START + 60, period_s)
    return [(each.label, each.points[0][1]) for each in found]


def test_each_found_series_is_labelled_by_what_tells_it_apart() -> None:
    found = shown(f"SEARCH('{SCHEMA} MetricName=\"tpot_ms\"', 'Sum')")

    assert found == [("4 base", 1), ("4 base-sd", 2), ("rate-2.5 base", 3)]


def test_series_of_several_metrics_are_labelled_by_their_names_too() -> None:
    assert shown(f"SEARCH('{SCHEMA} Variant=\"base\" Concurrency=\"4\"', 'Sum')") == [("tpot_ms", 1), ("ttft_ms", 4)]


def test_the_expression_s_label_stands_before_the_series_own() -> None:
    found = shown(f"SEARCH('{SCHEMA} MetricName=\"tpot_ms\" Variant=\"base\"', 'Sum')", "arm")

    assert found == [("arm 4", 1), ("arm rate-2.5", 3)]


def test_a_label_may_hold_the_value_of_a_dimension() -> None:
    text = f"SEARCH('{SCHEMA} MetricName=\"tpot_ms\" Concurrency=\"4\"', 'Sum')"

    assert shown(text, "${PROP('Dim.Variant')} p50") == [("base p50", 1), ("base-sd p50", 2)]


def test_math_keeps_the_dimensions_of_what_was_found() -> None:
    text = f"SEARCH('{SCHEMA} MetricName=\"tpot_ms\" Concurrency=\"4\"', 'Sum') / 2"

    assert shown(text, "${PROP('Dim.Variant')}") == [("base", 0.5), ("base-sd", 1)]


def test_a_sum_of_what_is_found_is_one_series() -> None:
    assert shown(f"SUM(SEARCH('{SCHEMA} MetricName=\"tpot_ms\"', 'Sum', 60))", "all") == [("all", 6)]


def test_a_search_s_own_period_gives_way_to_that_of_who_evaluates() -> None:
    assert shown(f"SUM(SEARCH('{SCHEMA} MetricName=\"tpot_ms\"', 'Sum', 60))", "all", 300) == [("all", 6)]


def test_nothing_found_draws_nothing() -> None:
    assert shown("SEARCH('{Nowhere} x', 'Sum')") == []


def test_a_refused_query_is_named_with_its_expression() -> None:
    with pytest.raises(ExpressionError, match=r"^e, column 1: base-sd has not one token alone"):
        shown(f"SEARCH('{SCHEMA} base-sd', 'Sum')")
