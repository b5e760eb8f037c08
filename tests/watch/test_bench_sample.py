"""What the bench sends: the recording is what publishing a real run hands to CloudWatch, made again here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded import SAMPLES, sent

from tandem.bench.points import rounds
from tandem.commands.dashboard import dimensions
from tandem.metrics import BENCH, BENCH_DIMENSIONS, EVERY, PUBLISHERS, published
from tandem.publish import Datum
from tandem.publish.batch import Cell, Part, batches
from tandem.publish.publisher import GAUGE

REAL_RUN = Path(__file__).parents[1] / "benchmarks" / "real_run" / "ngram"
LIMITS = {"ttft_ms": 1000.0}  # the run was given none, and then has no goodput


def data(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what PutMetricData would get of a run, the count of rounds that wait included."""
    for one in rounds(folder):
        figures = [
            Datum(metric=row.metric, dimensions=tuple(dimensions("pair", row)), at_s=row.at_s, values=row.values)
            for row in one.rows
        ]
        yield from (part.as_datum() for batch in batches(figures) for part in batch.parts)
    waiting = dict.fromkeys(BENCH_DIMENSIONS, EVERY) | {"Experiment": "pair", "Variant": "ngram"}
    yield Part(cell=Cell(tuple(waiting.items()), GAUGE, 0), values=(0.0,), counts=(1,)).as_datum()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """All of a real run, which is told the limits that goodput needs."""
    folder = tmp_path_factory.mktemp("run") / "ngram"
    shutil.copytree(REAL_RUN, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"goodput": LIMITS}))
    return list(data(folder))


def test_the_recording_is_what_is_sent(found: list[dict[str, Any]]) -> None:
    metrics = {datum["MetricName"]: datum for datum in reversed(found)}

    assert json.loads((SAMPLES / "bench.json").read_text()) == {
        "publisher": BENCH,
        "metrics": [
            {
                "Name": name, "Unit": metrics[name]["Unit"],
                "Dimensions": [dimension["Name"] for dimension in metrics[name]["Dimensions"]],
            }
            for name in sorted(metrics)
        ],
        "datum": metrics["ttft_ms"] | {"Timestamp": metrics["ttft_ms"]["Timestamp"].isoformat()},
    }  # fmt: skip


def test_every_published_metric_is_sent_and_no_other() -> None:
    assert {one.name for one in sent(BENCH)} == {metric.name for metric in published()}


def test_all_of_it_has_the_publishers_dimensions() -> None:
    assert {one.dimensions for one in sent(BENCH)} == {frozenset(names) for names in PUBLISHERS[BENCH].dimensions}
