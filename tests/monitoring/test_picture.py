"""What a page draws: the same numbers as the records, for every choice, thinned honestly."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rehearsal.cloudwatch.page_data import PageSource, build_page_data
from rehearsal.cloudwatch.series_store import MetricKey, SeriesStore
from tandem.monitoring.widget import (
    Dashboard,
    DashboardVariable,
    GraphMark,
    GraphWidget,
    MathExpression,
    MetricLine,
    TextWidget,
)

NAMESPACE = "Tandem/test"
START = 1_700_000_100
VARIABLES = (
    DashboardVariable(dimension="PromptClass", label="Class", values=("json", "open")),
    DashboardVariable(dimension="Concurrency", label="Concurrency", values=("4", "1")),
)


def line(arm: str, statistic: str = "p50", metric: str = "tpot_ms", **options: str) -> MetricLine:
    dimensions = (("Variant", arm), ("PromptClass", "json"), ("Concurrency", "4"))
    return MetricLine(
        metric=metric, namespace=NAMESPACE, dimensions=dimensions, statistic=statistic, label=arm, **options
    )


GRAPH = GraphWidget(
    title="TPOT [ms]", sentence="Time per token.", unit="ms", publishers=("bench",), period_s=300,
    lines=(line("base"), line("draft")),
)  # fmt: skip


def dashboard(*widgets: GraphWidget | TextWidget, variables: tuple[DashboardVariable, ...] = VARIABLES) -> Dashboard:
    return Dashboard(name="d", title="D", widgets=widgets, variables=variables)


def stored(cells: dict[tuple[str, str, str], dict[int, list[float]]], metric: str = "tpot_ms") -> SeriesStore:
    """Arm, class and concurrency -> minute -> values."""
    series = SeriesStore()
    for (arm, class_, load), minutes in cells.items():
        key = MetricKey.from_dimensions(
            NAMESPACE, metric, [("Variant", arm), ("PromptClass", class_), ("Concurrency", load)]
        )
        for minute, values in minutes.items():
            for value in values:
                series.add(key, START + 60 * minute, {value: 1})
    return series


def held(
    series: SeriesStore, publishers: tuple[str, ...] = ("bench",), minutes: int = 20, **options: object
) -> PageSource:
    return PageSource(
        series=series, publishers=frozenset(publishers), start_s=START, end_s=START + 60 * minutes, **options
    )  # fmt: skip


def drawn(series: SeriesStore, *widgets: GraphWidget | TextWidget, **options: object) -> dict:
    return build_page_data([dashboard(*widgets)], held(series, **options))["dashboards"][0]


def test_each_choice_has_the_lines_of_its_own_class_and_concurrency() -> None:
    series = stored({("base", "json", "4"): {0: [10.0]}, ("base", "open", "1"): {1: [50.0, 60.0]}})

    (graph,) = drawn(series, GRAPH)["widgets"]

    assert {choice: lines[0]["values"] for choice, lines in graph["lines"].items()} == {
        "json\n4": [10],
        "open\n1": [55],
    }


def test_a_choice_replaces_the_value_that_a_search_names() -> None:
    text = (
        """SEARCH('{"Tandem/test",Variant,PromptClass,Concurrency} PromptClass="json" Concurrency="4"', 'p50', 300)"""
    )
    search = dataclasses.replace(GRAPH, lines=(MathExpression(text=text, label="", id="e"),))
    series = stored({("base", "json", "4"): {0: [10.0]}, ("base", 'o"p\\en', "1"): {1: [50.0]}})

    (graph,) = drawn(series, search)["widgets"]

    assert graph["lines"]['o"p\\en\n1'][0]["values"] == [50]


def test_a_graph_that_does_not_vary_is_drawn_once() -> None:
    series = stored({("base", "json", "4"): {0: [10.0]}, ("base", "open", "1"): {1: [50.0]}})

    (graph,) = drawn(series, dataclasses.replace(GRAPH, varies=False))["widgets"]

    assert list(graph["lines"]) == [""]


def test_what_was_measured_but_is_no_choice_of_the_dashboard_is_offered_behind_them() -> None:
    series = stored({("base", "json", "rate-2.5"): {0: [10.0]}, ("base", "new", "4"): {0: [10.0]}})

    classes, loads = drawn(series, GRAPH)["variables"]

    offered = [(value["value"], value["listed"]) for value in classes["values"]]
    assert offered == [("json", True), ("open", True), ("new", False)]
    assert [value["value"] for value in loads["values"]] == ["4", "1", "rate-2.5"]


def test_the_first_choice_that_has_values_is_chosen() -> None:
    series = stored({("base", "open", "1"): {0: [10.0]}, ("base", "all", "all"): {0: [10.0]}})

    assert tuple(drawn(series, GRAPH)["chosen"]) == ("open", "1")


def test_the_pool_of_all_loads_is_no_choice() -> None:
    series = stored({("base", "open", "1"): {0: [10.0]}, ("base", "all", "all"): {0: [10.0]}})

    assert [value["value"] for value in drawn(series, GRAPH)["variables"][1]["values"]] == ["4", "1"]


def test_the_whole_is_the_statistic_of_all_values_and_not_of_the_points() -> None:
    series = stored({("base", "json", "4"): {0: [1.0, 1.0, 1.0], 7: [9.0]}})

    (graph,) = drawn(series, GRAPH)["widgets"]
    base = graph["lines"]["json\n4"][0]

    assert (base["values"], base["whole"]) == ([1, 9], 1)


def test_short_records_are_drawn_minute_by_minute_and_the_page_says_so() -> None:
    series = stored({("base", "json", "4"): {0: [1.0], 1: [2.0]}})

    found = build_page_data([dashboard(GRAPH)], held(series))

    assert found["dashboards"][0]["widgets"][0]["lines"]["json\n4"][0]["periods"] == [0, 1]
    assert "drawn minute by minute; in the deployed dashboard a point is 5 minutes" in found["notes"][0]


def test_counts_keep_the_period_that_their_sentence_speaks_of() -> None:
    counted = dataclasses.replace(GRAPH, lines=(line("base", "Sum"),))
    series = stored({("base", "json", "4"): {0: [1.0], 1: [2.0]}})

    (graph,) = drawn(series, counted)["widgets"]

    assert (graph["period_s"], graph["lines"]["json\n4"][0]["values"]) == (300, [3])


def test_long_records_keep_the_dashboard_s_own_period() -> None:
    series = stored({("base", "json", "4"): {0: [1.0], 1: [2.0]}})

    found = build_page_data([dashboard(GRAPH)], held(series, minutes=61))

    assert (found["dashboards"][0]["widgets"][0]["period_s"], found["notes"]) == (300, [])


def test_more_points_than_a_page_has_room_for_are_thinned_to_longer_periods_of_all_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rehearsal.cloudwatch.page_data.MAX_POINTS", 700)
    choice = np.random.default_rng(1)
    minutes = {minute: [float(value) for value in choice.integers(1, 900, 3)] for minute in range(0, 2400, 5)}
    cells = {("base", "json", "4"): minutes, ("draft", "json", "4"): minutes}

    found = build_page_data([dashboard(GRAPH)], held(stored(cells), minutes=2400))
    base = found["dashboards"][0]["widgets"][0]["lines"]["json\n4"][0]
    first = [value for minute in range(0, 15, 5) for value in minutes[minute]]

    assert found["dashboards"][0]["widgets"][0]["period_s"] == 900
    assert base["values"][0] == np.quantile(first, 0.5)
    assert "a point is 15 minutes in every graph" in found["notes"][0]


def test_a_graph_of_a_publisher_that_sent_nothing_is_absent() -> None:
    other = dataclasses.replace(GRAPH, publishers=("container-insights",))

    (graph,) = drawn(stored({("base", "json", "4"): {0: [1.0]}}), other)["widgets"]

    assert (graph["kind"], "lines" in graph) == ("absent", False)


def test_a_metric_that_records_cannot_hold_is_absent_with_its_reason() -> None:
    unknown = dataclasses.replace(GRAPH, lines=(line("base", metric="unpublished_rounds"),))
    series = stored({("base", "json", "4"): {0: [1.0]}})

    (graph,) = drawn(series, unknown, absence_reasons={"unpublished_rounds": ": it is counted elsewhere"})["widgets"]

    assert (graph["kind"], graph["why"]) == ("absent", ": it is counted elsewhere")


def test_an_arm_has_one_hue_in_every_graph_and_a_dash_for_each_further_line() -> None:
    both = dataclasses.replace(GRAPH, lines=(line("draft"), line("base"), line("draft", "p90")))
    series = stored({(arm, "json", "4"): {0: [1.0]} for arm in ("base", "draft")})

    first, second = drawn(series, GRAPH, both)["widgets"]

    assert [(each["hue"], each["dash"]) for each in first["lines"]["json\n4"]] == [(0, 0), (1, 0)]
    assert [(each["hue"], each["dash"]) for each in second["lines"]["json\n4"]] == [(1, 0), (0, 0), (1, 1)]


def test_numbers_are_of_the_whole_time_and_have_no_points() -> None:
    speed_up = dataclasses.replace(
        GRAPH, view="numbers",
        lines=(line("base", id="a", is_visible=False), line("draft", id="b", is_visible=False),
               MathExpression(text="a / b", label="draft", id="e")),
    )  # fmt: skip
    series = stored({("base", "json", "4"): {0: [30.0]}, ("draft", "json", "4"): {9: [15.0]}})

    (graph,) = drawn(series, speed_up)["widgets"]

    assert graph["lines"]["json\n4"] == [
        {"label": "draft", "hue": 0, "dash": 0, "whole": 2, "periods": [], "values": []}
    ]


def test_marks_and_texts_are_kept() -> None:
    marked = dataclasses.replace(
        GRAPH, marks=(GraphMark(label="most", value=4.0), GraphMark(label="end", moment="2026-01-01T00:00:00Z"))
    )

    graph, text = drawn(stored({("base", "json", "4"): {0: [1.0]}}), marked, TextWidget(markdown="# Say"))["widgets"]

    assert graph["marks"] == [
        {"label": "most", "value": 4.0, "at": None},
        {"label": "end", "value": None, "at": "2026-01-01T00:00:00Z"},
    ]
    assert (text["kind"], text["markdown"]) == ("text", "# Say")


@pytest.mark.parametrize(
    ("value", "expected"), [(0.0, 0), (1234.56, 1235), (0.00012345678, 0.0001235), (-3.0, -3), (45.0, 45)]
)
def test_numbers_are_written_to_four_digits(value: float, expected: float) -> None:
    (graph,) = drawn(stored({("base", "json", "4"): {0: [value]}}), GRAPH)["widgets"]

    assert graph["lines"]["json\n4"][0]["values"] == [expected]
