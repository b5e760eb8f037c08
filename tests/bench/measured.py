"""Records and folders of runs as the tests of figures need them; every number is stated by the
test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tandem.bench.figures.request_metrics import RequestMetrics
from tandem.bench.records import manifest
from tandem.bench.records.counters import FILE as COUNTERS
from tandem.bench.records.counters import MetricsScrape
from tandem.bench.records.record import SCHEMA, Chunk, RecordWriter, RequestRecord, split_chunks


def chunks(*fields: tuple[Any, ...]) -> tuple[Chunk, ...]:
    """`(at_s, kind)` or `(at_s, kind, tokens)`, in the order of the stream."""
    return tuple(Chunk(*field) for field in fields)


# a role chunk, then 1, 4 and 3 tokens at 200, 245 and 290 ms, the end and the usage
BURSTS = chunks(
    (0.1, "role", 0),
    (0.2, "text", 1),
    (0.245, "text", 4),
    (0.29, "text", 3),
    (0.29, "end", 0),
    (0.291, "usage", None),
)


def record(**changes: Any) -> RequestRecord:
    """A request that succeeded with 8 tokens in BURSTS."""
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "reconnected": 0,
        "request_id": "r-0",
        "arm": "base",
        "class_": "repeat",
        "suite": "real",
        "prompt_id": "repeat-00",
        "concurrency": 4,
        "start_s": 1000.0,
        "headers_s": 0.05,
        "end_s": 0.3,
        "chunks": BURSTS,
        "prompt_tokens": 64,
        "completion_tokens": 8,
        "counted_by": "usage",
        "text": "a b c",
        "status": 200,
        "finish_reason": "stop",
        "content": "ok",
    }
    fields |= changes
    return RequestRecord(**split_chunks(fields.pop("chunks")), **fields)


def compute_record_metrics(request: RequestRecord) -> dict[str, float]:
    """The figures of one record by metric, without those it cannot have; chunk_gap_ms is their
    mean."""
    metrics = RequestMetrics([request])
    columns = {name: float(column[0]) for name, column in metrics.by_name().items()}
    values = {name: value for name, value in columns.items() if np.isfinite(value)}
    gaps_ms, _ = metrics.list_gaps()
    return values | ({"chunk_gap_ms": float(np.mean(gaps_ms))} if len(gaps_ms) else {})


def failed(**changes: Any) -> RequestRecord:
    """A request that was cut after its first token."""
    cut = {
        "chunks": BURSTS[:2],
        "completion_tokens": None,
        "error": "closed",
        "content": None,
        "finish_reason": None,
    }
    return record(**{**cut, **changes})


def run_manifest(**changes: Any) -> manifest.RunManifest:
    """A run of `base` and `spec` that ended."""
    fields: dict[str, Any] = {
        "version": "0.1.0",
        "created_utc": "2026-11-21T00:00:00Z",
        "arms": (arm("base", role="baseline"), arm("spec")),
        "suites": (
            manifest.SuiteEntry(
                name="real", sha256="0" * 64, prompts=24, classes=("repeat", "chat")
            ),
        ),
        "schema": manifest.SCHEMA,
        "simulated": False,
        "schedule": "interleaved",
        "seed": 1,
        "api": "chat",
        "concurrency": (4,),
        "rounds": 1,
        "clock": manifest.ClockReading(
            source="monotonic", resolution_s=1e-9, monotonic_s=1.0, utc="2026-11-21T00:00:00Z"
        ),
        "host": manifest.HostInfo(cpus=2, python="3.11"),
        "plan": manifest.PlanTotals(requests=0),
        "ended": manifest.RunEnd(reason="done", utc="2026-11-21T01:00:00Z"),
    }
    return manifest.RunManifest(**{**fields, **changes})


def arm(name: str, **changes: Any) -> manifest.ManifestArm:
    """An arm of which nothing is known but its name."""
    return manifest.ManifestArm(
        **{
            "name": name,
            "role": "variant",
            "url": "http://127.0.0.1:1",
            "model": "m",
            "simulated": False,
            **changes,
        }
    )


def speculating(method: str | None, window: int | None = None) -> manifest.ManifestArm:
    """An arm whose speculation is known; without a method it does not speculate."""
    return arm(
        "spec", speculation=manifest.Speculation(method=method, num_speculative_tokens=window)
    )


def write_run(
    folder: Path,
    records: list[RequestRecord],
    scrapes: list[MetricsScrape] | None = None,
    **changes: Any,
) -> Path:
    """The files of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    with RecordWriter(folder / "records.jsonl") as writer:
        for entry in records:
            writer.write(entry)
    if scrapes is not None:
        (folder / COUNTERS).write_bytes(
            b"".join(msgspec.json.encode(scrape) + b"\n" for scrape in scrapes)
        )
    manifest.write_manifest(folder, run_manifest(**changes))
    return folder
