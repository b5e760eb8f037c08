"""From the files of a run to its cells: every figure of `summary.json`, recomputed from the records each time.

Invariant: nothing is read from an earlier summary; a figure that cannot be known is absent and a note says why; failed
requests are in no latency and in every count; the same files give the same bytes, however many processes read them.

A cell is one metric of one arm in one class at one concurrency. Class `all` pools the classes. Metrics of a request
spread over requests, gaps over gaps, and those of a server or of a whole system over turns.
"""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import msgspec
import numpy as np

from tandem.bench import counters, json_file, manifest, throughput
from tandem.bench.aggregate import ArmLoad, RequestTally, split_controls, tally_part
from tandem.bench.fault import BenchError
from tandem.bench.folder import RECORDS_FILE
from tandem.bench.manifest import RunManifest
from tandem.bench.notes import collect_notes
from tandem.bench.quantiles import Values, compute_spread
from tandem.bench.record_blocks import RecordsRange, split_file
from tandem.bench.throughput import Spreads
from tandem.metrics import CATALOGUE, Metric, find_metric

SCHEMA = 2
"""Raised by what an older reader would misread: 2 says whether servers are simulated."""

FILE = "summary.json"
ALL_CLASSES = "all"
_DECIMALS = 6  # of a millisecond: finer than any clock here
_PART_BYTES = 32 << 20  # bytes of records: below, starting a process takes longer than reading
_QUEUE_DEPTH = 2  # parts that wait at each other process, so that it never waits itself
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
    run = manifest.read_manifest(folder)
    check_limits(run, folder)
    controls = manifest.control_round_numbers(run)
    total, control_tally = read_tally(folder / RECORDS_FILE, run.goodput, controls), RequestTally()
    if controls:
        total, control_tally = split_controls(total)
    scrapes = (scrape for scrape in counters.read_scrapes(folder / counters.FILE) if scrape.round not in controls)
    changes, reasons = counters.pair_scrapes(scrapes)
    with ThreadPoolExecutor(_count_cores()) as threads:  # numpy lets go of the interpreter while it sorts
        throughput_future = threads.submit(throughput.compute_throughput, total, has_limits=bool(run.goodput))
        acceptance_future = threads.submit(
            throughput.compute_acceptance, changes, {arm.name: arm for arm in run.arms}, total
        )
        spreads = _compute_spreads(total, threads)
        throughput_metrics, acceptance_metrics = throughput_future.result(), acceptance_future.result()
    spreads |= throughput_metrics.spreads | acceptance_metrics.spreads
    order = _SummaryOrder(run, total)
    cells = order.cells(spreads)
    metric_names = {cell.metric for cell in cells}
    return RecordSummary(
        arms=order.arms,
        simulated=run.simulated,
        records=sum(total.requests.values()) + sum(control_tally.requests.values()),
        cells=cells,
        metrics=tuple(_create_definition(find_metric(name)) for name in sorted(metric_names, key=_metric_position)),
        requests=tuple(order.requests(total)),
        errors=tuple(order.words(total.errors)),
        content=tuple(order.words(total.content)),
        suspects=tuple(order.words(total.suspects)),
        notes=tuple(
            collect_notes(
                run,
                total,
                control_tally,
                [*reasons, *_format_sentences(throughput_metrics, acceptance_metrics)],
                {turn[0] for turn, _ in changes},
            )
        ),
    )


def write_summary(folder: Path) -> RecordSummary:
    """Summarize `folder` and write its summary.json whole: a reader sees the old one or the new one.

    Raises:
        BenchError: as of `summarize_run`.
        WorldError: the folder cannot be written to.
    """
    summary = summarize_run(folder)
    save_summary(folder, summary)
    return summary


def save_summary(folder: Path, summary: RecordSummary) -> None:
    """Write summary.json.

    Raises:
        WorldError: the folder cannot be written to.
    """
    json_file.save_json(folder / FILE, summary, label="the summary")


def read_tally(
    path: Path, limits: Mapping[str, float] | None = None, controls: frozenset[int] = frozenset()
) -> RequestTally:
    """Read a records file with as many processes as its size and the machine are worth.

    Raises:
        BenchError: a line that is no record, or a file that cannot be read.
    """
    try:
        ranges = split_file(path, 1 + path.stat().st_size // _PART_BYTES, limits, controls)
        total = RequestTally()
        for part_tally in _read_tallies(ranges, min(_count_cores(), len(ranges))):
            total.add(part_tally)
    except OSError as error:
        raise BenchError(
            f"the records cannot be read: {error.strerror or error}",
            where=str(path),
            change="name the folder that a run wrote, and see that its files may be read",
        ) from error
    return total


def _read_tallies(ranges: Sequence[RecordsRange], processes: int) -> Iterator[RequestTally]:
    """Yield the tally of each part in order, this process taking its share of them.

    Parts are handed out as processes get free, so none waits for a slower one, and none holds more than a part or two.
    """
    if processes <= 1:
        yield from map(_tally_without_gc, ranges)
        return
    queue, futures = deque(enumerate(ranges)), dict[int, Future[RequestTally]]()
    with ProcessPoolExecutor(processes - 1, mp_context=get_context("spawn")) as pool:
        while queue:
            for _ in range(_QUEUE_DEPTH * (processes - 1) - sum(not future.done() for future in futures.values())):
                if queue:
                    place, part = queue.popleft()
                    futures[place] = pool.submit(_tally_without_gc, part)
            if queue:
                place, part = queue.popleft()
                futures[place] = _run_here(part)
        for place in range(len(ranges)):
            yield futures.pop(place).result()


def _run_here(part: RecordsRange) -> Future[RequestTally]:
    future: Future[RequestTally] = Future()
    try:
        future.set_result(_tally_without_gc(part))
    except BenchError as fault:
        future.set_exception(fault)  # raised in its turn: an earlier part may hold an earlier one
    return future


def _tally_without_gc(part: RecordsRange) -> RequestTally:
    with _pause_gc():
        return tally_part(part)


@contextmanager
def _pause_gc() -> Iterator[None]:
    """Keep the collector of cycles from looking through millions of chunks, which can form none."""
    is_gc_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_gc_on:
            gc.enable()


def check_limits(run: RunManifest, folder: Path) -> None:
    """Refuse a goodput that limits what no request has.

    Raises:
        BenchError: it is named.
    """
    for name in run.goodput or {}:
        if name not in _LIMITABLE:
            raise BenchError(
                f"goodput has a limit on {name}, which is no figure of a request",
                where=str(folder / manifest.FILE),
                change=f"limit one of {', '.join(_LIMITABLE)}",
            )


def _compute_spreads(total: RequestTally, threads: Executor) -> Spreads:
    pooled_arrays: dict[tuple[ArmLoad, str], list[Values]] = {}
    for (load, name), arrays in total.values.items():
        pooled_arrays.setdefault((load.pool_classes(), name), []).extend(arrays)
    cells = [*pooled_arrays.items(), *total.values.items()]  # the long ones first, so that no thread is left with one
    spreads = threads.map(lambda cell: compute_spread(np.concatenate(cell[1])), cells)
    return {key: cell_spread for (key, _), cell_spread in zip(cells, spreads, strict=True) if cell_spread}


def _count_cores() -> int:
    """Return the cores this process may use; not every system tells them from those of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _format_sentences(*turn_metrics: throughput.TurnMetrics) -> Iterator[str]:
    for arm_metrics in turn_metrics:
        for (arm, sentence), number in arm_metrics.sentences.items():
            yield f"{arm}: {sentence} ({number} {'turn' if number == 1 else 'turns'})"


def _create_definition(entry: Metric) -> MetricDefinition:
    return MetricDefinition(
        name=entry.name, unit=entry.unit, definition=entry.definition, source=entry.source, better=entry.better
    )


def _metric_position(name: str) -> tuple[int, int, str]:
    """Return a metric's place: the catalogue's order, then positions by number."""
    places = list(CATALOGUE)
    return (places.index(name), 0, name) if name in CATALOGUE else (len(places), len(name), name)


class _SummaryOrder:
    """The order of everything: arms and classes as the manifest has them, what it does not know behind."""

    def __init__(self, run: RunManifest, total: RequestTally) -> None:
        loads = sorted(total.requests, key=str)
        self.arms = tuple(dict.fromkeys([*(arm.name for arm in run.arms), *(load.arm for load in loads)]))
        suite_classes = [name for suite in run.suites for name in suite.classes]
        classes = [*suite_classes, *(load.class_ for load in loads)]
        self._classes = [*dict.fromkeys(name for name in classes if name is not None), None]

    def _position(self, load: ArmLoad) -> tuple[int, float, float, int]:
        concurrency = -1 if load.concurrency is None else load.concurrency
        return self._class_position(load), concurrency, load.rate_per_s or 0.0, self._arm_position(load)

    def _class_position(self, load: ArmLoad) -> int:
        return self._classes.index(load.class_) if load.class_ in self._classes else len(self._classes)

    def _arm_position(self, load: ArmLoad) -> int:
        return self.arms.index(load.arm) if load.arm in self.arms else len(self.arms)

    def cells(self, spreads: Spreads) -> tuple[SummaryCell, ...]:
        """Return every cell, arms side by side."""

        def position(key: tuple[ArmLoad, str]) -> tuple[object, ...]:
            load, name = key
            *where, arm = self._position(load)
            return (*where, _metric_position(name), arm)

        return tuple(self._create_cell(load, name, spreads) for load, name in sorted(spreads, key=position))

    @staticmethod
    def _create_cell(load: ArmLoad, name: str, spreads: Spreads) -> SummaryCell:
        cell_spread = spreads[load, name]
        p50, p90, p99, mean = (round(value, _DECIMALS) for value in cell_spread[1:])
        return SummaryCell(
            class_=load.class_ or ALL_CLASSES, concurrency=load.concurrency, rate_per_s=load.rate_per_s, metric=name,
            arm=load.arm, n=cell_spread.n, p50=p50, p90=p90, p99=p99, mean=mean, unit=find_metric(name).unit,
        )  # fmt: skip

    def requests(self, total: RequestTally) -> Iterator[ArmRequestCounts]:
        """Yield the counts of every load."""
        failures: dict[ArmLoad, int] = {}
        for (load, _), number in total.errors.items():
            failures[load] = failures.get(load, 0) + number
        for load in sorted(total.requests, key=self._position):
            request_count, failure_count = total.requests[load], failures.get(load, 0)
            yield ArmRequestCounts(
                arm=load.arm,
                class_=load.class_ or ALL_CLASSES,
                concurrency=load.concurrency,
                rate_per_s=load.rate_per_s,
                requests=request_count,
                succeeded=request_count - failure_count,
                failed=failure_count,
                retried=total.retries[load],
            )

    def words(self, counts: Mapping[tuple[ArmLoad, str], int]) -> Iterable[WordCount]:
        """Yield how often each word was said."""
        for load, word in sorted(counts, key=lambda key: (self._position(key[0]), key[1])):
            yield WordCount(
                arm=load.arm,
                class_=load.class_ or ALL_CLASSES,
                concurrency=load.concurrency,
                rate_per_s=load.rate_per_s,
                word=word,
                n=counts[load, word],
            )
