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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tandem.bench.figures.columns import BoolArray
from tandem.bench.figures.notes import collect_notes
from tandem.bench.figures.quantiles import compute_spread
from tandem.bench.figures.request_table import RequestTable, RowGroups, read_request_table
from tandem.bench.figures.throughput import Spreads, compute_turn_metrics
from tandem.bench.plan.schedule import ArmLoad
from tandem.bench.records import counters, json_file, manifest
from tandem.bench.records.manifest import RunManifest
from tandem.errors import InputError
from tandem.metrics import CATALOGUE, find_metric

SCHEMA = 2

FILE = "summary.json"
ALL_CLASSES = "all"
_DECIMALS = 6  # of a millisecond: finer than any clock here
_LIMITABLE = sorted({"ttft_ms", "tpot_ms", "tpot_exact_ms", "e2e_ms", "output_tokens_per_s"})


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


def summarize_run(folder: Path) -> RecordSummary:
    """Return the summary of `folder`, from its records, counters and manifest only.

    Raises:
        InputError: a file is missing or a line is invalid; the error names it.
    """
    return summarize_table(read_request_table(folder))


def summarize_table(table: RequestTable) -> RecordSummary:
    """Return the summary of the requests of `table` and of the counters in its folder.

    Raises:
        InputError: the goodput limits a figure that no request has, or a line of the counters is no
            scrape.
    """
    run = table.run
    check_limits(run, table.folder)
    controls = manifest.control_round_numbers(run)
    main = table.select(~np.isin(table.round, list(controls)))
    scrapes = (
        scrape
        for scrape in counters.read_scrapes(table.folder / counters.FILE)
        if scrape.round not in controls
    )
    changes, drop_reasons = counters.pair_scrapes(scrapes, table.dropped_counters)
    turn_metrics = compute_turn_metrics(main, changes)
    sentences = [
        f"{arm}: {text} (turns: {number})" for (arm, text), number in turn_metrics.sentences.items()
    ]
    loads = main.turn_groups.rename(turn.load for turn in main.turn_groups.keys)
    spreads = _compute_spreads(main, loads) | turn_metrics.spreads
    known_arms = {*(arm.name for arm in run.arms), *(load.arm for load in loads.keys)}
    arms = tuple(arm for arm in table.arms if arm in known_arms)
    class_places, arm_places = (
        {name: n for n, name in enumerate(names)} for names in (table.classes, arms)
    )

    def locate(load: ArmLoad) -> tuple[float, ...]:
        class_place = class_places.get(load.class_ or "", math.inf)
        arm_place = arm_places.get(load.arm, math.inf)
        return class_place, load.concurrency or -1, load.rate_per_s or 0.0, arm_place

    def count(mask: BoolArray) -> dict[ArmLoad, int]:
        return dict(zip(loads.keys, map(int, loads.sum(mask)), strict=True))

    def list_words(masks: Mapping[str, BoolArray]) -> tuple[WordCount, ...]:
        counts = {
            (load, word): n for word, mask in masks.items() for load, n in count(mask).items() if n
        }
        keys = sorted(counts, key=lambda key: (*locate(key[0]), key[1]))
        return tuple(
            WordCount(**_name_load(load), word=word, n=counts[load, word]) for load, word in keys
        )

    succeeded = count(~main.failed)
    failed = count(main.failed)
    retried = count(main.retried)
    requests = [
        ArmRequestCounts(
            **_name_load(load),
            requests=succeeded[load] + failed[load],
            succeeded=succeeded[load],
            failed=failed[load],
            retried=retried[load],
        )
        for load in sorted(loads.keys, key=locate)
    ]
    metrics = [
        find_metric(name) for name in sorted({name for _, name in spreads}, key=_locate_metric)
    ]
    return RecordSummary(
        arms=arms,
        simulated=run.simulated,
        records=len(table),
        cells=tuple(_list_cells(spreads, locate)),
        metrics=msgspec.convert(metrics, tuple[MetricDefinition, ...], from_attributes=True),
        requests=tuple(requests),
        errors=list_words({word: main.error == code for code, word in enumerate(main.errors)}),
        content=list_words({word: main.content == code for code, word in enumerate(main.contents)}),
        suspects=list_words(main.suspects),
        notes=tuple(
            collect_notes(
                table, main, [*drop_reasons, *sentences], {turn.arm for turn, _ in changes}
            )
        ),
    )


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


def check_limits(run: RunManifest, folder: Path) -> None:
    """Refuse a goodput that limits a figure that no request has.

    Raises:
        InputError: there is such a limit; the error names it.
    """
    for name in run.goodput or {}:
        if name not in _LIMITABLE:
            problem = f"goodput has a limit on {name}, which is no figure of a request"
            change = f"limit one of {', '.join(_LIMITABLE)}"
            raise InputError(problem, where=str(folder / manifest.FILE), change=change)


def _compute_spreads(table: RequestTable, loads: RowGroups[ArmLoad]) -> Spreads:
    spreads: Spreads = {}
    for groups in (loads, loads.rename(load.pool_classes() for load in loads.keys)):
        parts = {name: groups.split(values) for name, values in table.figures.items()}
        parts["chunk_gap_ms"] = groups.split(table.gaps_ms, table.gap_owners)
        for name, load_values in parts.items():
            spreads |= {
                (load, name): spread
                for load, values in load_values
                if (spread := compute_spread(values))
            }
    return spreads


def _locate_metric(name: str) -> tuple[int, int, str]:
    """Return a metric's sort key: the catalogue's order, then positions by number."""
    places = list(CATALOGUE)
    return (places.index(name), 0, name) if name in CATALOGUE else (len(places), len(name), name)


def _name_load(load: ArmLoad) -> dict[str, Any]:
    return load._asdict() | {"class_": load.class_ or ALL_CLASSES}


def _list_cells(
    spreads: Spreads, locate: Callable[[ArmLoad], tuple[float, ...]]
) -> Iterator[SummaryCell]:
    """Yield every cell; arms of the same metric follow each other."""
    places = {key: locate(key[0]) for key in spreads}
    for load, name in sorted(
        spreads, key=lambda key: (places[key][:-1], _locate_metric(key[1]), places[key][-1])
    ):
        figures = {
            key: round(value, _DECIMALS) for key, value in spreads[load, name]._asdict().items()
        }
        yield SummaryCell(**_name_load(load), **figures, metric=name, unit=find_metric(name).unit)
