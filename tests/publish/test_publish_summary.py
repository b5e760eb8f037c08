"""What CloudWatch says of a published run is what its summary says, of every cell of every published metric."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from tandem.bench import datapoints, manifest, summary
from tandem.cli.publish import build_figures
from tandem.metrics import BENCH_DIMENSIONS
from tandem.metrics import list_published_metrics as published_metrics

pytestmark = pytest.mark.endpoint
REAL = Path(__file__).parent.parent / "benchmarks" / "real_run" / "ngram"
DAY_S = 86400
BUCKET_ERROR = 0.005


def yesterday():
    """When it began, in UTC."""
    return int(time.time()) // DAY_S * DAY_S - DAY_S


@pytest.fixture
def run(published):
    """A run of a real server, begun yesterday at noon, which is told a limit so that it has goodput; published."""
    folder = published.folder
    shutil.rmtree(folder)
    shutil.copytree(REAL, folder)
    read = manifest.read_manifest(folder)
    clock = msgspec.structs.replace(read.clock, utc=datetime.fromtimestamp(yesterday() + DAY_S / 2, tz=UTC).isoformat())
    manifest.write_manifest(folder, msgspec.structs.replace(read, clock=clock, goodput={"ttft_ms": 1000.0}))
    published.publish(build_figures(points, folder, "post") for points in datapoints.read_rounds(folder))
    return published


def shown(published, cell, statistic):
    """One statistic of a cell over the whole run, as CloudWatch pools it."""
    values = dict(zip(BENCH_DIMENSIONS, ("post", cell.arm, cell.class_, str(cell.concurrency)), strict=True))
    start = yesterday()
    dimensions = [{"Name": name, "Value": value} for name, value in values.items()]
    metric = {"Namespace": published.destination.namespace, "MetricName": cell.metric, "Dimensions": dimensions}
    stat = {"Metric": metric, "Period": DAY_S, "Stat": statistic}
    answer = published.endpoint.client("cloudwatch").get_metric_data(
        MetricDataQueries=[{"Id": "q", "MetricStat": stat}],
        StartTime=datetime.fromtimestamp(start, tz=UTC), EndTime=datetime.fromtimestamp(start + 2 * DAY_S, tz=UTC),
    )  # fmt: skip
    found = answer["MetricDataResults"][0]["Values"]
    return found[0] if len(found) == 1 else None


@pytest.mark.proof
def test_every_percentile_of_the_summary_is_cloudwatchs_within_the_bucket_error(run):
    names = {one.name for one in published_metrics()}
    cells = [cell for cell in summary.summarize_run(run.folder).cells if cell.metric in names]

    far = [
        (cell.metric, cell.arm, cell.class_, statistic, true, seen)
        for cell in cells
        for statistic, true in (("p50", cell.p50), ("p99", cell.p99))
        if (seen := shown(run, cell, statistic)) is None or abs(seen - true) > BUCKET_ERROR * abs(true)
    ]

    assert len(cells) > 100
    assert far == []


def test_the_pooled_counts_of_requests_are_the_summarys(run):
    read = summary.summarize_run(run.folder)
    cells = [
        msgspec.structs.replace(read.cells[0], arm=one.arm, class_=one.class_, metric="requests",
                                concurrency=one.concurrency)
        for one in read.requests
    ]  # fmt: skip

    assert [shown(run, cell, "Sum") for cell in cells] == [one.requests for one in read.requests]
