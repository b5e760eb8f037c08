"""The recording of what the bench sends (tests/monitoring/samples/bench.json), made again from a measured run.

To record it anew after a change of the catalogue: `RECORD=1 pytest tests/publish/test_publish_sample.py`.
"""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from published_run import PublishedRun

from tandem import metrics
from tandem.bench import datapoints, manifest
from tandem.cli.publish import build_figures
from tandem.metrics import ALL_VALUES, BENCH, BENCH_DIMENSIONS, PUBLISHERS, cloudwatch_unit, find_metric

TESTS = Path(__file__).parent.parent
SAMPLE = TESTS / "monitoring" / "samples" / str(PUBLISHERS[BENCH].sample)
MEASURED = TESTS / "bench" / "llmperf_runs" / "bursts" / "tandem"


@pytest.fixture
def sent(published: PublishedRun) -> list[dict[str, Any]]:
    """Every datum of every PutMetricData that a publish of the measured run makes, as it was passed to boto3."""
    folder = published.folder
    shutil.rmtree(folder)
    shutil.copytree(MEASURED, folder)
    run = manifest.read_manifest(folder)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)  # CloudWatch takes two weeks
    clock = msgspec.structs.replace(run.clock, utc=today.isoformat())
    manifest.write_manifest(folder, msgspec.structs.replace(run, clock=clock, goodput={"ttft_ms": 1000.0}))
    data: list[dict[str, Any]] = []

    def keep(params: dict[str, Any], **_: object) -> None:
        data.extend(params["MetricData"])

    events = published.clients().cloudwatch.meta.events
    events.register("provide-client-params.cloudwatch.PutMetricData", keep)
    try:
        published.publish(build_figures(points, folder, "post") for points in datapoints.read_rounds(folder))
    finally:
        events.unregister("provide-client-params.cloudwatch.PutMetricData", keep)
    return data


def recording(data: list[dict[str, Any]]) -> dict[str, Any]:
    """What is kept of them: of each metric its unit, its dimensions and one datum, that of all classes first."""
    pooled = sorted(data, key=lambda one: [dimension["Value"] != ALL_VALUES for dimension in one["Dimensions"]])
    first = {one["MetricName"]: one for one in reversed(pooled)}
    return {
        "publisher": BENCH,
        "metrics": [
            {
                "Name": name,
                "Unit": one["Unit"],
                "Dimensions": [dimension["Name"] for dimension in one["Dimensions"]],
                "Example": {dimension["Name"]: dimension["Value"] for dimension in one["Dimensions"]},
                "Values": one["Values"][:3],
                "Counts": one["Counts"][:3],
                "StorageResolution": one["StorageResolution"],
            }
            for name, one in sorted(first.items())
        ],
    }


def test_the_recording_is_what_the_bench_sends(sent: list[dict[str, Any]]) -> None:
    made = json.dumps(recording(sent), indent=1) + "\n"
    if os.environ.get("RECORD"):
        SAMPLE.write_text(made)

    assert SAMPLE.read_text() == made


def test_all_that_is_published_and_nothing_else_is_sent(sent: list[dict[str, Any]]) -> None:
    assert {one["MetricName"] for one in sent} == {one.name for one in metrics.list_published_metrics()}


def test_everything_is_sent_with_the_benchs_dimensions_and_its_unit(sent: list[dict[str, Any]]) -> None:
    assert {tuple(dimension["Name"] for dimension in one["Dimensions"]) for one in sent} == {BENCH_DIMENSIONS}
    assert all(one["Unit"] == cloudwatch_unit(find_metric(one["MetricName"])) for one in sent)
