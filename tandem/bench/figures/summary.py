"""The summary of a run: every figure of `summary.json`, recomputed from the records each time.

Invariant: no value comes from an earlier summary; an unknown figure is absent and a note gives the
reason; failed requests are in no latency and in every count; the same files always give the same
bytes.

A cell is one metric of one arm in one class at one concurrency or rate. Class `all` pools the
classes. Metrics of a request spread over requests, gaps over gaps, and metrics of a server or a
whole system over turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tandem.bench.figures.columns import BoolArray
from tandem.bench.figures.notes import collect_notes, note_absent_counters
from tandem.bench.figures.quantiles import compute_spread
from tandem.bench.figures.request_table import RequestTable, read_request_table
from tandem.bench.figures.row_groups import RowGroups
from tandem.bench.figures.throughput import Spreads, compute_turn_metrics
from tandem.bench.plan.schedule import ArmLoad
from tandem.bench.records import counters, json_file, manifest
from tandem.metrics import CATALOGUE, find_metric

SCHEMA = 2

FILE = "summary.json"
ALL_CLASSES = "all"
_DECIMALS = 6  # of a millisecond: finer than any clock here


class CellPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One arm in one class at one concurrency, or open-loop rate."""

    class_: str = msgspec.field(name="class")
    concurrency: int | None
    rate_per_s: float | None
    arm: str


class SummaryCell(CellPlace, frozen=True, kw_only=True):
    """One metric of a place; `n` is the number of its values."""

    metric: str
    n: int
    p50: float
    p90: float
    p99: float
    mean: float
    unit: str


class MetricDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the catalogue that has a cell."""

    name: str
    unit: str
    definition: str
    better: str


class ArmRequestCounts(CellPlace, frozen=True, kw_only=True):
    """Numbers of an arm's requests, by outcome."""

    requests: int
    succeeded: int
    failed: int
    retried: int


class WordCount(CellPlace, frozen=True, kw_only=True):
    """Number of an arm's requests with a word."""

    word: str
    n: int


class RecordSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of a run's records.

    Args:
        arms: names, the baseline first.
        simulated: whether an arm is simulated; None if a server of LLMPerf did not list its models.
        records: number of lines, with those of control rounds, which are in no other figure here.
        cells: by class, load, metric and arm.
        metrics: definitions of the cells' metrics.
        requests: counts; failed requests are here and in no cell.
        errors, content, suspects: counts of the words of RequestRecord.error, RequestRecord.content
            and request_metrics.SUSPECTS.
        notes: facts for the reader, and reasons of absent figures.
        acceptance_notes: those of the notes that are about acceptance.
    """

    schema: int = SCHEMA
    arms: tuple[str, ...]
    simulated: bool | None
    records: int
    cells: tuple[SummaryCell, ...]
    metrics: tuple[MetricDefinition, ...]
    requests: tuple[ArmRequestCounts, ...]
    errors: tuple[WordCount, ...]
    content: tuple[WordCount, ...]
    suspects: tuple[WordCount, ...]
    notes: tuple[str, ...]
    acceptance_notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SummaryPlace:
    """One row of a table: an arm in a class at a load, with the numbers of its requests.

    Args:
        class_: the class, or `all`.
        load: concurrency and rate; one is None.
        arm: name.
        requests, succeeded, failed: numbers.
        cells: by metric.
    """

    class_: str
    load: tuple[int | None, float | None]
    arm: str
    requests: int
    succeeded: int
    failed: int
    cells: Mapping[str, SummaryCell]


def list_places(summary: RecordSummary) -> list[SummaryPlace]:
    """Return the rows of a run by load, class and arm; all classes last, if there are several."""
    cells: dict[tuple[object, ...], dict[str, SummaryCell]] = {}
    for cell in summary.cells:
        cells.setdefault(_locate_place(cell, cell.class_), {})[cell.metric] = cell
    groups: dict[tuple[object, ...], list[ArmRequestCounts]] = {}
    for row in summary.requests:
        groups[_locate_place(row, row.class_)] = [row]
    if len({row.class_ for row in summary.requests}) > 1:
        for row in summary.requests:
            groups.setdefault(_locate_place(row, ALL_CLASSES), []).append(row)
    return [
        _build_place(class_, rows, cells.get((*load, class_, arm), {}))
        for (*load, class_, arm), rows in groups.items()
    ]


def _build_place(
    class_: object, rows: Sequence[ArmRequestCounts], cells: Mapping[str, SummaryCell]
) -> SummaryPlace:
    return SummaryPlace(
        class_=str(class_),
        load=(rows[0].concurrency, rows[0].rate_per_s),
        arm=rows[0].arm,
        requests=sum(row.requests for row in rows),
        succeeded=sum(row.succeeded for row in rows),
        failed=sum(row.failed for row in rows),
        cells=cells,
    )


def _locate_place(row: CellPlace, class_: str) -> tuple[object, ...]:
    return row.concurrency, row.rate_per_s, class_, row.arm


def summarize_run(folder: Path) -> RecordSummary:
    """Return the summary of `folder`, from its records, counters and manifest only.

    Raises:
        InputError: a file is missing or a line is invalid; the error names it.
    """
    return summarize_table(read_request_table(folder))


def summarize_table(table: RequestTable) -> RecordSummary:
    """Return the summary of the requests of `table` and of the counters in its folder.

    Raises:
        InputError: a line of the counters is no scrape.
    """
    run = table.run
    controls = manifest.control_round_numbers(run)
    main = table.select(~np.isin(table.round, list(controls)))
    scrapes = counters.read_scrapes(table.folder / counters.FILE)
    changes, drop_reasons = counters.pair_scrapes(
        (scrape for scrape in scrapes if scrape.round not in controls), table.dropped_counters
    )
    turn_metrics = compute_turn_metrics(main, changes)
    sentences = [*drop_reasons]
    acceptance_notes: list[str] = []
    for remark, number in turn_metrics.remarks.items():
        sentence = f"{remark.arm}: {remark.text} (turns: {number})"
        (acceptance_notes if remark.metric else sentences).append(sentence)
    arms_with_counters = {turn.arm for turn, _ in changes}
    acceptance_notes += note_absent_counters(main, arms_with_counters)

    turns = main.turn_groups
    loads = turns.rename(turn.load for turn in turns.keys)
    order = CellOrder.from_table(table, loads)
    spreads = _compute_spreads(main, loads) | turn_metrics.spreads
    names = sorted({name for _, name in spreads}, key=_locate_metric)
    metrics = list(map(find_metric, names))

    errors = {word: main.error == code for code, word in enumerate(main.errors)}
    contents = {word: main.content == code for code, word in enumerate(main.contents)}
    notes = collect_notes(table, main, sentences)
    return RecordSummary(
        arms=order.arms,
        simulated=run.simulated,
        records=len(table),
        cells=tuple(_list_cells(spreads, order)),
        metrics=msgspec.convert(metrics, tuple[MetricDefinition, ...], from_attributes=True),
        requests=tuple(_count_requests(main, loads, order)),
        errors=_count_words(errors, loads, order),
        content=_count_words(contents, loads, order),
        suspects=_count_words(main.suspects, loads, order),
        notes=(*notes, *acceptance_notes),
        acceptance_notes=tuple(acceptance_notes),
    )


@dataclass(frozen=True)
class CellOrder:
    """The order of cells: by class, load and arm, as table and manifest have them.

    Args:
        classes: names, in order; others come after them.
        arms: likewise.
    """

    classes: tuple[str, ...]
    arms: tuple[str, ...]

    @classmethod
    def from_table(cls, table: RequestTable, loads: RowGroups[ArmLoad]) -> CellOrder:
        """Return the order of a run: arms that the manifest names, or that have a request."""
        known_arms = {*(arm.name for arm in table.run.arms), *(load.arm for load in loads.keys)}
        return cls(table.classes, tuple(arm for arm in table.arms if arm in known_arms))

    def locate(self, load: ArmLoad) -> tuple[float, ...]:
        """Return the sort key of a load."""
        class_place = _find_place(self.classes, load.class_)
        arm_place = _find_place(self.arms, load.arm)
        return class_place, load.concurrency or -1, load.rate_per_s or 0.0, arm_place


def _find_place(names: Sequence[str], name: str | None) -> float:
    return names.index(name) if name in names else math.inf


def _count_requests(
    main: RequestTable, loads: RowGroups[ArmLoad], order: CellOrder
) -> Iterator[ArmRequestCounts]:
    """Yield the numbers of requests of each load."""
    failed = _count_rows(main.failed, loads)
    succeeded = _count_rows(~main.failed, loads)
    retried = _count_rows(main.retried, loads)
    for load in sorted(loads.keys, key=order.locate):
        yield ArmRequestCounts(
            **_name_load(load),
            requests=succeeded[load] + failed[load],
            succeeded=succeeded[load],
            failed=failed[load],
            retried=retried[load],
        )


def _count_words(
    masks: Mapping[str, BoolArray], loads: RowGroups[ArmLoad], order: CellOrder
) -> tuple[WordCount, ...]:
    """Return the number of requests with each word, by load."""
    counts = []
    for word, mask in masks.items():
        for load, number in _count_rows(mask, loads).items():
            if number:
                counts.append((order.locate(load), word, load, number))
    counts.sort(key=itemgetter(0, 1))
    return tuple(
        WordCount(**_name_load(load), word=word, n=number) for _, word, load, number in counts
    )


def _count_rows(mask: BoolArray, loads: RowGroups[ArmLoad]) -> dict[ArmLoad, int]:
    return dict(zip(loads.keys, map(int, loads.sum(mask)), strict=True))


def write_summary(folder: Path) -> RecordSummary:
    """Summarize `folder`, write its summary.json and return the summary.

    Raises:
        InputError: as for `summarize_run`.
        ExternalError: as for `save_summary`.
    """
    summary = summarize_run(folder)
    save_summary(folder, summary)
    return summary


def save_summary(folder: Path, summary: RecordSummary) -> None:
    """Write summary.json: a reader sees the complete old or the complete new file.

    Raises:
        ExternalError: the folder cannot be written to.
    """
    json_file.save_json(folder / FILE, summary, label="the summary")


def _compute_spreads(table: RequestTable, loads: RowGroups[ArmLoad]) -> Spreads:
    spreads: Spreads = {}
    for groups in (loads, loads.rename(map(ArmLoad.pool_classes, loads.keys))):
        parts = {name: groups.split(values) for name, values in table.figures.items()}
        parts["chunk_gap_ms"] = groups.split(table.gaps_ms, table.gap_owners)
        for name, load_values in parts.items():
            for load, values in load_values:
                spread = compute_spread(values)
                if spread is not None:
                    spreads[load, name] = spread
    return spreads


def _locate_metric(name: str) -> tuple[int, int, str]:
    """Return a metric's sort key: the catalogue's order, then positions by number."""
    places = list(CATALOGUE)
    return (places.index(name), 0, name) if name in CATALOGUE else (len(places), len(name), name)


def _name_load(load: ArmLoad) -> dict[str, Any]:
    return load._asdict() | {"class_": load.class_ or ALL_CLASSES}


def _list_cells(spreads: Spreads, order: CellOrder) -> Iterator[SummaryCell]:
    """Yield every cell; arms of the same metric follow each other."""

    def locate(key: tuple[ArmLoad, str]) -> tuple[Any, ...]:
        load, name = key
        *place, arm_place = order.locate(load)
        return (*place, _locate_metric(name), arm_place)

    for load, name in sorted(spreads, key=locate):
        spread = spreads[load, name]._asdict()
        figures = {key: round(value, _DECIMALS) for key, value in spread.items()}
        yield SummaryCell(**_name_load(load), **figures, metric=name, unit=find_metric(name).unit)
