"""Count the false words of whole reports in worlds of a known truth: print Markdown for docs/coverage.md.

    python benchmarks/worlds.py [--seeds N] [--seed S] [--world NAME] [--write]

The program simulates runs at the defaults of `tandem bench run` (world_records.py) and judges them as `tandem bench
report` does. No time of this machine enters: the same seeds give the same table. The exit code is 1 if a promise is
missed.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a process a core is enough
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from between_marks import write_between  # noqa: E402
from taken_on import taken_on  # noqa: E402
from world_records import World, simulate_run  # noqa: E402

from tandem.errors import TandemError  # noqa: E402
from tandem.judge.interval import FEWEST_STARTS  # noqa: E402
from tandem.judge.schema import Verdict  # noqa: E402
from tandem.judge.verdict import JudgeOptions, judge_run  # noqa: E402

MOST_FALSE = 0.065
"""Largest share of reports with a false word: any word in benign worlds and short noise, unreserved beyond a run."""

MOST_CAUTIONED = 0.5
"""Largest share of a benign world's reports that have a caution."""

LEAST_FOUND = 0.99
"""Smallest share of reports that find a true speed-up of 1.5."""

DECIDING = "e2e_ms"
RESERVED = "within one start"
TASK = 20  # runs that one process judges at a time

WORLDS = (
    World(name="plain", kind="benign"),
    World(name="drift 15 %, wave 5 %", kind="benign", drift=0.15, wave=0.05),
    World(name="autocorrelated 5 %", kind="benign", chained_noise=0.05),
    World(name="TTFT tail", kind="benign", first_token_tail=0.05),
    World(name="true 1.5", kind="benign", true_speed_up=1.5, prompt_spread=0.2),
    *(
        World(
            name=f"own {100 * noise:.0f} %, {noise_s:.0f} s", own_noise=noise, own_noise_s=noise_s,
            kind="short noise" if noise_s <= 30 else "beyond a run",  # noqa: PLR2004 - what a run can know of itself
        )
        for noise_s, noises in ((20.0, (0.02, 0.03, 0.05)), (30.0, (0.05,)), (60.0, (0.02, 0.03, 0.05)),
                                (200.0, (0.02, 0.03, 0.05)))
        for noise in noises
    ),
    World(name="starts 3 %, one each", kind="beyond a run", start_spread=0.03),
    World(name=f"starts 3 %, {FEWEST_STARTS} each", kind="beyond a run", start_spread=0.03, restarts=True,
          rounds=FEWEST_STARTS),
    World(name="cold 30 %", kind="beyond a run", cold=0.3),
    World(name="15 % at 4 times", kind="beyond a run", true_speed_up=1.25, slow_share=0.15, slow_times=4.0),
    World(name="2 % at 20 times", kind="beyond a run", true_speed_up=1.25, slow_share=0.02, slow_times=20.0),
)  # fmt: skip


class ReportSummary(NamedTuple):
    """Summary of one verdict.

    Args:
        word: of its headline, with its reservations.
        false_word: whether the headline is false in the world. false_cell: whether a cell is.
        unreserved: whether one of them lacks the reservation `within one start`.
        cautions: names of the checks that caution.
        held, intervals: of E2E, those that hold the truth, and all.
    """

    word: str
    false_word: bool
    false_cell: bool
    unreserved: bool
    cautions: tuple[str, ...]
    held: int
    intervals: int


def summarize_verdict(verdict: Verdict, world: World) -> ReportSummary:
    """Compare a verdict on one variant with the truth of its world."""
    (headline,) = verdict.headlines
    false_words = list_false_words(world)
    false_cells = [cell.evidence for cell in verdict.cells if cell.verdict in false_words]
    false_word = headline.finding in false_words
    ratios = [cell.speed_up for cell in verdict.cells if cell.metric == DECIDING and cell.speed_up is not None]
    return ReportSummary(
        word=headline.verdict,
        false_word=false_word,
        false_cell=bool(false_cells),
        unreserved=(false_word and RESERVED not in headline.verdict) or "across-starts" in false_cells,
        cautions=tuple(check.name for check in verdict.controls.checks if check.result == "caution"),
        held=sum((ratio.low or math.inf) <= world.true_speed_up <= (ratio.high or 0.0) for ratio in ratios),
        intervals=len(ratios),
    )


def list_false_words(world: World) -> frozenset[str]:
    """Return the words of a headline or cell that are not true of a world."""
    if world.slow_share:  # the median is faster and the mean slower, so all but this may be said
        return frozenset({"faster"})
    return frozenset({"slower", "mixed", "faster" if world.true_speed_up == 1 else "same"})


def judge_runs(world: World, seeds: Iterable[int]) -> list[ReportSummary]:
    """Simulate and judge a run of each seed."""
    return [summarize_verdict(judge_run(simulate_run(world, seed), JudgeOptions(), ()), world) for seed in seeds]


class WorldRow(NamedTuple):
    """A world and its reports."""

    world: World
    reports: Sequence[ReportSummary]

    def share(self, field: str) -> float:
        """Return the share of reports in which a field of ReportSummary is true or not empty."""
        return sum(bool(getattr(report, field)) for report in self.reports) / len(self.reports)

    @property
    def false_anywhere(self) -> float:
        """Share of reports with a false word in the headline or a cell, reserved ones included."""
        return sum(report.false_word or report.false_cell for report in self.reports) / len(self.reports)

    @property
    def found(self) -> float:
        """Share of reports whose headline says faster, reserved or not."""
        return sum(report.word.startswith("faster") for report in self.reports) / len(self.reports)

    @property
    def covered(self) -> float:
        """Share of E2E's intervals that hold the truth."""
        return sum(report.held for report in self.reports) / max(sum(report.intervals for report in self.reports), 1)

    @property
    def misses(self) -> frozenset[str]:
        """Columns of the table in which a promise is missed."""
        benign, true_gain = self.world.kind == "benign", self.world.true_speed_up > 1 and not self.world.slow_share
        judged = {
            "anywhere": self.world.kind == "beyond a run" or self.false_anywhere <= MOST_FALSE,
            "unreserved": self.share("unreserved") <= MOST_FALSE,
            "cautions": not benign or self.share("cautions") <= MOST_CAUTIONED,
            "words": not true_gain or self.found >= LEAST_FOUND,
        }
        return frozenset(column for column, kept in judged.items() if not kept)


def measure_worlds(worlds: Sequence[World], seeds: int, first_seed: int) -> Iterator[WorldRow]:
    """Yield the reports of `seeds` runs in each world; all cores are used."""
    numbers = range(first_seed, first_seed + seeds)
    parts = [numbers[begin : begin + TASK] for begin in range(0, seeds, TASK)]
    tasks = [(world, part) for world in worlds for part in parts]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(judge_runs, *zip(*tasks, strict=True))
        for world in worlds:
            yield WorldRow(world, [report for _ in parts for report in next(results)])


def format_table(rows: Sequence[WorldRow]) -> list[str]:
    """Return a table with a line a world; a figure that misses its promise is bold."""
    return [
        "| world | kind | false: headline | anywhere | unreserved | E2E covered | cautions | headlines |",
        "|---|---|---|---|---|---|---|---|",
        *map(_format_row, rows),
    ]


def _format_row(row: WorldRow) -> str:
    count = len(row.reports)
    words = Counter(report.word for report in row.reports)
    checks = Counter(name for report in row.reports for name in report.cautions)
    columns = {
        "world": row.world.name,
        "kind": row.world.kind,
        "headline": f"{row.share('false_word'):.1%}",
        "anywhere": f"{row.false_anywhere:.1%}",
        "unreserved": f"{row.share('unreserved'):.1%}",
        "covered": "-" if row.world.slow_share else f"{row.covered:.1%}",
        "cautions": ", ".join([f"{row.share('cautions'):.0%}", *_format_shares(checks, count)]),
        "words": ", ".join(_format_shares(words, count)),
    }
    misses = row.misses
    cells = (f"**{text}**" if column in misses else text for column, text in columns.items())
    return f"| {' | '.join(cells)} |"


def _format_shares(counts: Counter[str], of: int) -> list[str]:
    return [f"{name} {count / of:.1%}" for name, count in counts.most_common()]


def main() -> int:
    """Print the table; return 1 if a promise is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="runs of a world (default 1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first run's seed (default 0)")
    parser.add_argument("--world", choices=[world.name for world in WORLDS], metavar="NAME", help="this world alone")
    parser.add_argument("--write", action="store_true", help="put the table into its page of docs/")
    options = parser.parse_args()
    if options.write and options.world:
        parser.error("--write takes the table of all worlds: leave --world away")
    begun = time.monotonic()
    worlds = [world for world in WORLDS if options.world in (None, world.name)]
    rows = []
    for row in measure_worlds(worlds, options.seeds, options.seed):
        print(f"{time.monotonic() - begun:.0f} s: {row.world.name}", file=sys.stderr)
        rows.append(row)
    held = not any(row.misses for row in rows)
    head = (
        f"`python benchmarks/worlds.py --seed {options.seed}`, {taken_on()}, {time.monotonic() - begun:.0f} s; "
        f"{options.seeds} seeds a world; promises {'held' if held else '**not held**'}."
    )
    text = "\n".join([head, "", *format_table(rows)])
    print(text)
    if options.write:
        try:
            write_between("worlds", text)
        except TandemError as fault:
            print(f"error: {fault}", file=sys.stderr)
            return fault.exit_code
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
