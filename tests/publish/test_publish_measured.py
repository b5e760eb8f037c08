"""What is sent of measured runs: the recording of tests/monitoring/samples/bench.json, and the
figures of a summary.

`make golden` records the sample anew after a change of the catalogue.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from published_run import PublishedRun, read_statistic

from tandem import metrics
from tandem.bench.figures import summary
from tandem.bench.figures.datapoints import read_rounds
from tandem.bench.records import manifest
from tandem.cloudwatch_metrics import ALL_VALUES, BENCH, BENCH_DIMENSIONS

pytestmark = pytest.mark.endpoint
TESTS = Path(__file__).parent.parent
SAMPLE = TESTS / "monitoring" / "samples" / f"{BENCH}.json"
SAMPLE_RUN = TESTS / "bench" / "llmperf_runs" / "bursts" / "tandem"
REAL_RUN = TESTS / "benchmarks" / "real_run" / "ngram"
DAY_S = 86400
BUCKET_ERROR = 0.005
TODAY_S = int(time.time()) // DAY_S * DAY_S


def publish_measured(run: PublishedRun, source: Path, start_s: int) -> PublishedRun:
    """Publish a measured run as begun at another time; told a limit, so that it has goodput."""
    folder = run.folder
    shutil.rmtree(folder)
    shutil.copytree(source, folder)
    run_manifest = manifest.read_manifest(folder)
    clock = msgspec.structs.replace(
        run_manifest.clock, utc=datetime.fromtimestamp(start_s, tz=UTC).isoformat()
    )
    manifest.write_manifest(
        folder, msgspec.structs.replace(run_manifest, clock=clock, goodput={"ttft_ms": 1000.0})
    )
    run.publish(read_rounds(folder, "post"))
    return run


@pytest.fixture
def data(run):
    """Every datum of every PutMetricData that a publish of the sample's run makes, as it was passed
    to boto3."""
    data_sent: list[dict[str, Any]] = []

    def keep(params: dict[str, Any], **_: object) -> None:
        data_sent.extend(params["MetricData"])

    events = run.clients().cloudwatch.meta.events
    event = "provide-client-params.cloudwatch.PutMetricData"
    events.register(event, keep)
    try:
        publish_measured(run, SAMPLE_RUN, TODAY_S)
    finally:
        events.unregister(event, keep)
    return data_sent


def test_the_recording_is_what_the_bench_sends(data):
    """Of each metric its unit, its dimensions and one datum, that of all classes first."""
    in_order = sorted(
        data,
        key=lambda datum: [dimension["Value"] != ALL_VALUES for dimension in datum["Dimensions"]],
    )
    rows = [
        {
            "Name": name,
            "Unit": datum["Unit"],
            "Dimensions": [dimension["Name"] for dimension in datum["Dimensions"]],
            "Example": {dimension["Name"]: dimension["Value"] for dimension in datum["Dimensions"]},
            "Values": datum["Values"][:3],
            "Counts": datum["Counts"][:3],
            "StorageResolution": datum["StorageResolution"],
        }
        for name, datum in sorted(
            {datum["MetricName"]: datum for datum in reversed(in_order)}.items()
        )
    ]
    text = json.dumps({"publisher": BENCH, "metrics": rows}, indent=1) + "\n"
    if os.environ.get("TANDEM_GOLDEN") == "write":
        SAMPLE.write_text(text)

    assert SAMPLE.read_text() == text


def read_cell(run: PublishedRun, cell: Any, statistic: str) -> float | None:
    """One statistic of a summary's cell over the whole run, as CloudWatch pools it; None for no
    value."""
    dimensions = zip(
        BENCH_DIMENSIONS, ("post", cell.arm, cell.class_, str(cell.concurrency)), strict=True
    )
    key = (cell.metric, tuple(dimensions), TODAY_S - DAY_S)
    return read_statistic(run.endpoint, run.destination.namespace, [key], statistic, 2 * DAY_S).get(
        key
    )


@pytest.mark.proof
def test_percentiles_are_cloudwatchs_within_the_bucket_error(run):
    run = publish_measured(run, REAL_RUN, TODAY_S - DAY_S // 2)
    names = {metric.name for metric in metrics.list_published_metrics()}
    cells = [cell for cell in summary.summarize_run(run.folder).cells if cell.metric in names]

    differing = [
        (cell.metric, cell.arm, cell.class_, statistic, true, value)
        for cell in cells
        for statistic, true in (("p50", cell.p50), ("p99", cell.p99))
        if (value := read_cell(run, cell, statistic)) is None
        or abs(value - true) > BUCKET_ERROR * abs(true)
    ]

    assert len(cells) > 100
    assert differing == []
