"""A spoiled dashboard is refused, for each way of spoiling one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hosted import drawn, graphs

from tandem import metrics
from tandem.monitoring import dashboard_body as of_body
from tandem.monitoring.dashboard_body import find_faults
from tandem.monitoring.widget import (
    Dashboard,
    DashboardVariable,
    GraphMark,
    GraphWidget,
    MathExpression,
    MetricLine,
    TextWidget,
)

LATENCY = "E2E latency, p50"
SPEED_UP = "E2E latency, speed-up"
FIGURE = "Figure 3"


def sound(part: str = "post") -> Dashboard:
    return drawn("post-us-east-2")[part]


def spoiled(title: str, spoil: Callable[[GraphWidget], GraphWidget], part: str = "post") -> list[str]:
    """Return the faults of a sound dashboard in which one graph is spoiled."""
    (chosen,) = [graph for graph in graphs(sound(part)) if graph.title.startswith(title)]
    widgets = tuple(spoil(widget) if widget is chosen else widget for widget in sound(part).widgets)
    return find_faults(replace(sound(part), widgets=widgets))


def with_line(number: int, **given: Any) -> Callable[[GraphWidget], GraphWidget]:
    """Return a spoiler that changes one line."""

    def spoil(graph: GraphWidget) -> GraphWidget:
        lines = list(graph.lines)
        lines[number] = replace(lines[number], **given)
        return replace(graph, lines=tuple(lines))

    return spoil


def with_dimension(name: str, value: str) -> Callable[[GraphWidget], GraphWidget]:
    """Return a spoiler that puts another dimension in the place of the first line's first one."""

    def spoil(graph: GraphWidget) -> GraphWidget:
        line = graph.lines[0]
        assert isinstance(line, MetricLine)
        return with_line(0, dimensions=((name, value), *line.dimensions[1:]))(graph)

    return spoil


def given(**values: Any) -> Callable[[GraphWidget], GraphWidget]:
    return lambda graph: replace(graph, **values)


def searching(old: str, new: str) -> Callable[[GraphWidget], GraphWidget]:
    def spoil(graph: GraphWidget) -> GraphWidget:
        line = graph.lines[0]
        assert isinstance(line, MathExpression)
        return with_line(0, text=line.text.replace(old, new))(graph)

    return spoil


def the_only(found: list[str]) -> str:
    assert len(found) == 1, found
    return found[0]


REFERENCES = [
    (LATENCY, with_line(0, metric="e2e_seconds"), "nobody named publishes e2e_seconds"),
    (LATENCY, with_line(0, metric="tokens_per_chunk"), "nobody named publishes tokens_per_chunk"),
    (LATENCY, with_line(0, namespace="tandem/post-us-east-2"), "nobody named publishes e2e_ms in tandem/post"),
    (LATENCY, with_line(0, namespace="Tandem/post-us-east-2/x"), "publishes e2e_ms in Tandem/post-us-east-2/x"),
    (LATENCY, with_dimension("Experimnt", "post"), "by Experimnt, Variant"),
    (LATENCY, with_line(0, namespace="Tandem/dev"), "several environments: dev, post-us-east-2"),
    (LATENCY, with_line(0, statistic="p50th"), "'p50th' is no statistic"),
    (LATENCY, with_line(0, metric="completion_tokens"), "completion_tokens is in tokens, and the graph in ms"),
    (FIGURE, searching('MetricName="e2e_ms"', 'MetricName="e2e"'), "nobody named publishes e2e in"),
    (FIGURE, searching(",Concurrency}", "}"), "by Experiment, Variant, PromptClass"),
    (FIGURE, searching('PromptClass="repeat"', 'Class="repeat"'), "nobody named publishes e2e_ms"),
    (FIGURE, searching("Tandem/post-us-east-2", "Tandm/post-us-east-2"), "nobody named publishes e2e_ms in Tandm"),
    (FIGURE, searching('{"', "{"), "a search of another form than ours"),
    (FIGURE, searching('"repeat"', f'"{"r" * 900}"'), "CloudWatch takes 1024"),
    (FIGURE, searching("SEARCH(", f"{'1 * ' * 500}SEARCH("), "CloudWatch takes 2048"),
]
IDS = [
    (SPEED_UP, with_line(-1, text="IF(a0 * a1 > 0, a0 / a9)"), "reads 'a9', and no line has this id"),
    (SPEED_UP, with_line(-1, id="a0"), "id 'a0' is given 2 times"),
    (SPEED_UP, with_line(-1, id="A1"), "id 'A1' does not start with a small letter"),
    (SPEED_UP, with_line(-1, text="a0 / a0"), "a hidden line that nothing reads: e2e_ms"),
    (LATENCY, with_line(0, is_visible=False), "a hidden line that nothing reads: e2e_ms"),
]
WORDS = [
    (LATENCY, given(unit="s"), "does not end with its unit, [s]"),
    (LATENCY, given(unit="", title="E2E latency, p50 []"), "does not end with its unit"),
    (LATENCY, given(title="E2E latency, p50"), "does not end with its unit, [ms]"),
    (LATENCY, given(sentence=""), "no sentence says what it shows"),
    (LATENCY, given(sentence="latency"), "no sentence says what it shows"),
    (LATENCY, given(period_s=90), "a period of 90 s"),
    (LATENCY, given(lines=()), "it shows no line"),
    (LATENCY, with_line(0, label=None), "a shown line without a label: e2e_ms"),
    (LATENCY, given(marks=(GraphMark(label="end"),)), "not exactly one of a level and a moment"),
    (LATENCY, given(marks=(GraphMark(label="end", value=1.0, moment="2026-12-01T11:30:00Z"),)), "not exactly one"),
    (LATENCY, given(marks=(GraphMark(label="end", moment="1 December"),)), "'1 December' is no moment"),
]
PUBLISHERS = [
    (LATENCY, given(publishers=("bnch",)), "publisher 'bnch' is not in the catalogue"),
    (LATENCY, given(publishers=("container-insights",)), "nobody named publishes e2e_ms"),
    (LATENCY, given(publishers=("bench", "log-filter")), "names publisher 'log-filter' and draws nothing of it"),
    (LATENCY, given(publishers=("bench", "neuron")), "nobody has recorded what neuron sends"),
    (LATENCY, given(publishers=()), "nobody named publishes e2e_ms"),
]


SPOILED = REFERENCES + IDS + WORDS + PUBLISHERS


@pytest.mark.parametrize(("title", "spoil", "said"), SPOILED, ids=[said[:50] for _, _, said in SPOILED])
def test_a_spoiled_graph_is_refused_by_its_title_and_the_reason(
    title: str, spoil: Callable[[GraphWidget], GraphWidget], said: str
) -> None:
    found = spoiled(title, spoil)

    assert any(said in fault for fault in found), found


def test_a_fault_of_a_graph_names_the_graph() -> None:
    fault = the_only(spoiled(LATENCY, given(sentence="latency")))

    assert fault == "graph 'E2E latency, p50 [ms]': no sentence says what it shows and what it does not"


def test_a_metric_whose_publisher_has_no_recording_any_more_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = sound("machine")
    unrecorded = replace(metrics.PUBLISHERS["container-insights"], sample=None)
    monkeypatch.setitem(metrics.PUBLISHERS, "container-insights", unrecorded)

    assert any("nobody has recorded what container-insights sends" in fault for fault in find_faults(machine))


def test_a_metric_that_left_the_catalogue_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    money = sound("money")
    monkeypatch.delitem(metrics.CLOUDWATCH_METRICS, ("log-filter", "accelerator_nodes"))

    assert any("nobody named publishes accelerator_nodes" in fault for fault in find_faults(money))


def test_a_figure_that_the_bench_no_longer_publishes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = sound()
    monkeypatch.setitem(metrics.CATALOGUE, "ttft_ms", replace(metrics.CATALOGUE["ttft_ms"], goes_to_cloudwatch=False))

    assert any("nobody named publishes ttft_ms" in fault for fault in find_faults(arms))


@pytest.mark.parametrize(("width", "said"), [(25, "stands outside the 24 columns"), (7, "cells of"), (0, "outside")])
def test_a_graph_that_leaves_a_hole_or_the_columns_is_refused(width: int, said: str) -> None:
    assert any(said in fault for fault in spoiled(LATENCY, given(width=width)))


@pytest.mark.parametrize("name", ["", "with blank", "with/slash", "n" * 256])
def test_a_name_that_cloudwatch_refuses_is_refused(name: str) -> None:
    assert "is no name of a dashboard" in the_only(find_faults(replace(sound(), name=name)))


def test_a_text_that_says_nothing_is_refused() -> None:
    silent = replace(sound(), widgets=(*sound().widgets, TextWidget(markdown=" \n", height=1)))

    assert the_only(find_faults(silent)).endswith("a text that says nothing")


def repeated(count: int) -> Dashboard:
    """A dashboard of one sound graph, `count` times."""
    (graph,) = [graph for graph in graphs(sound()) if graph.title.startswith("TPOT, p50")]
    return replace(sound(), widgets=(replace(graph, width=24),) * count)


@pytest.mark.parametrize(("count", "refused"), [(250, False), (251, True)])
def test_captions_count_among_the_500_widgets(count: int, refused: bool) -> None:
    found = [fault for fault in find_faults(repeated(count)) if "CloudWatch draws 500" in fault]

    assert bool(found) == refused


@pytest.mark.parametrize(("lines", "refused"), [(500, False), (501, True)])
def test_a_widget_has_500_metrics_at_most(lines: int, refused: bool) -> None:
    found = spoiled(LATENCY, lambda graph: replace(graph, lines=(graph.lines[0],) * lines))

    assert any("CloudWatch takes 500 a widget" in fault for fault in found) == refused


@pytest.mark.parametrize(("graphs_of_ten", "refused"), [(250, False), (251, True)])
def test_a_dashboard_has_2500_metrics_at_most(graphs_of_ten: int, refused: bool) -> None:
    whole = repeated(graphs_of_ten)
    graph = whole.widgets[0]
    assert isinstance(graph, GraphWidget)
    crowded = replace(whole, widgets=(replace(graph, lines=(graph.lines[0],) * 10),) * graphs_of_ten)

    assert any("CloudWatch takes 2500 a dashboard" in fault for fault in find_faults(crowded)) == refused


def test_a_body_that_no_template_could_carry_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_body, "MAX_BODY_BYTES", 10_000)

    assert "more than 10000 are not deployed" in the_only(find_faults(sound()))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ((DashboardVariable(dimension="PromptClass", label="Class", values=()),), "its values are none"),
        ((DashboardVariable(dimension="PromptClass", label="Class", values=("repeat", "repeat")),), "one stands twice"),
        (
            (DashboardVariable(dimension="PromptClass", label="Class", values=("open",)),),
            "PromptClass 'open' is not in it",
        ),
        ((), "varies, and the dashboard has no variable"),
    ],
)
def test_a_choice_that_changes_nothing_is_refused(variables: tuple[DashboardVariable, ...], said: str) -> None:
    assert any(said in fault for fault in find_faults(replace(sound(), variables=variables)))
