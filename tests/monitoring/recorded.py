"""What publishers were recorded to send: the files under samples/, as metrics with the names of
their dimensions.

Invariant: only what stands in a recording is returned; a publisher without one sends nothing here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tandem.cloudwatch_metrics import PUBLISHERS, VLLM_SCRAPE

SAMPLES = Path(__file__).parent / "samples"
TYPE_LINE = re.compile(r"# TYPE (\S+) (\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One metric as it was sent; `unit` is None where the recording names none."""

    name: str
    dimensions: frozenset[str]
    unit: str | None


def sample(publisher: str) -> dict[str, Any]:
    """Return the recording of a publisher, as its file has it."""
    document: dict[str, Any] = json.loads((SAMPLES / f"{publisher}.json").read_text())
    return document


@cache
def sent(publisher: str) -> frozenset[Sent]:
    """Return every metric with every set of dimensions that a publisher was recorded to send."""
    return frozenset(_sent(publisher)) if (SAMPLES / f"{publisher}.json").exists() else frozenset()


def sends(publisher: str, metric: str, dimensions: frozenset[str]) -> bool:
    """Return whether a recording has this metric with exactly these dimensions."""
    return any(item.name == metric and item.dimensions == dimensions for item in sent(publisher))


def events(publisher: str, kind: str) -> list[dict[str, Any]]:
    """Return the recorded log events of one type."""
    return [event for event in sample(publisher)["events"] if event["Type"] == kind]


def pages() -> dict[str, str]:
    """Return file name to text of the recorded pages of /metrics."""
    files = [(SAMPLES / page).resolve() for page in sample(VLLM_SCRAPE)["pages"]]
    return {file.name: file.read_text() for file in files}


def types(page: str) -> dict[str, str]:
    """Return metric to type, as a page's comments say."""
    return dict(TYPE_LINE.findall(page))


def sendable(page: str) -> set[str]:
    """Return the metrics of a page that the agent can send: it drops histograms
    (plugins/inputs/prometheus)."""
    return {name for name, kind in types(page).items() if kind in {"gauge", "counter", "summary"}}


def _sent(publisher: str) -> Iterator[Sent]:
    recording = sample(publisher)
    for event in recording.get("events", ()):
        for block in event.get("CloudWatchMetrics", ()):
            for dimensions in block["Dimensions"]:
                for metric in block["Metrics"]:
                    yield Sent(
                        name=metric["Name"],
                        dimensions=frozenset(dimensions),
                        unit=metric.get("Unit"),
                    )
    for metric in recording.get("metrics", ()):
        yield Sent(
            name=metric["Name"], dimensions=frozenset(metric["Dimensions"]), unit=metric.get("Unit")
        )
    for page in recording.get("pages", ()):
        for name in sendable((SAMPLES / page).read_text()):
            for dimensions in PUBLISHERS[
                publisher
            ].dimensions:  # labels that the agent adds: tandem/monitoring/agent.py
                yield Sent(name=name, dimensions=frozenset(dimensions), unit=None)
