"""What watching costs: against a case worked by hand, what a run really published, and each thing
it must grow with."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from hosted import ROOT, asking, changed, watched
from recorded import events, sample

from tandem.bench.figures.datapoints import read_rounds
from tandem.cloudwatch_metrics import CLOUDWATCH_METRICS, CONTAINER_INSIGHTS, VLLM_SCRAPE
from tandem.metrics import list_published_metrics
from tandem.monitoring import cost as costing
from tandem.monitoring.alarms import build_alarms
from tandem.monitoring.cost import MonitoringCost, compute_monitoring_cost, count_bench_series
from tandem.monitoring.guard_alarms import build_guard_alarms
from tandem.monitoring.widget import MetricLine

POST = "post-us-east-2"
DEV = "dev-trn2-3xlarge"
REAL_RUN = ROOT / "tests" / "benchmarks" / "real_run" / "ngram"


def amounts(found: MonitoringCost) -> dict[str, float]:
    """Return the amount of each part, by its name."""
    return {part.name: part.amount for part in found.parts}


# worked by hand


SCRAPED = [name for publisher, name in CLOUDWATCH_METRICS if publisher == VLLM_SCRAPE]


def test_a_case_worked_by_hand():
    """`dev` has one arm with a draft and one without, six classes, one concurrency; 200 USD buy 100
    hours at 2."""
    scope = changed(DEV, capacity={"usd_per_hour": 2.0}, guard={"budget_usd": 200})
    share = 100 / 730
    published_metrics = list_published_metrics()
    drafted = len(published_metrics) - 1  # unpublished_rounds is of all classes and loads alone
    plain = drafted - len([metric for metric in published_metrics if metric.needs_speculation])
    # six classes + all; 4 and 3 more of all loads
    series = 7 * drafted + 4 + 7 * plain + 3

    monitoring_cost = compute_monitoring_cost(scope)

    assert amounts(monitoring_cost) == pytest.approx(
        {
            "metrics of the bench": series * share,
            # 24 + 2 nodes x 8 + 3 namespaces x 7 + 5 services x 7 + 12 workloads x 9; a node, a
            # namespace, 2 servers
            "metrics of Container Insights": 204 + (8 + 7 + 2 * 16) * share,
            "metrics of the servers": 2 * len(SCRAPED) * share,
            "metrics of the log-filter": 1,
            "metrics of the guard": 6,
            "dashboards": 0,  # three small ones, and three are free
            "alarms": amounts(monitoring_cost)["alarms"],
            "composite alarms": amounts(monitoring_cost)["composite alarms"],
            # 2 nodes the whole month, one of 100 hours, at 6 MB; 2 servers at 4 MB
            "logs taken in": ((2 * 730 + 100) * 6 + 2 * 100 * 4) / 1000,
            "logs kept": ((2 * 730 + 100) * 6 + 2 * 100 * 4) / 1000,  # 30 days
            "requests of the publisher": series * 60 * 100 / 100 / 1000,
            "keys of logs and alarms": 2,
        }
    )


def test_alarms_cost_by_the_metrics_that_they_read_and_composites_apiece():
    result = amounts(compute_monitoring_cost(watched(POST)))
    alarms = build_alarms(watched(POST))
    guarding = build_guard_alarms(watched(POST).environment)
    read = [
        len({line for line in alarm.lines if isinstance(line, MetricLine)})
        for alarm in (
            *alarms.alarms,
            *([alarms.suppressor] if alarms.suppressor else []),
            *guarding.alarms,
        )
    ]

    assert max(read) > 1
    assert result["alarms"] == sum(read)
    assert result["composite alarms"] == len(alarms.composites) + len(guarding.composites)


def test_a_dashboard_beyond_the_free_ones_or_too_large_is_paid_for():
    (part,) = [
        part for part in compute_monitoring_cost(changed(POST)).parts if part.name == "dashboards"
    ]
    assert (part.amount, part.usd) == (2, 6.0)  # four, of which two name more than 50 metrics


# against what was recorded and really published


def test_the_cost_names_a_suite_whose_classes_nobody_states():
    suite = {"file": "prompts/support.jsonl", "sha256": "1" * 64}
    cost = compute_monitoring_cost(asking(POST, "post", suites=[suite]))
    (bench,) = [part for part in cost.parts if part.name == "metrics of the bench"]
    assert "more for each class of support.jsonl" in bench.explanation


def test_the_series_of_the_bench_are_those_that_a_run_published():
    """A real run of two arms; without limits there is no goodput, and only who publishes knows what
    he did not."""
    result = defaultdict(set)
    for item in read_rounds(REAL_RUN, "post"):
        for key in item.values:
            _, arm, class_, load = (value for _, value in key.dimensions)
            result[arm].add((class_, load, key.metric))
    cells = {row[:2] for rows in result.values() for row in rows if row[1] != "all"}
    classes = {class_ for class_, _ in cells} - {"all"}
    loads = tuple({int(load) for _, load in cells})
    (watching,) = asking(POST, "post").experiments

    counted_bench_series = count_bench_series(
        replace(watching, suites={"real": tuple(classes)}, concurrencies=loads)
    )

    # two figures of goodput in each cell, unpublished_rounds once
    not_sent = len(result) * (2 * len(cells) + 1)
    assert counted_bench_series == sum(map(len, result.values())) + not_sent


@pytest.mark.parametrize(
    ("dimensions", "counted"),
    [
        ({"NodeName", "InstanceId", "ClusterName"}, costing.SERIES_PER_NODE),
        ({"ClusterName"}, costing.SERIES_PER_CLUSTER),
        ({"Namespace", "ClusterName"}, costing.SERIES_PER_NAMESPACE),
        ({"Service", "Namespace", "ClusterName"}, costing.SERIES_PER_SERVICE),
        ({"PodName", "Namespace", "ClusterName"}, costing.SERIES_PER_WORKLOAD),
    ],
    ids=lambda value: "-".join(sorted(value)) if isinstance(value, set) else "",
)
def test_the_series_of_container_insights_are_those_recorded(dimensions, counted):
    recorded_names = [
        metric["Name"]
        for event in sample(CONTAINER_INSIGHTS)["events"]
        for block in event.get("CloudWatchMetrics", ())
        for named_dimension in block["Dimensions"]
        if set(named_dimension) == dimensions
        for metric in block["Metrics"]
    ]

    assert len(recorded_names) == len(set(recorded_names)) == counted
    assert events(CONTAINER_INSIGHTS, "Node")
