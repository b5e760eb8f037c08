"""The dashboard of the machine: nodes, readiness of each arm, and the servers' own figures."""

from __future__ import annotations

import pytest
from doubles.cloudwatch.expression import evaluate_periods
from doubles.cloudwatch.series_store import MetricKey, SeriesStore
from hosted import by_part, changed, drawn, graph, graphs, words

from tandem.monitoring.widget import Dashboard, GraphWidget, TextWidget

START_S = 1_795_000_200  # a whole five minutes


def machine(environment: str) -> Dashboard:
    return drawn(environment)["machine"]


def of_experiment(dashboard: Dashboard, experiment: str) -> Dashboard:
    """The part of a dashboard between an experiment's heading and the next heading."""
    heads = {
        place: one.markdown
        for place, one in enumerate(dashboard.widgets)
        if isinstance(one, TextWidget) and one.markdown.startswith("###")
    }
    start = next(
        place for place, head in heads.items() if head.startswith(f"### Servers of {experiment}\n")
    )
    end = next(place for place in heads if place > start)
    return Dashboard(name="part", widgets=dashboard.widgets[start:end])


def scraped(experiment: str, service: str, **counts: float) -> SeriesStore:
    """What the agent sends of a server in the first minute."""
    series = SeriesStore()
    where = {
        "ClusterName": "tandem-native-us-east-2",
        "Namespace": f"tandem-{experiment}",
        "Service": service,
    }
    for name, value in counts.items():
        series.add(
            MetricKey.from_dimensions(
                "ContainerInsights/Prometheus", f"vllm:{name}", where.items()
            ),
            START_S,
            {value: 1},
        )
    return series


def points(one: GraphWidget, series: SeriesStore, minutes: int = 10) -> dict[str, list[float]]:
    found = evaluate_periods(one.lines, series, START_S, START_S + 60 * minutes, one.period_s)
    return {result.label: [value for _, value in result.points] for result in found}


@pytest.mark.parametrize("title", ["CPU", "Memory", "Disk", "Network"])
def test_every_node_is_found_whatever_its_name(title: str) -> None:
    names = {
        "CPU": "node_cpu_utilization",
        "Memory": "node_memory_utilization",
        "Disk": "node_filesystem_utilization",
        "Network": "node_network_total_bytes",
    }
    series = SeriesStore()
    for node, cluster in (
        ("one", "post-us-east-2"),
        ("two", "post-us-east-2"),
        ("three", "dev-trn2-3xlarge"),
    ):
        where = {"NodeName": node, "InstanceId": f"i-{node}", "ClusterName": f"tandem-{cluster}"}
        series.add(
            MetricKey.from_dimensions("ContainerInsights", names[title], where.items()),
            START_S,
            {float(len(node)): 1},
        )

    found = points(graph(machine("post-us-east-2"), f"{title} of each node"), series)

    assert found == {"one": [3], "two": [3]}


def test_a_server_of_which_nothing_is_sent_counts_as_not_ready() -> None:
    one = graph(of_experiment(machine("post-us-east-2"), "post"), "Ready servers")
    series = SeriesStore()
    where = {
        "Service": "qwen-vllm",
        "Namespace": "tandem-post",
        "ClusterName": "tandem-post-us-east-2",
    }
    key = MetricKey.from_dimensions(
        "ContainerInsights", "service_number_of_running_pods", where.items()
    )
    series.add(key, START_S, {1.0: 1})

    assert points(one, series)["qwen-vllm"] == [1, 0]


def test_acceptance_by_the_server_is_one_and_the_accepted_a_draft() -> None:
    one = graph(
        of_experiment(machine("native-us-east-2"), "qwen3-native"),
        "Acceptance length by the server",
    )
    series = scraped(
        "qwen3-native",
        "qwen-eagle3",
        spec_decode_num_drafts_total=100,
        spec_decode_num_accepted_tokens_total=180,
    )

    assert points(one, series, 5) == {"qwen-eagle3": [pytest.approx(2.8)]}


def test_a_runtime_whose_counters_stay_zero_is_said_to_have_no_acceptance_of_its_own() -> None:
    said = words(machine("post-us-east-2"))
    assert "On nxdi-v0 vLLM's spec_decode counters stay 0" in said
    assert not [
        one for one in graphs(machine("post-us-east-2")) if one.title.startswith("Acceptance")
    ]


def test_without_container_insights_nothing_is_drawn_and_that_is_said() -> None:
    dashboard = by_part(changed("post-us-east-2", observability={"container_insights": False}))[
        "machine"
    ]
    assert graphs(dashboard) == []
    assert "`observability.container_insights` is false" in words(dashboard)
