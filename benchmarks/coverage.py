"""Prove in virtual time that 95 % means 95 %: print Markdown for docs/coverage.md.

    python benchmarks/coverage.py [--seeds N] [--seed N] [--write]

The simulator's own engine runs servers of a known true ratio, without HTTP (coverage_world.py). Tandem's intervals and
the usual ways (coverage_ways.py) see the same requests. The program takes a few minutes on two idle cores. Busy cores
change only that time, because no time of this machine enters. The same seeds give the same table. The exit code is 1 if
a promise is missed.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a process a core is enough
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import coverage_reports  # noqa: E402
import coverage_world  # noqa: E402
from between_marks import write_between  # noqa: E402
from coverage_ways import WAYS, Said, by_prompt, by_prompt_and_start  # noqa: E402
from coverage_world import PLAIN, SEED, Server  # noqa: E402
from taken_on import taken_on  # noqa: E402

from tandem.errors import TandemError  # noqa: E402

RATIOS = (0.8, 1.0, 1.05, 1.5, 3.0)
PROMPTS = (12, 24)
ROUNDS = 4
STARTS = 6
LOW, HIGH = 0.93, 0.97
CHANCE = 2.326
"""Standard errors by which a share may exceed HIGH: chance does so in 1 of 100 tables. LOW has no such allowance."""
MOST_FALSE = 0.065
METRIC = "e2e_ms"
CHUNK = 250  # runs of one task
TASKS = 1_000_000  # seeds of tasks that one --seed has: more than any command uses

OURS, SWAPPED, FIXED = "Tandem", "Tandem, swapped and started again", "Tandem, neither"


class Cell(NamedTuple):
    """A true ratio and the number of a run's prompts. `ratio` None: two equal servers without speculation."""

    ratio: float | None
    prompts: int


class Known(NamedTuple):
    """A cell, the cost of its draft, and the true log speed-up from that."""

    cell: Cell
    draft_ms: float | None
    log: float


def known(cell: Cell) -> Known:
    """Return the truth of a cell."""
    cost = None if cell.ratio is None else coverage_world.DRAFT_MS[cell.ratio]
    truth = coverage_world.truth((PLAIN, Server(cost)), cell.prompts, repeats=151, seed=2)[METRIC]
    return Known(cell, cost, truth)


def said(told: Known, seeds: int, seed: int) -> dict[str, list[Said]]:
    """Return the answers of each way for `seeds` runs of a cell."""
    rng = np.random.default_rng([SEED, seed, told.cell.prompts, round(1000 * math.exp(told.log))])
    servers = (PLAIN, Server(told.draft_ms))
    served = [coverage_world.engine(server, 10 * seed + arm) for arm, server in enumerate(servers)]
    plain = [server.draft_ms is None for server in servers]
    found: dict[str, list[Said]] = {name: [] for name in (OURS, SWAPPED, FIXED, *WAYS)}
    for _ in range(seeds):
        asked = rng.integers(coverage_world.POPULATION, size=told.cell.prompts)
        work = coverage_world.run(served, plain, asked, STARTS, rng)
        met = coverage_world.world(work, rng)
        few = coverage_world.seen(work, met).first(ROUNDS)
        found[OURS].append(by_prompt(few, METRIC))
        for name, way in WAYS.items():
            found[name].append(way(few, METRIC))
        for name, swaps, way in ((SWAPPED, True, by_prompt_and_start), (FIXED, False, by_prompt)):
            slower = coverage_world.halves_and_starts(2, STARTS, rng, swaps=swaps)
            found[name].append(way(coverage_world.seen(work, met._replace(slower=slower)), METRIC))
    return found


class Row(NamedTuple):
    """Answers of a way for all runs of a cell: shares of the runs, the interval's width, and the number of runs."""

    told: Known
    way: str
    covers: float
    faster: float
    slower: float
    width: float
    runs: int

    @property
    def false(self) -> float:
        """Share of runs with a false verdict: any verdict if the servers are alike, else the opposite one."""
        ratio = self.told.cell.ratio
        if ratio is None or ratio == 1:
            return self.faster + self.slower
        return self.slower if ratio > 1 else self.faster

    @property
    def holds(self) -> bool:
        """Whether the promise of the way holds."""
        promised = self.told.cell.ratio is not None and self.way in (OURS, SWAPPED)
        chance = CHANCE * math.sqrt(HIGH * (1 - HIGH) / self.runs)
        return not promised or LOW <= self.covers <= HIGH + chance


def row(told: Known, way: str, found: Sequence[Said]) -> Row:
    """Return the shares of one way."""
    _logs, low, high, word = (np.array(column, float) for column in zip(*found, strict=True))
    covers = float(np.mean((low <= told.log) & (told.log <= high))) if np.isfinite(low).all() else math.nan
    faster, slower = float(np.mean(word > 0)), float(np.mean(word < 0))
    return Row(told, way, covers, faster, slower, float(np.median(high - low)), len(found))


def list_tasks(seeds: int, seed: int) -> list[tuple[int, int]]:
    """Return how many runs each task has, and the seed of its draws, for all the runs that one --seed stands for."""
    return [(min(CHUNK, seeds - begin), TASKS * seed + begin // CHUNK) for begin in range(0, seeds, CHUNK)]


def rows(seeds: int, cells: Sequence[Cell], seed: int) -> Iterator[Row]:
    """Yield the rows of every cell; all cores are used."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        truths = list(pool.map(known, cells))
        tasks = list_tasks(seeds, seed)
        asked = [(told, size, number) for told in truths for size, number in tasks]
        answers = iter(list(pool.map(said, *zip(*asked, strict=True))))
        for told in truths:
            parts = [next(answers) for _ in tasks]
            for way in parts[0]:
                yield row(told, way, [one for part in parts for one in part[way]])


class Shares(NamedTuple):
    """Shares of whole reports that call a cell: with a control round, which has a promise, and without one."""

    controlled: float
    bare: float


def false_reports(seeds: int, seed: int) -> dict[coverage_reports.Null, Shares]:
    """Return the shares of whole reports that call a cell though none differs."""
    nulls: tuple[coverage_reports.Null, ...] = ("drafts", "equal")
    tasks = list_tasks(seeds, seed)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        asked = [(null, size, SEED + number) for null in nulls for size, number in tasks]
        called = list(pool.map(coverage_reports.reports, *zip(*asked, strict=True)))
    by_null = {null: called[place * len(tasks) : (place + 1) * len(tasks)] for place, null in enumerate(nulls)}
    return {
        null: Shares(sum(one.controlled for one in counts) / seeds, sum(one.bare for one in counts) / seeds)
        for null, counts in by_null.items()
    }


def table(found: Sequence[Row]) -> list[str]:
    """Return the tables of coverage, of power and of the usual ways."""
    by_cell: dict[Known, dict[str, Row]] = {}
    for one in found:
        by_cell.setdefault(one.told, {})[one.way] = one
    return [
        "| true ratio | prompts | covered | width | faster | slower | half and starts 3 %: swapped | neither |",
        "|---|---|---|---|---|---|---|---|",
        *(_of_cell(told, ways) for told, ways in by_cell.items()),
        "", "False verdicts on the same requests, and how often 95 % intervals hold:", "",
        "| true ratio | prompts | " + " | ".join(f"{way}: false, covered" for way in (OURS, *WAYS)) + " |",
        "|---|---|" + "---|" * (1 + len(WAYS)),
        *(_of_ways(told, ways) for told, ways in by_cell.items()),
    ]  # fmt: skip


def _of_cell(told: Known, ways: Mapping[str, Row]) -> str:
    ours = ways[OURS]
    held = " | ".join(_covered(ways[name]) for name in (SWAPPED, FIXED))
    return (
        f"| {_ratio(told)} | {told.cell.prompts} | {_covered(ours)} | {math.exp(ours.width / 2) - 1:.1%} "
        f"| {ours.faster:.1%} | {ours.slower:.1%} | {held} |"
    )


def _of_ways(told: Known, ways: Mapping[str, Row]) -> str:
    each = " | ".join(f"{ways[way].false:.1%}, {_covered(ways[way])}" for way in (OURS, *WAYS))
    return f"| {_ratio(told)} | {told.cell.prompts} | {each} |"


def _ratio(told: Known) -> str:
    exact = f"{math.exp(told.log):.3f}"
    return f"{exact} (equal servers)" if told.cell.ratio is None else exact


def _covered(one: Row) -> str:
    text = f"{one.covers:.1%}" if math.isfinite(one.covers) else "none"
    return text if one.holds else f"**{text}**"


def main() -> int:
    """Print the tables; return 1 if a promise is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="runs of a cell (default 1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the runs' draws, from 0 (default 0)")
    parser.add_argument("--write", action="store_true", help="put the tables into their page of docs/")
    options = parser.parse_args()
    if options.seed < 0:
        parser.error(f"argument --seed: {options.seed} is below 0; give 0 or a higher whole number")
    begun = time.monotonic()
    figures, held = compute_figures(options.seeds, options.seed)
    head = _head(options.seeds, options.seed, time.monotonic() - begun, held=held)
    text = f"{head}\n\n{figures}"
    print(text)
    if options.write:
        try:
            write_between("coverage", text)
        except TandemError as fault:
            print(f"error: {fault}", file=sys.stderr)
            return fault.exit_code
    return 0 if held else 1


def compute_figures(seeds: int = 1000, seed: int = 0) -> tuple[str, bool]:
    """Return the tables, and whether every promise holds."""
    cells = [Cell(ratio, prompts) for ratio in (*RATIOS, None) for prompts in PROMPTS]
    found = list(rows(seeds, cells, seed))
    called = false_reports(seeds, seed)
    held = all(one.holds for one in found) and all(one.controlled <= MOST_FALSE for one in called.values())
    return "\n".join([*table(found), "", _of_reports(called)]), held


def _of_reports(called: Mapping[coverage_reports.Null, Shares]) -> str:
    classes, prompts = len(coverage_reports.CLASSES), coverage_reports.PROMPTS
    drafts, equal = called["drafts"], called["equal"]
    return (
        f"Whole reports of {classes} classes x {prompts} prompts x 4 metrics that say faster or slower anywhere, "
        f"though nothing is (limit {MOST_FALSE:.1%}): {drafts.controlled:.1%} of two drafts as good as each other, "
        f"{equal.controlled:.1%} of two equal servers. With `--control-rounds 0`, so without a noise floor: "
        f"{drafts.bare:.1%} and {equal.bare:.1%}."
    )


def _head(seeds: int, seed: int, seconds: float, *, held: bool) -> str:
    promises = "held" if held else "**not held**"
    command = "python benchmarks/coverage.py" + (f" --seed {seed}" if seed else "")
    return f"`{command}`, {taken_on()}, {seconds:.0f} s; {seeds} seeds a cell; promises {promises}."


if __name__ == "__main__":
    sys.exit(main())
