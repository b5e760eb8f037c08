"""Prove in virtual time that 95 % means 95 %: print Markdown for docs/coverage.md.

    python benchmarks/coverage.py [--seeds N] [--seed N] [--write]

The simulator's own engine runs servers of a known true ratio, without HTTP (coverage_world.py).
Tandem's intervals and the usual ways (coverage_ways.py) see the same requests. The program takes a
few minutes on two idle cores. Busy cores change only that time, because no time of this machine
enters. The same seeds give the same table. The exit code is 1 if a promise is missed.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a process a core is enough
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import coverage_world
import numpy as np
from between_marks import write_between
from coverage_ways import WAYS, Answer, compare_prompts
from coverage_world import SEED
from machine import describe_day

from tandem.errors import TandemError

RATIOS = (0.8, 1.0, 1.05, 1.5, 3.0)
PROMPTS = (12, 24)
ROUNDS = 4
STARTS = 6
LOW = 0.93
HIGH = 0.97
CHANCE = 2.326
"""Standard errors by which a share may exceed HIGH: chance does so in 1 of 100 tables. LOW has no
such allowance."""
METRIC = "e2e_ms"
CHUNK = 250  # runs of one task
TASKS = 1_000_000  # seeds of tasks that one --seed has: more than any command uses

OURS = "Tandem"
SWAPPED = "Tandem, swapped and started again"
FIXED = "Tandem, neither"


class Cell(NamedTuple):
    """A true ratio and a run's prompt count. `ratio` None: equal servers, no speculation."""

    ratio: float | None
    prompts: int


class KnownCell(NamedTuple):
    """A cell, the cost of its draft, and the true log speed-up from that."""

    cell: Cell
    draft_ms: float | None
    log: float

    def format_ratio(self) -> str:
        """Return the true ratio for the tables."""
        exact = f"{math.exp(self.log):.3f}"
        return f"{exact} (equal servers)" if self.cell.ratio is None else exact


def find_truth(cell: Cell) -> KnownCell:
    """Return the truth of a cell."""
    draft_ms = None if cell.ratio is None else coverage_world.DRAFT_MS[cell.ratio]
    return KnownCell(
        cell, draft_ms, coverage_world.compute_truth(draft_ms, cell.prompts, repeats=151, seed=2)
    )


def judge_runs(known: KnownCell, runs: int, seed: int) -> dict[str, list[Answer]]:
    """Return the answers of each way for some runs of a cell."""
    rng = np.random.default_rng([SEED, seed, known.cell.prompts, round(1000 * math.exp(known.log))])
    servers = [coverage_world.build_server(None, 10 * seed)]
    servers.append(coverage_world.build_server(known.draft_ms, 10 * seed + 1))
    answers = defaultdict(list)
    for _ in range(runs):
        prompts = rng.integers(coverage_world.POPULATION, size=known.cell.prompts)
        work = coverage_world.simulate_work(servers, prompts, STARTS, rng)
        world = coverage_world.draw_world(work, rng)
        view = coverage_world.view_work(work, world).select_rounds(ROUNDS)
        answers[OURS].append(compare_prompts(view, METRIC))
        for name, swaps in ((SWAPPED, True), (FIXED, False)):
            slower = coverage_world.draw_halves_and_starts(len(servers), STARTS, rng, swaps=swaps)
            view_of_starts = coverage_world.view_work(work, world._replace(slower=slower))
            answers[name].append(compare_prompts(view_of_starts, METRIC, has_starts=swaps))
        for name, way in WAYS.items():
            answers[name].append(way(view, METRIC))
    return dict(answers)


class Row(NamedTuple):
    """A way's answers for all runs of a cell: shares, interval width and run count."""

    known: KnownCell
    way: str
    covers: float
    faster: float
    slower: float
    width: float
    runs: int

    @property
    def false(self) -> float:
        """Share of runs with a false verdict: any if the servers are alike, else the opposite."""
        ratio = self.known.cell.ratio or 1
        if ratio == 1:
            return self.faster + self.slower
        return self.slower if ratio > 1 else self.faster

    @property
    def holds(self) -> bool:
        """Whether the promise of the way holds."""
        has_promise = self.known.cell.ratio is not None and self.way in (OURS, SWAPPED)
        chance = CHANCE * math.sqrt(HIGH * (1 - HIGH) / self.runs)
        return not has_promise or LOW <= self.covers <= HIGH + chance

    def format_coverage(self) -> str:
        """Return the share of the intervals that hold the truth; bold where a promise is missed."""
        text = f"{self.covers:.1%}" if math.isfinite(self.covers) else "none"
        return text if self.holds else f"**{text}**"


def count_answers(known: KnownCell, way: str, answers: Sequence[Answer]) -> Row:
    """Return the shares of one way."""
    _logs, low, high, word = np.array(answers, float).T
    covers = (
        float(np.mean((low <= known.log) & (known.log <= high)))
        if np.isfinite(low).all()
        else math.nan
    )
    faster = float(np.mean(word > 0))
    return Row(
        known,
        way,
        covers,
        faster,
        float(np.mean(word < 0)),
        float(np.median(high - low)),
        len(answers),
    )


def list_rows(cells: Iterable[Cell], runs: int, seed: int) -> Iterator[Row]:
    """Yield the rows of every cell; all cores are used."""
    tasks = range(0, runs, CHUNK)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = []
        for known in pool.map(find_truth, cells):
            parts = [
                pool.submit(
                    judge_runs, known, min(CHUNK, runs - begin), TASKS * seed + begin // CHUNK
                )
                for begin in tasks
            ]
            jobs.append((known, parts))
        for known, parts in jobs:
            answers = defaultdict(list)
            for part in parts:
                for way, part_answers in part.result().items():
                    answers[way] += part_answers
            for way, way_answers in answers.items():
                yield count_answers(known, way, way_answers)


def format_table(rows: Iterable[Row]) -> list[str]:
    """Return the tables of coverage, of power and of the usual ways."""
    by_cell: dict[KnownCell, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        by_cell[row.known][row.way] = row
    ways = (OURS, *WAYS)
    return [
        (
            "| true ratio | prompts | covered | width | faster | slower | half and starts 3 %:"
            " swapped | neither |"
        ),
        "|---|---|---|---|---|---|---|---|",
        *(_format_power(known, rows_by_way) for known, rows_by_way in by_cell.items()),
        "",
        "False verdicts on the same requests, and how often 95 % intervals hold:",
        "",
        "| true ratio | prompts | " + " | ".join(f"{way}: false, covered" for way in ways) + " |",
        "|---|---|" + "---|" * len(ways),
        *(_format_ways(known, rows_by_way) for known, rows_by_way in by_cell.items()),
    ]


def _format_power(known: KnownCell, rows: Mapping[str, Row]) -> str:
    ours = rows[OURS]
    return (
        f"| {known.format_ratio()} | {known.cell.prompts} | {ours.format_coverage()} "
        f"| {math.exp(ours.width / 2) - 1:.1%} | {ours.faster:.1%} | {ours.slower:.1%} "
        f"| {rows[SWAPPED].format_coverage()} | {rows[FIXED].format_coverage()} |"
    )


def _format_ways(known: KnownCell, rows: Mapping[str, Row]) -> str:
    cells = " | ".join(
        f"{rows[way].false:.1%}, {rows[way].format_coverage()}" for way in (OURS, *WAYS)
    )
    return f"| {known.format_ratio()} | {known.cell.prompts} | {cells} |"


def compute_figures(runs: int = 1000, seed: int = 0) -> tuple[str, bool]:
    """Return the tables, and whether every promise holds."""
    cells = [Cell(ratio, prompts) for ratio, prompts in itertools.product((*RATIOS, None), PROMPTS)]
    rows = list(list_rows(cells, runs, seed))
    return "\n".join(format_table(rows)), all(row.holds for row in rows)


def main() -> int:
    """Print the tables; return 1 if a promise is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=1000, metavar="N", help="runs of a cell (default 1000)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the runs' draws, from 0 (default 0)"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the tables into their page of docs/"
    )
    options = parser.parse_args()
    if options.seed < 0:
        parser.error(f"argument --seed: {options.seed} is below 0; give 0 or a higher whole number")
    start_s = time.monotonic()
    figures, holds = compute_figures(options.seeds, options.seed)
    command = "python benchmarks/coverage.py" + (f" --seed {options.seed}" if options.seed else "")
    text = (
        f"`{command}`, {describe_day()}, {time.monotonic() - start_s:.0f} s; {options.seeds} seeds"
        f" a cell; promises {'held' if holds else '**not held**'}.\n\n{figures}"
    )
    print(text)
    if options.write:
        try:
            write_between("coverage", text)
        except TandemError as fault:
            print(f"error: {fault}", file=sys.stderr)
            return fault.exit_code
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
