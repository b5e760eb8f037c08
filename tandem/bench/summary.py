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

from tandem.bench import counters, json_file, manifest, turns
from tandem.bench.fault import BenchError
from tandem.bench.folder import RECORDS
from tandem.bench.manifest import Manifest
from tandem.bench.notes import notes
from tandem.bench.quantiles import Values, spread
from tandem.bench.reading import Part, parts
from tandem.bench.tally import Load, Tally, parted, tally
from tandem.bench.turns import Spreads
from tandem.metrics import CATALOGUE, Metric, metric

SCHEMA = 2
"""Raised by what an older reader would misread: 2 says whether servers are simulated."""

FILE = "summary.json"
ALL = "all"
_DECIMALS = 6  # of a millisecond: finer than any clock here
_PART = 32 << 20  # bytes of records: below, starting a process takes longer than reading
_AHEAD = 2  # parts that wait at each other process, so that it never waits itself
_LIMITABLE = sorted({"ttft_ms", "tpot_ms", "tpot_exact_ms", "e2e_ms", "output_tokens_per_s"})


class Cell(msgspec.Struct, frozen=True, kw_only=True):
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


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the catalogue that has a cell."""

    name: str
    unit: str
    definition: str
    source: str
    better: str


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of one arm in one class at one concurrency, and how it went."""

    arm: str
    class_: str = msgspec.field(name="class")
    concurrency: int | None
    rate_per_s: float | None
    requests: int
    succeeded: int
    failed: int
    retried: int


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """How often a word was recorded of one arm's requests in one class."""

    arm: str
    class_: str = msgspec.field(name="class")
    concurrency: int | None
    rate_per_s: float | None
    word: str
    n: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
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
    cells: tuple[Cell, ...]
    metrics: tuple[Definition, ...]
    requests: tuple[Requests, ...]
    errors: tuple[Word, ...]
    content: tuple[Word, ...]
    suspects: tuple[Word, ...]
    notes: tuple[str, ...]


def summarize(folder: Path) -> Summary:
    """Read the records and counters of `folder`, and nothing else it holds but the manifest.

    Raises:
        BenchError: a file is missing, or a line is not what it must be; it is named.
    """
    run = manifest.read(folder)
    check_limits(run, folder)
    controls = manifest.controls(run)
    total, aside = read(folder / RECORDS, run.goodput, controls), Tally()
    if controls:
        total, aside = parted(total)
    scrapes = (scrape for scrape in counters.read_scrapes(folder / counters.FILE) if scrape.round not in controls)
    changes, reasons = counters.changes(scrapes)
    with ThreadPoolExecutor(_cores()) as threads:  # numpy lets go of the interpreter while it sorts
        timed = threads.submit(turns.throughput, total, limited=bool(run.goodput))
        counted = threads.submit(turns.acceptance, changes, {arm.name: arm for arm in run.arms}, total)
        spreads = _spreads(total, threads)
        throughput, accepted = timed.result(), counted.result()
    spreads |= throughput.spreads | accepted.spreads
    order = _Order(run, total)
    cells = order.cells(spreads)
    named = {cell.metric for cell in cells}
    return Summary(
        arms=order.arms,
        simulated=run.simulated,
        records=sum(total.requests.values()) + sum(aside.requests.values()),
        cells=cells,
        metrics=tuple(_definition(metric(name)) for name in sorted(named, key=_metric_place)),
        requests=tuple(order.requests(total)),
        errors=tuple(order.words(total.errors)),
        content=tuple(order.words(total.content)),
        suspects=tuple(order.words(total.suspects)),
        notes=tuple(
            notes(run, total, aside, [*reasons, *_sentences(throughput, accepted)], {turn[0] for turn, _ in changes})
        ),
    )


def write(folder: Path) -> Summary:
    """Summarize `folder` and write its summary.json whole: a reader sees the old one or the new one.

    Raises:
        BenchError: as of `summarize`.
        WorldError: the folder cannot be written to.
    """
    summary = summarize(folder)
    save(folder, summary)
    return summary


def save(folder: Path, summary: Summary) -> None:
    """Write summary.json.

    Raises:
        WorldError: the folder cannot be written to.
    """
    json_file.save(folder / FILE, summary, what="the summary")


def read(path: Path, limits: Mapping[str, float] | None = None, controls: frozenset[int] = frozenset()) -> Tally:
    """Read a records file with as many processes as its size and the machine are worth.

    Raises:
        BenchError: a line that is no record, or a file that cannot be read.
    """
    try:
        ranges = parts(path, 1 + path.stat().st_size // _PART, limits, controls)
        total = Tally()
        for further in _tallies(ranges, min(_cores(), len(ranges))):
            total.add(further)
    except OSError as error:
        raise BenchError(
            f"the records cannot be read: {error.strerror or error}",
            where=str(path),
            change="name the folder that a run wrote, and see that its files may be read",
        ) from error
    return total


def _tallies(ranges: Sequence[Part], processes: int) -> Iterator[Tally]:
    """Yield the tally of each part in order, this process taking its share of them.

    Parts are handed out as processes get free, so none waits for a slower one, and none holds more than a part or two.
    """
    if processes <= 1:
        yield from map(_tally, ranges)
        return
    left, asked = deque(enumerate(ranges)), dict[int, Future[Tally]]()
    with ProcessPoolExecutor(processes - 1, mp_context=get_context("spawn")) as pool:
        while left:
            for _ in range(_AHEAD * (processes - 1) - sum(not one.done() for one in asked.values())):
                if left:
                    place, part = left.popleft()
                    asked[place] = pool.submit(_tally, part)
            if left:
                place, part = left.popleft()
                asked[place] = _here(part)
        for place in range(len(ranges)):
            yield asked.pop(place).result()


def _here(part: Part) -> Future[Tally]:
    done: Future[Tally] = Future()
    try:
        done.set_result(_tally(part))
    except BenchError as fault:
        done.set_exception(fault)  # raised in its turn: an earlier part may hold an earlier one
    return done


def _tally(part: Part) -> Tally:
    with _without_cycles():
        return tally(part)


@contextmanager
def _without_cycles() -> Iterator[None]:
    """Keep the collector of cycles from looking through millions of chunks, which can form none."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def check_limits(run: Manifest, folder: Path) -> None:
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


def _spreads(total: Tally, threads: Executor) -> Spreads:
    pooled: dict[tuple[Load, str], list[Values]] = {}
    for (load, name), arrays in total.values.items():
        pooled.setdefault((load.pooled(), name), []).extend(arrays)
    cells = [*pooled.items(), *total.values.items()]  # the long ones first, so that no thread is left with one
    spreads = threads.map(lambda cell: spread(np.concatenate(cell[1])), cells)
    return {key: across for (key, _), across in zip(cells, spreads, strict=True) if across}


def _cores() -> int:
    """Return the cores this process may use; not every system tells them from those of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _sentences(*measured: turns.Measured) -> Iterator[str]:
    for found in measured:
        for (arm, sentence), number in found.said.items():
            yield f"{arm}: {sentence} ({number} {'turn' if number == 1 else 'turns'})"


def _definition(known: Metric) -> Definition:
    return Definition(
        name=known.name, unit=known.unit, definition=known.definition, source=known.source, better=known.better
    )


def _metric_place(name: str) -> tuple[int, int, str]:
    """Return a metric's place: the catalogue's order, then positions by number."""
    places = list(CATALOGUE)
    return (places.index(name), 0, name) if name in CATALOGUE else (len(places), len(name), name)


class _Order:
    """The order of everything: arms and classes as the manifest has them, what it does not know behind."""

    def __init__(self, run: Manifest, total: Tally) -> None:
        seen = sorted(total.requests, key=str)
        self.arms = tuple(dict.fromkeys([*(arm.name for arm in run.arms), *(load.arm for load in seen)]))
        stated = [name for suite in run.suites for name in suite.classes]
        classes = [*stated, *(load.class_ for load in seen)]
        self._classes = [*dict.fromkeys(name for name in classes if name is not None), None]

    def _place(self, load: Load) -> tuple[int, float, float, int]:
        concurrency = -1 if load.concurrency is None else load.concurrency
        return self._class(load), concurrency, load.rate_per_s or 0.0, self._arm(load)

    def _class(self, load: Load) -> int:
        return self._classes.index(load.class_) if load.class_ in self._classes else len(self._classes)

    def _arm(self, load: Load) -> int:
        return self.arms.index(load.arm) if load.arm in self.arms else len(self.arms)

    def cells(self, spreads: Spreads) -> tuple[Cell, ...]:
        """Return every cell, arms side by side."""

        def place(key: tuple[Load, str]) -> tuple[object, ...]:
            load, name = key
            *where, arm = self._place(load)
            return (*where, _metric_place(name), arm)

        return tuple(self._cell(load, name, spreads) for load, name in sorted(spreads, key=place))

    @staticmethod
    def _cell(load: Load, name: str, spreads: Spreads) -> Cell:
        across = spreads[load, name]
        p50, p90, p99, mean = (round(value, _DECIMALS) for value in across[1:])
        return Cell(
            class_=load.class_ or ALL, concurrency=load.concurrency, rate_per_s=load.rate_per_s, metric=name,
            arm=load.arm, n=across.n, p50=p50, p90=p90, p99=p99, mean=mean, unit=metric(name).unit,
        )  # fmt: skip

    def requests(self, total: Tally) -> Iterator[Requests]:
        """Yield the counts of every load."""
        failed: dict[Load, int] = {}
        for (load, _), number in total.errors.items():
            failed[load] = failed.get(load, 0) + number
        for load in sorted(total.requests, key=self._place):
            asked, lost = total.requests[load], failed.get(load, 0)
            yield Requests(
                arm=load.arm, class_=load.class_ or ALL, concurrency=load.concurrency, rate_per_s=load.rate_per_s,
                requests=asked, succeeded=asked - lost, failed=lost, retried=total.retried[load],
            )  # fmt: skip

    def words(self, counted: Mapping[tuple[Load, str], int]) -> Iterable[Word]:
        """Yield how often each word was said."""
        for load, word in sorted(counted, key=lambda key: (self._place(key[0]), key[1])):
            yield Word(
                arm=load.arm, class_=load.class_ or ALL, concurrency=load.concurrency, rate_per_s=load.rate_per_s,
                word=word, n=counted[load, word],
            )  # fmt: skip
