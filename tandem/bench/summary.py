"""From the files of a run to its cells: every figure of `summary.json`, recomputed from the records each time.

Invariant: nothing is read from an earlier summary; a figure that cannot be known is absent and a note says why; failed
requests are in no latency and in every count; the same files give the same bytes, however many processes read them.

A cell is one metric of one arm in one class at one concurrency. Class `all` pools the classes. Metrics of a request
spread over requests, gaps over gaps, and those of a server or of a whole system over turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tandem.bench import counters, json_file, manifest, throughput
from tandem.bench.columns import BoolArray, IntArray
from tandem.bench.fault import BenchError
from tandem.bench.manifest import RunManifest
from tandem.bench.notes import collect_notes
from tandem.bench.quantiles import Values, compute_spread
from tandem.bench.request_table import RequestTable, read_request_table
from tandem.bench.schedule import ArmLoad
from tandem.bench.throughput import Spreads, TurnRequests
from tandem.metrics import CATALOGUE, find_metric

SCHEMA = 2
"""Raised by what an older reader would misread: 2 says whether servers are simulated."""

FILE = "summary.json"
ALL_CLASSES = "all"
_DECIMALS = 6  # of a millisecond: finer than any clock here
_LIMITABLE = sorted({"ttft_ms", "tpot_ms", "tpot_exact_ms", "e2e_ms", "output_tokens_per_s"})


class SummaryCell(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one arm in one class at one concurrency (or open-loop rate); `n` counts what it is spread over."""

    class_: str = msgspec.field(name="class")
    concurrency: int | None
    rate_per_s: float | None
    metric: str
    arm: str
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
    source: str
    better: str


_METRIC_FIELDS = MetricDefinition.__struct_fields__


class ArmRequestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of one arm in one class at one concurrency, and how it went."""

    arm: str
    class_: str = msgspec.field(name="class")
    concurrency: int | None
    rate_per_s: float | None
    requests: int
    succeeded: int
    failed: int
    retried: int


class WordCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often a word was recorded of one arm's requests in one class."""

    arm: str
    class_: str = msgspec.field(name="class")
    concurrency: int | None
    rate_per_s: float | None
    word: str
    n: int


class RecordSummary(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run's records say.

    Args:
        arms: names, the baseline first.
        simulated: whether an arm is; None where nobody asked.
        records: lines that were read, those of control rounds too, which are in no other figure here.
        cells: by class, load, metric and arm.
        metrics: definitions of the cells' metrics.
        requests: counts; failed requests are here and in no cell.
        errors, content, suspects: counted words of Record.error, Record.content and derive.SUSPECTS.
        notes: what a reader must know, and why a figure is absent.
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
    """Read the records and counters of `folder`, and nothing else it holds but the manifest.

    Raises:
        BenchError: a file is missing, or a line is not what it must be; it is named.
    """
    check_limits(manifest.read_manifest(folder), folder)
    return summarize_table(read_request_table(folder))


def summarize_table(table: RequestTable) -> RecordSummary:
    """Return all that the requests of `table` and the counters beside them say.

    Raises:
        BenchError: the goodput limits what no request has, or a line of the counters is no scrape.
    """
    run = table.run
    check_limits(run, table.folder)
    controls = manifest.control_round_numbers(run)
    is_main = ~np.isin(table.round, list(controls))
    turn_requests = TurnRequests.select(table, is_main)
    scrapes = (scrape for scrape in counters.read_scrapes(table.folder / counters.FILE) if scrape.round not in controls)
    changes, drop_reasons = counters.pair_scrapes(scrapes)
    throughput_metrics = throughput.compute_throughput(turn_requests, has_limits=bool(run.goodput))
    acceptance_metrics = throughput.compute_acceptance(changes, {arm.name: arm for arm in run.arms}, turn_requests)
    sentences = [
        f"{arm}: {sentence} ({number} {'turn' if number == 1 else 'turns'})"
        for metrics in (throughput_metrics, acceptance_metrics)
        for (arm, sentence), number in metrics.sentences.items()
    ]
    cells = _CellRows.group(table, is_main)
    spreads = _compute_spreads(table, cells) | throughput_metrics.spreads | acceptance_metrics.spreads
    arms, locate = _order_loads(run, cells.loads)

    def list_words(masks: Mapping[str, BoolArray]) -> tuple[WordCount, ...]:
        counts = {(load, word): n for word, mask in masks.items() for load, n in cells.count_by_load(mask).items() if n}
        keys = sorted(counts, key=lambda key: (*locate(key[0]), key[1]))
        return tuple(WordCount(**_name_load(load), word=word, n=counts[load, word]) for load, word in keys)

    everything = np.ones(len(table), bool)
    asked, failed, retried = (cells.count_by_load(mask) for mask in (everything, table.failed, table.retried))
    requests = [
        ArmRequestCounts(
            **_name_load(load),
            requests=asked[load],
            succeeded=asked[load] - failed[load],
            failed=failed[load],
            retried=retried[load],
        )
        for load in sorted(cells.loads, key=locate)
    ]
    metrics = map(find_metric, sorted({name for _, name in spreads}, key=_locate_metric))
    return RecordSummary(
        arms=arms,
        simulated=run.simulated,
        records=len(table),
        cells=tuple(_list_cells(spreads, locate)),
        metrics=tuple(MetricDefinition(**{key: getattr(metric, key) for key in _METRIC_FIELDS}) for metric in metrics),
        requests=tuple(requests),
        errors=list_words({word: table.error == code for code, word in enumerate(table.errors)}),
        content=list_words({word: table.content == code for code, word in enumerate(table.contents)}),
        suspects=list_words(table.suspects),
        notes=tuple(collect_notes(table, is_main, [*drop_reasons, *sentences], {turn.arm for turn, _ in changes})),
    )


def write_summary(folder: Path) -> RecordSummary:
    """Summarize `folder`, write its summary.json and return what stands there.

    Raises:
        BenchError: as of `summarize_run` and `save_summary`.
    """
    summary = summarize_run(folder)
    save_summary(folder, summary)
    return summary


def save_summary(folder: Path, summary: RecordSummary) -> None:
    """Write summary.json whole: a reader sees the old one or the new one.

    Raises:
        ExternalBenchError: the folder cannot be written to.
    """
    json_file.save_json(folder / FILE, summary, label="the summary")


def check_limits(run: RunManifest, folder: Path) -> None:
    """Refuse a goodput that limits what no request has.

    Raises:
        BenchError: it is named.
    """
    for name in run.goodput or {}:
        if name not in _LIMITABLE:
            problem = f"goodput has a limit on {name}, which is no figure of a request"
            change = f"limit one of {', '.join(_LIMITABLE)}"
            raise BenchError(problem, where=str(folder / manifest.FILE), change=change)


class _CellRows(NamedTuple):
    """The requests of each load.

    Args:
        loads: every arm, class and load that was asked.
        cell: of each request of the table, the place of its load; -1 where the request is left out.
    """

    loads: Sequence[ArmLoad]
    cell: IntArray

    @classmethod
    def group(cls, table: RequestTable, mask: BoolArray) -> _CellRows:
        """Group the requests that `mask` names."""
        turns, codes = table.turn_groups
        places: dict[ArmLoad, int] = {}
        turn_codes = np.unique(codes[mask]).tolist()
        turn_cells = np.full(len(turns), -1, np.intp)
        turn_cells[turn_codes] = [places.setdefault(turns[code].load, len(places)) for code in turn_codes]
        return cls(list(places), np.where(mask, turn_cells[codes], -1))

    def pool_classes(self) -> _CellRows:
        """Return the requests of each load, classes together."""
        places: dict[ArmLoad, int] = {}
        cells = [places.setdefault(load.pool_classes(), len(places)) for load in self.loads]
        return _CellRows(list(places), np.array([*cells, -1], np.intp)[self.cell])

    def count_by_load(self, mask: BoolArray) -> dict[ArmLoad, int]:
        """Return how many requests of each load are in `mask`."""
        numbers = np.bincount(self.cell[mask & (self.cell >= 0)], minlength=len(self.loads))
        return dict(zip(self.loads, numbers.tolist(), strict=True))

    def split(self, values: Values, rows: IntArray | None = None) -> Iterator[tuple[ArmLoad, Values]]:
        """Yield the values that there are, by load.

        Args:
            values: of the requests.
            rows: of each value, its request; None where each request has one.
        """
        cell = self.cell if rows is None else self.cell[rows]
        small_codes = cell.astype(np.min_scalar_type(-len(self.loads) - 1))  # numpy sorts 16 bits and fewer by radix
        sorted_values = values[np.argsort(small_codes, kind="stable")]
        ends = np.cumsum(np.bincount(cell + 1, minlength=len(self.loads) + 1))
        for load, first, end in zip(self.loads, ends[:-1], ends[1:], strict=True):
            cell_values = sorted_values[first:end]
            yield load, cell_values[~np.isnan(cell_values)]


def _compute_spreads(table: RequestTable, cells: _CellRows) -> Spreads:
    spreads: Spreads = {}
    for group in (cells, cells.pool_classes()):
        parts = {name: group.split(values) for name, values in table.figures.items()}
        parts["chunk_gap_ms"] = group.split(table.gaps_ms, table.gap_owners)
        for name, loads in parts.items():
            spreads |= {(load, name): spread for load, values in loads if (spread := compute_spread(values))}
    return spreads


def _locate_metric(name: str) -> tuple[int, int, str]:
    """Return a metric's place: the catalogue's order, then positions by number."""
    places = list(CATALOGUE)
    return (places.index(name), 0, name) if name in CATALOGUE else (len(places), len(name), name)


def _order_loads(
    run: RunManifest, loads: Sequence[ArmLoad]
) -> tuple[tuple[str, ...], Callable[[ArmLoad], tuple[float, ...]]]:
    """Return the arms, and the place of a load: as the manifest has arms and classes, what it does not know behind."""
    sorted_loads = sorted(loads, key=str)
    arms = tuple(dict.fromkeys([*(arm.name for arm in run.arms), *(load.arm for load in sorted_loads)]))
    suite_classes = [name for suite in run.suites for name in suite.classes]
    classes = [*dict.fromkeys([*suite_classes, *(load.class_ or "" for load in sorted_loads)]), None]

    def locate(load: ArmLoad) -> tuple[float, ...]:
        class_place = classes.index(load.class_) if load.class_ in classes else len(classes)
        arm_place = arms.index(load.arm) if load.arm in arms else len(arms)
        return class_place, -1 if load.concurrency is None else load.concurrency, load.rate_per_s or 0.0, arm_place

    return arms, locate


def _name_load(load: ArmLoad) -> dict[str, Any]:
    return load._asdict() | {"class_": load.class_ or ALL_CLASSES}


def _list_cells(spreads: Spreads, locate: Callable[[ArmLoad], tuple[float, ...]]) -> Iterator[SummaryCell]:
    """Yield every cell, arms side by side."""
    places = {key: locate(key[0]) for key in spreads}
    for load, name in sorted(spreads, key=lambda key: (places[key][:-1], _locate_metric(key[1]), places[key][-1])):
        figures = {key: round(value, _DECIMALS) for key, value in spreads[load, name]._asdict().items()}
        yield SummaryCell(**_name_load(load), **figures, metric=name, unit=find_metric(name).unit)
