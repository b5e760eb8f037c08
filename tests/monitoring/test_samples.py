"""What may be drawn was recorded: every metric of others stands in a file of what its publisher
sent."""

from __future__ import annotations

import re

import pytest
from recorded import SAMPLES, pages, sample, sent, types

from tandem.cloudwatch_metrics import (
    BENCH,
    CLOUDWATCH_METRICS,
    CONTAINER_INSIGHTS,
    VLLM_SCRAPE,
    cloudwatch_unit,
    format_namespace,
)
from tandem.metrics import list_published_metrics

README = (SAMPLES / "README.md").read_text()
DATED = re.compile(r"20\d\d-\d\d")


def test_the_bench_was_recorded_to_send_every_published_metric_with_its_unit_and_no_other():
    assert {(item.name, item.unit) for item in sent(BENCH)} == {
        (published_metric.name, cloudwatch_unit(published_metric))
        for published_metric in list_published_metrics()
    }


@pytest.mark.parametrize(("publisher", "name"), CLOUDWATCH_METRICS, ids=str)
def test_a_watched_metric_has_the_unit_of_the_recording(publisher, name):
    units = {item.unit for item in sent(publisher) if item.name == name and item.unit}
    assert units <= {cloudwatch_unit(CLOUDWATCH_METRICS[publisher, name])}


@pytest.mark.parametrize("publisher", [CONTAINER_INSIGHTS, VLLM_SCRAPE])
def test_a_recorded_event_is_of_the_publishers_namespace(publisher):
    blocks = [
        block
        for event in sample(publisher)["events"]
        for block in event.get("CloudWatchMetrics", ())
    ]
    assert {block["Namespace"] for block in blocks} == {
        format_namespace(publisher, "home", "tandem-home")
    }


def test_what_the_agent_cannot_send_of_a_page_is_not_watched():
    """It sends gauges, counters and summaries; vLLM's latencies are histograms."""
    watched_names = {name for publisher, name in CLOUDWATCH_METRICS if publisher == VLLM_SCRAPE}
    kinds = {
        kind
        for page in pages().values()
        for name, kind in types(page).items()
        if name in watched_names
    }
    assert kinds == {"gauge", "counter"}


@pytest.mark.parametrize(
    "file", sorted(path.name for path in SAMPLES.iterdir() if path.name != "README.md")
)
def test_every_file_is_told_with_its_source_and_date(file):
    (row,) = [line for line in README.splitlines() if line.startswith(f"| `{file}`")]
    assert DATED.search(row)
