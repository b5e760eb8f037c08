"""A dashboard in CloudWatch's JSON; widgets fill 24 columns, each graph above its sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from assemblies import Templates, environment, resources
from hosted import ENVIRONMENTS, asking, by_part, drawn, graphs
from recorded import sends

from tandem.cloudwatch_metrics import CLOUDWATCH_METRICS, GUARD, LAMBDA, PUBLISHERS, SQS
from tandem.metrics import list_published_metrics
from tandem.monitoring.widget import (
    COLUMNS,
    Dashboard,
    GraphMark,
    GraphWidget,
    MathExpression,
    MetricLine,
)

pytestmark = pytest.mark.cdk

REGION = "us-east-2"
SPACE = "Tandem/home"
CLASSES = {"PromptClass": ("json", "open", "all")}
SEARCH = (
    f'SEARCH(\'{{"{SPACE}",Variant,PromptClass}} MetricName="ttft_ms" PromptClass="json"\','
    " 'p50', 300)"
)
SEARCHED = re.compile(
    r"SEARCH\('\{\"([^\"]+)\",?([^}]*)\} MetricName=\"([^\"]+)\"((?: \w+=\"[^\"]*\")*)', '(\w+)'"
)
EVERY = [(name, part) for name in ENVIRONMENTS for part in drawn(name)]
EXPERIMENTS = [(name, part) for name, part in EVERY if part not in {"machine", "money"}]
WINDOWS = tuple(range(1, 65))
every_dashboard = pytest.mark.parametrize(("name", "part"), EVERY)

Body = dict[str, Any]
Draw = Callable[[Dashboard], Body]


class MetricRead(NamedTuple):
    """One metric that a body reads, by a line or by a search."""

    namespace: str
    metric: str
    dimensions: frozenset[str]


@pytest.fixture(scope="session")
def draw() -> Draw:
    """Return the body of a dashboard of our own."""
    from aws_cdk import App, Stack  # noqa: PLC0415  # seconds, as in conftest.py

    from stacks.dashboards import add_dashboard, read_body  # noqa: PLC0415

    def draw_alone(dashboard: Dashboard) -> Body:
        return read_body(add_dashboard(Stack(App(), "Alone"), dashboard, REGION))

    return draw_alone


def body_of(stacks: Templates, name: str, part: str) -> Body:
    """Return the body of a dashboard of a committed environment."""
    bodies: dict[str, Body] = {
        dashboard["DashboardName"]: json.loads(dashboard["DashboardBody"])
        for dashboard in resources(stacks[f"{name}-Observability"], "AWS::CloudWatch::Dashboard")
    }
    return bodies[drawn(name)[part].name]


def list_reads(body: Body) -> Iterator[MetricRead]:
    """Yield every metric that a dashboard reads."""
    for box in body["widgets"]:
        for metric in box["properties"].get("metrics", ()):
            *named_value, options = metric if isinstance(metric[-1], dict) else [*metric, {}]
            if named_value:
                yield MetricRead(named_value[0], named_value[1], frozenset(named_value[2::2]))
            for space, dimensions, metric_name, *_ in SEARCHED.findall(
                options.get("expression", "")
            ):
                yield MetricRead(space, metric_name, frozenset(filter(None, dimensions.split(","))))


def list_publishers(read: MetricRead) -> list[str]:
    """Return the publishers whose namespace and dimensions these are."""
    return [
        name
        for name, publisher in PUBLISHERS.items()
        if read.dimensions in map(frozenset, publisher.dimensions)
        and re.fullmatch(re.sub(r"\{\w+\}", "[a-z0-9-]+", publisher.namespace), read.namespace)
    ]


def line(**given: Any) -> MetricLine:
    result: dict[str, Any] = {
        "metric": "ttft_ms",
        "namespace": SPACE,
        "dimensions": (("Variant", "fast"), ("PromptClass", "json")),
        "statistic": "p50",
        "label": "fast",
    }
    return MetricLine(**result | given)


def graph(**given: Any) -> GraphWidget:
    result: dict[str, Any] = {
        "title": "TTFT, p50 [ms]",
        "sentence": "Until the first token.",
        "unit": "ms",
        "publisher": "bench",
        "lines": (line(),),
        "width": 24,
        "period_s": 300,
    }
    return GraphWidget(**result | given)


def draw_graph(
    draw: Draw, content: GraphWidget, variables: dict[str, tuple[str, ...]] | None = None
) -> Any:
    """Return the properties of a graph that is alone in a dashboard."""
    body = draw(Dashboard(name="alone", widgets=(content,), variables=variables or {}))
    (box,) = [box for box in body["widgets"] if box["type"] == "metric"]
    return box["properties"]


class TestOneGraph:
    def test_as_numbers_it_has_one_period_the_whole_range(self, draw: Draw) -> None:
        properties = draw_graph(draw, graph(view="numbers"))

        assert properties["view"] == "singleValue"
        assert properties["setPeriodToTimeRange"] is True

    def test_a_hidden_line_is_read_and_not_drawn(self, draw: Draw) -> None:
        lines = (
            line(id="a", is_visible=False, label=None),
            MathExpression(text="a / 60", label="hours", id="b", color="#112233"),
        )

        expression, source = draw_graph(draw, graph(lines=lines))["metrics"]

        assert expression == [{"expression": "a / 60", "label": "hours", "color": "#112233"}]
        assert source[-1] == {"stat": "p50", "id": "a", "visible": False}

    def test_levels_and_moments_are_marked(self, draw: Draw) -> None:
        marks = (
            GraphMark(label="budget", value=2000.0),
            GraphMark(label="block ends", moment="2026-12-08T11:30:00Z"),
        )

        annotations = draw_graph(draw, graph(marks=marks))["annotations"]

        assert [(mark["label"], mark["value"]) for mark in annotations["horizontal"]] == [
            ("budget", 2000)
        ]
        assert [(mark["label"], mark["value"]) for mark in annotations["vertical"]] == [
            ("block ends", "2026-12-08T11:30:00Z")
        ]

    def test_a_choice_stands_in_the_lines_and_searches_if_it_varies(self, draw: Draw) -> None:
        lines = (line(), MathExpression(text=SEARCH, label="", id="every"))

        metric, search = draw_graph(draw, graph(lines=lines), CLASSES)["metrics"]

        assert metric[2:4] == ["PromptClass", "chosen_PromptClass"]
        assert 'PromptClass="chosen_PromptClass"' in search[0]["expression"]


class TestLayout:
    @every_dashboard
    def test_no_committed_dashboard_has_a_hole_or_an_overlap(
        self, stacks: Templates, name: str, part: str
    ) -> None:
        cells = [
            (column, row)
            for box in body_of(stacks, name, part)["widgets"]
            for column in range(box["x"], box["x"] + box["width"])
            for row in range(box["y"], box["y"] + box["height"])
        ]
        rows = max(row for _, row in cells) + 1

        assert len(cells) == len(set(cells)) == rows * COLUMNS
        assert set(cells) == {(column, row) for column in range(COLUMNS) for row in range(rows)}

    @every_dashboard
    def test_every_graph_has_its_unit_and_under_it_sentence_and_publisher(
        self, stacks: Templates, name: str, part: str
    ) -> None:
        """The sentence stands in a text widget under the graph, since CloudWatch has no caption."""
        boxes = body_of(stacks, name, part)["widgets"]
        captions = {
            (box["x"], box["y"]): box["properties"] for box in boxes if box["type"] == "text"
        }
        metrics = [box for box in boxes if box["type"] == "metric"]

        for box, content in zip(metrics, graphs(drawn(name)[part]), strict=True):
            caption = captions[box["x"], box["y"] + box["height"]]["markdown"]
            assert caption.startswith(content.sentence)
            assert f"Published by: {content.publisher}." in caption
            assert box["properties"]["title"].endswith(f"[{content.unit}]")
            assert box["properties"]["region"] == environment(name).region

    def test_what_is_not_drawn_of_130_variants_is_named(self, draw: Draw) -> None:
        sweep = {
            "prefix": "qwen-sd",
            "mode": "fused",
            "drafts": ["Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B"],
        }
        variants = [{"name": "qwen-vllm", "mode": "none"}, {"name": "qwen-control", "mode": "none"}]
        scope = asking(
            "post-us-east-2",
            "post-drafts-windows",
            sweep=sweep | {"num_speculative_tokens": WINDOWS},
            variants=variants,
        )
        arms = ["qwen-vllm", "qwen-control"]
        for draft in ("qwen3-0-6b", "qwen3-1-7b"):
            arms += [f"qwen-sd-{draft}-k{window}" for window in WINDOWS]

        text = json.dumps(draw(by_part(scope)["post-drafts-windows"])["widgets"])

        assert [arm for arm in arms if arm not in text] == []
        assert "121 arms that are not drawn" in text


class TestPublishing:
    @every_dashboard
    def test_all_that_is_drawn_stands_in_a_recording_of_a_publisher_that_its_graph_names(
        self, stacks: Templates, name: str, part: str
    ) -> None:
        named_publishers = {content.publisher for content in graphs(drawn(name)[part])}

        for read in list_reads(body_of(stacks, name, part)):
            publishers = list_publishers(read)
            recorded_publishers = [
                publisher
                for publisher in publishers
                if sends(publisher, read.metric, read.dimensions)
            ]
            assert set(recorded_publishers) & named_publishers, read

    @pytest.mark.parametrize(("name", "part"), EXPERIMENTS)
    def test_all_that_the_bench_publishes_is_drawn_for_every_experiment(
        self, stacks: Templates, name: str, part: str
    ) -> None:
        metrics = {read.metric for read in list_reads(body_of(stacks, name, part))}
        assert metrics == {metric.name for metric in list_published_metrics()}

    def test_all_that_is_watched_of_others_is_drawn_somewhere(self, stacks: Templates) -> None:
        drawn_metrics = set[tuple[str, str]]()
        for name, part in EVERY:
            for read in list_reads(body_of(stacks, name, part)):
                drawn_metrics |= {(publisher, read.metric) for publisher in list_publishers(read)}
        # alarms compare these, and they are no figure of a run
        alarm_metrics = {key for key in CLOUDWATCH_METRICS if key[0] in {LAMBDA, SQS}}
        alarm_metrics |= {(GUARD, "stop_failures"), (GUARD, "excess_nodes")}

        assert drawn_metrics >= CLOUDWATCH_METRICS.keys() - alarm_metrics


class TestLimits:
    @pytest.mark.parametrize(
        ("within", "beyond", "limit"),
        [((500, 5), (501, 4), "500"), ((1, 2500), (1, 2501), "2500")],
        ids=["widgets", "metrics"],
    )
    def test_a_body_is_refused_beyond_a_limit(
        self, within: tuple[int, int], beyond: tuple[int, int], limit: str
    ) -> None:
        assert list_faults(*within) == []
        (fault,) = list_faults(*beyond)
        assert fault.endswith(f"at most {limit}")

    def test_a_body_that_no_template_could_carry_is_refused(self) -> None:
        (fault,) = list_faults(250, 10, namespace="n" * 250)
        assert fault.endswith("at most 250000")


def list_faults(widgets: int, metrics: int, namespace: str = "n") -> list[str]:
    """Return what is wrong with a body of so many widgets of so many metrics each."""
    from stacks.dashboards import find_limit_faults  # noqa: PLC0415

    box = {"type": "metric", "properties": {"metrics": [[namespace, "m"]] * metrics}}
    return list(find_limit_faults({"widgets": [box] * widgets}))
