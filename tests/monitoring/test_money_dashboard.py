"""The dashboard of money and capacity: nodes that were seen, times a stated price."""

from __future__ import annotations

import pytest
from doubles.cloudwatch.expression import evaluate_periods, evaluate_range
from doubles.cloudwatch.series_store import MetricKey, SeriesStore
from hosted import by_part, changed, drawn, graph, graphs, words

from tandem.monitoring.widget import Dashboard, GraphMark, GraphWidget

ENVIRONMENT = "post-us-east-2"
NODES = MetricKey.from_dimensions(f"Tandem/{ENVIRONMENT}", "accelerator_nodes", ())
START_S = 1_795_000_200  # a whole five minutes
BLOCK = {"starts": "2026-12-01T11:30:00Z", "ends": "2026-12-08T11:30:00Z"}
RESERVED = {"reservation_id": "cr-0123456789abcdef0"}


def money(**capacity: object) -> Dashboard:
    """The post's environment's dashboard with some values of its capacity changed."""
    return by_part(changed(ENVIRONMENT, capacity=capacity))["money"]


def lived(*nodes: float) -> SeriesStore:
    """As many events as there were nodes, minute by minute; 0 where a minute had none."""
    series = SeriesStore()
    for minute, count in enumerate(nodes):
        series.add(NODES, START_S + 60 * minute, {1.0: int(count)} if count else {0.0: 1})
    return series


def points(one: GraphWidget, series: SeriesStore, minutes: int) -> list[float]:
    (found,) = evaluate_periods(one.lines, series, START_S, START_S + 60 * minutes, one.period_s)
    return [value for _, value in found.points]


def number(one: GraphWidget, series: SeriesStore, minutes: int) -> float:
    (found,) = evaluate_range(one.lines, series, START_S, START_S + 60 * minutes)
    ((_, value),) = found.points
    return value


def test_an_hour_of_one_node_is_a_node_hour_at_the_stated_price() -> None:
    series = lived(*[1] * 60)
    dashboard = money(usd_per_hour=35.76)
    assert number(graph(dashboard, "Node-hours in the range"), series, 60) == pytest.approx(1)
    assert number(graph(dashboard, "Cost in the range"), series, 60) == pytest.approx(35.76)


def test_hours_add_up_and_stay_where_no_node_lives() -> None:
    series = lived(*[1] * 10)
    assert points(graph(money(), "Node-hours since"), series, 20) == pytest.approx(
        [5 / 60, 10 / 60, 10 / 60, 10 / 60]
    )


@pytest.mark.parametrize("title", ["Accelerator nodes alive", "Node-hours since", "Cost since"])
def test_start_and_end_of_the_block_are_marked_over_time(title: str) -> None:
    marks = graph(money(**RESERVED, block=BLOCK), title).marks
    assert GraphMark(label="block starts", moment="2026-12-01T11:30:00Z") in marks
    assert GraphMark(label="block ends", moment="2026-12-08T11:30:00Z") in marks


@pytest.mark.parametrize(
    ("capacity", "said"),
    [
        ({"reservation_id": None}, "No Capacity Block is bought yet"),
        (RESERVED, "Start and end of the block are not stated"),
        (RESERVED | {"block": BLOCK}, "from 2026-12-01T11:30:00Z to 2026-12-08T11:30:00Z"),
        ({"kind": "on-demand", "reservation_id": None}, "There is no Capacity Block"),
        ({"kind": "spot", "reservation_id": None}, "A spot price moves"),
    ],
)
def test_what_is_known_of_the_block_is_said(capacity: dict[str, object], said: str) -> None:
    assert said in words(money(**capacity))


def test_the_last_run_of_each_experiment_is_one_line_of_all_its_arms() -> None:
    series = SeriesStore()
    for variant, count in (("qwen-vllm", 8.0), ("qwen-sd-vllm", 16.0)):
        for experiment, class_ in (
            ("post", "all"),
            ("post-drafts-windows", "all"),
            ("post", "repeat"),
        ):
            cell = {
                "Experiment": experiment,
                "Variant": variant,
                "PromptClass": class_,
                "Concurrency": "all",
            }
            series.add(
                MetricKey.from_dimensions(f"Tandem/{ENVIRONMENT}", "requests", cell.items()),
                START_S,
                {count: 1},
            )
    one = graph(drawn(ENVIRONMENT)["money"], "Last runs")

    found = evaluate_periods(one.lines, series, START_S, START_S + 300, 300)

    assert [(result.label, [value for _, value in result.points]) for result in found] == [
        ("post", [24]),
        ("post-drafts-windows", [24]),
    ]


def test_without_container_insights_no_node_is_counted_and_that_is_said() -> None:
    dashboard = by_part(changed(ENVIRONMENT, observability={"container_insights": False}))["money"]
    assert {one.publisher for one in graphs(dashboard)} == {"guard", "bench"}
    assert "Nodes, hours and USD are not drawn" in words(dashboard)


# what the guard saw


def looked(metric: str, *values: float) -> SeriesStore:
    """One value a pass."""
    series = SeriesStore()
    for at, value in enumerate(values):
        series.add(
            MetricKey.from_dimensions(f"Tandem/Guard/{ENVIRONMENT}", metric, ()),
            START_S + 300 * at,
            {value: 1},
        )
    return series


def test_idle_minutes_of_a_block_add_up_as_hours() -> None:
    one = graph(money(), "Idle hours of the block")
    assert points(one, looked("idle_block_minutes", 5, 0, 5, 5), 20) == pytest.approx(
        [5 / 60, 5 / 60, 10 / 60, 15 / 60]
    )
