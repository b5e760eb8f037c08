"""The figures of a run as CSV, for a spreadsheet.

Invariant: the figures are those of summary.json; an absent figure is an empty cell, never a zero.
"""

from __future__ import annotations

import csv
from itertools import product
from pathlib import Path

from tandem.bench.figures.summary import RecordSummary, SummaryPlace, list_places
from tandem.errors import convert_os_errors

METRICS = ("ttft_ms", "tpot_ms", "e2e_ms", "goodput_per_s")
QUANTILES = ("p50", "p90", "p99")
_PLACE_HEADS = ("class", "concurrency", "rate_per_s", "arm", "requests", "succeeded", "failed")


def write_csv(summary: RecordSummary, path: Path) -> None:
    """Write a row for each arm, class and load; an older file is replaced.

    Args:
        summary: of a run's records.
        path: of the file.

    Raises:
        InputError: the file cannot be written.
    """
    change = "name a file in a folder that may be written to"
    with (
        convert_os_errors("the figures cannot be written", path, change),
        path.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        figures = [f"{metric}_{quantile}" for metric, quantile in product(METRICS, QUANTILES)]
        writer.writerow([*_PLACE_HEADS, *figures])
        writer.writerows(map(_list_values, list_places(summary)))


def _list_values(place: SummaryPlace) -> list[object]:
    counts = [place.requests, place.succeeded, place.failed]
    values: list[object] = [place.class_, *place.load, place.arm, *counts]
    for metric in METRICS:
        cell = place.cells.get(metric)
        values += [getattr(cell, quantile, None) for quantile in QUANTILES]
    return values
