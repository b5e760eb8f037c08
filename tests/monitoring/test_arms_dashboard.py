"""The dashboard of an experiment: arms side by side, against the baseline."""

from __future__ import annotations

import pytest
from doubles.cloudwatch.expression import evaluate_periods, evaluate_range
from doubles.cloudwatch.series_store import MetricKey, SeriesStore
from hosted import asking, by_part, drawn, graph, graphs, words

from tandem.bench.suites.suite import load_suite as suite
from tandem.metrics import ALL_VALUES, find_metric
from tandem.monitoring.experiment_dashboard import PROMPTS
from tandem.monitoring.widget import Dashboard, GraphWidget, MetricLine

ENVIRONMENT = "post-us-east-2"
SPACE = f"Tandem/{ENVIRONMENT}"
BASE = "qwen-vllm"
FAST = "qwen-sd-vllm"
START_S = 1_795_000_200  # a whole five minutes
DRAFTED = {"mode": "fused", "draft": "Qwen/Qwen3-1.7B", "num_speculative_tokens": 7}


def post() -> Dashboard:
    return drawn(ENVIRONMENT)["post"]


def posting(**given: object) -> Dashboard:
    """The dashboard of the post's experiment with some of its values changed."""
    return by_part(asking(ENVIRONMENT, "post", **given))["post"]


def put(series: SeriesStore, name: str, variant: str, values: list[float], **at: str | int) -> None:
    """Publish values as the bench does; at the chosen class and concurrency unless said
    otherwise."""
    class_ = at.get("class_", "repeat")
    concurrency = at.get("concurrency", "4")
    minute = int(at.get("minute", 0))
    dimensions = (
        ("Experiment", "post"),
        ("Variant", variant),
        ("PromptClass", class_),
        ("Concurrency", concurrency),
    )
    key = MetricKey.from_dimensions(
        SPACE, name, [(dimension, str(value)) for dimension, value in dimensions]
    )
    for value in values:
        series.add(key, START_S + 60 * minute, {value: 1})


def over_time(
    one: GraphWidget, series: SeriesStore, minutes: int = 10
) -> dict[str, dict[int, float]]:
    """Label to points, by minutes since the start."""
    found = evaluate_periods(one.lines, series, START_S, START_S + 60 * minutes, one.period_s)
    return {
        result.label: {(at - START_S) // 60: value for at, value in result.points}
        for result in found
    }


def in_the_range(
    one: GraphWidget, series: SeriesStore, minutes: int = 10
) -> dict[str, list[float]]:
    """Label to the one number of the whole range, or none."""
    found = evaluate_range(one.lines, series, START_S, START_S + 60 * minutes)
    return {result.label: [value for _, value in result.points] for result in found}


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("E2E latency", "e2e_ms"),
        ("TPOT", "tpot_ms"),
        ("TTFT", "ttft_ms"),
        ("Chunk gap", "chunk_gap_ms"),
        ("Output tokens per stream", "output_tokens_per_s"),
        ("Goodput", "goodput_per_s"),
        ("Output tokens of the system", "system_output_tokens_per_s"),
        ("Prompt tokens", "prompt_tokens"),
        ("Completion tokens", "completion_tokens"),
        ("Inter-token latency by llmperf's definition", "llmperf_inter_token_latency_ms"),
    ],
)
def test_p50_and_p90_of_every_arm_stand_side_by_side(title: str, name: str) -> None:
    shown = graphs(post())
    median = shown.index(graph(post(), f"{title}, p50"))

    for one, statistic in zip(shown[median : median + 2], ("p50", "p90"), strict=True):
        assert one.title == f"{title}, {statistic} [{find_metric(name).unit}]"
        assert [
            (line.metric, line.statistic, line.label)
            for line in one.lines
            if isinstance(line, MetricLine)
        ] == [
            (name, statistic, BASE),
            (name, statistic, FAST),
        ]


@pytest.mark.parametrize(
    ("title", "name", "base", "fast", "expected"),
    [
        ("TPOT", "tpot_ms", [40, 45, 50], [14, 15, 30], 3.0),
        ("E2E latency", "e2e_ms", [9000, 9000], [18000, 18000], 0.5),
        ("TTFT", "ttft_ms", [100], [100], 1.0),
        ("Output tokens per stream", "output_tokens_per_s", [20, 22, 30], [40, 55, 80], 2.5),
        ("Output tokens of the system", "system_output_tokens_per_s", [80], [200], 2.5),
        ("Goodput", "goodput_per_s", [2], [5], 2.5),
    ],
)
def test_a_speed_up_is_above_one_where_the_arm_is_better(
    title: str, name: str, base: list[float], fast: list[float], expected: float
) -> None:
    series = SeriesStore()
    put(series, name, BASE, base)
    put(series, name, FAST, fast, minute=7)
    assert in_the_range(graph(post(), f"{title}, speed-up"), series) == {
        FAST: [pytest.approx(expected)]
    }


def test_the_failed_share_is_failed_of_asked() -> None:
    series = SeriesStore()
    put(series, "requests", FAST, [8, 8])
    put(series, "failed_requests", FAST, [4, 0])
    put(series, "requests", BASE, [8])
    put(series, "failed_requests", BASE, [0])

    assert over_time(graph(post(), "Failed share"), series) == {BASE: {0: 0}, FAST: {0: 25}}


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Figure 3", "e2e_ms"),
        ("Figure 5", "ttft_ms"),
        ("Figure 4, as time per output token", "tpot_ms"),
        ("Figure 4, as llmperf computes it", "llmperf_inter_token_latency_ms"),
    ],
)
def test_a_figure_of_the_post_has_four_series_two_prompts_with_and_without_speculation(
    title: str, name: str
) -> None:
    series = SeriesStore()
    cells = [(prompt, variant) for prompt in PROMPTS for variant in (BASE, FAST)]
    for number, (prompt, variant) in enumerate(cells):
        put(series, name, variant, [number + 1, number + 1, 99], class_=prompt)
        put(series, name, variant, [77], class_="all")

    found = over_time(graph(post(), title), series)

    assert found == {
        f"{prompt}, {variant}, concurrency 4": {0: number}
        for number, (prompt, variant) in enumerate(cells, start=1)
    }


def test_the_choices_are_the_classes_and_loads_of_the_suites() -> None:
    classes, loads = post().variables.values()
    assert classes == (*suite("post").classes, *suite("real").classes, ALL_VALUES)
    assert loads == ("4", "1")


def test_without_a_baseline_no_speed_up_is_drawn_and_that_is_said() -> None:
    dashboard = posting(variants=[{"name": FAST, **DRAFTED}])
    assert not [one for one in graphs(dashboard) if "speed-up" in one.title]
    assert "there is no baseline" in words(dashboard)


def test_the_graph_of_every_arm_finds_those_that_are_not_drawn() -> None:
    many = [
        {"name": BASE, "mode": "none"},
        *({"name": f"arm{number}", **DRAFTED} for number in range(12)),
    ]
    series = SeriesStore()
    for number in range(12):
        put(series, "tpot_ms", f"arm{number}", [10 + number])

    one = graph(posting(variants=many), "TPOT of every arm")

    assert over_time(one, series) == {f"arm{number}": {0: 10 + number} for number in range(12)}
