"""Count how often the usual ways to compare two servers are wrong: a table of docs/coverage.md.

    python benchmarks/usual_ways.py [--runs N] [--seed S] [--write]

Tandem's report and two usual ways see the same simulated runs of a known truth (world_records.py).
No time of this machine enters: the same seeds give the same table.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import worlds
from between_marks import write_between
from machine import describe_day
from world_records import DEFAULT_SHAPE, NO_SUMMARY, Values, World, simulate_run

from tandem.bench.figures.request_table import RequestTable
from tandem.errors import TandemError
from tandem.judge.schema import MARGIN
from tandem.judge.verdict import JudgeOptions, judge_run

TABLE = "usual ways"
REQUESTS_OF_THE_POST = 8
NORMAL_ERRORS = 1.96  # standard errors to each side of a 95 % interval
NAMES = ("requests 20 %", "own 5 %, 30 s", "prompts normal 20 %", "true 1.1, prompts 20 %")
WORLDS = tuple(row.world for row in worlds.ROWS if row.world.name in NAMES)


class Answer(NamedTuple):
    """A way's answer for one run.

    Args:
        is_false: whether its word is untrue.
        is_covered: whether its 95 % interval holds the truth; None without an interval.
    """

    is_false: bool
    is_covered: bool | None


def ask_tandem(table: RequestTable, world: World) -> Answer:
    """Answer with the headline of a report, and with the interval over all prompts."""
    summary = worlds.summarize_verdict(judge_run(table, JudgeOptions(), NO_SUMMARY), world)
    is_false = any(word.startswith("headline") for word in summary.false_words)
    return Answer(is_false, summary.is_covered)


def resample_requests(table: RequestTable, world: World) -> Answer:
    """Count every pair of requests as a prompt of its own: mean of the logs and its error."""
    base_ms, spec_ms = pair_requests(table)
    logs = np.log(base_ms / spec_ms)
    half_width = NORMAL_ERRORS * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    low = float(logs.mean()) - half_width
    high = float(logs.mean()) + half_width
    truth = math.log(world.true_speed_up)
    return Answer(_is_untrue(low > 0, high < 0, world), low <= truth <= high)


def compare_few(table: RequestTable, world: World) -> Answer:
    """Compare medians of each server's first requests, as the post does, with a margin alone."""
    base_ms, spec_ms = pair_requests(table)
    few = slice(REQUESTS_OF_THE_POST)
    log = math.log(np.median(base_ms[few]) / np.median(spec_ms[few]))
    margin = math.log1p(MARGIN)
    return Answer(_is_untrue(log > margin, log < -margin, world), None)


def pair_requests(table: RequestTable) -> tuple[Values, Values]:
    """Return the E2E of baseline and variant in ms, paired by round and prompt."""
    variant_rounds = table.round[table.arm == 1]
    columns = []
    for arm in range(2):
        places = np.flatnonzero((table.arm == arm) & np.isin(table.round, variant_rounds))
        order = np.lexsort((table.prompt[places], table.round[places]))
        columns.append(table.figures["e2e_ms"][places[order]])
    return columns[0], columns[1]


def _is_untrue(is_faster: bool, is_slower: bool, world: World) -> bool:
    """Return whether a way's word is untrue in its world."""
    words = worlds.list_untrue_words(world.true_speed_up)
    return (is_faster and "faster" in words) or (is_slower and "slower" in words)


WAYS: Mapping[str, Callable[[RequestTable, World], Answer]] = {
    "Tandem": ask_tandem,
    "by request": resample_requests,
    "medians of 8": compare_few,
}


def measure_world(world: World, seeds: Sequence[int]) -> str:
    """Return the line of a world: each way's share of false words and of intervals that hold."""
    answers: dict[str, list[Answer]] = {way: [] for way in WAYS}
    for seed in seeds:
        table = simulate_run(world, seed, DEFAULT_SHAPE)
        for way, ask in WAYS.items():
            answers[way].append(ask(table, world))

    cells = [_format_answers(answers[way]) for way in WAYS]
    return f"| {world.name} | {' | '.join(cells)} |"


def _format_answers(answers: Sequence[Answer]) -> str:
    false = sum(answer.is_false for answer in answers) / len(answers)
    covered = [answer.is_covered for answer in answers if answer.is_covered is not None]
    if not covered:
        return f"{false:.1%}, none"
    return f"{false:.1%}, {sum(covered) / len(covered):.1%}"


def format_table(runs: int, first_seed: int) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| world | {' | '.join(f'{way}: false, covered' for way in WAYS)} |"
    yield f"|---|{'---|' * len(WAYS)}"
    seeds = range(first_seed, first_seed + runs)
    for world in WORLDS:
        yield measure_world(world, seeds)


def main() -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=300, help="of each world (default 300)")
    parser.add_argument("--seed", type=int, default=0, help="the first run's seed (default 0)")
    parser.add_argument("--write", action="store_true", help="put the table into its page of docs/")
    options = parser.parse_args()
    head = f"`python benchmarks/usual_ways.py --runs {options.runs} --seed {options.seed}`"
    lines = [f"{head}, {describe_day()}.", "", *format_table(options.runs, options.seed)]
    print(*lines, sep="\n")
    if options.write:
        try:
            write_between(TABLE, "\n".join(lines))
        except TandemError as fault:
            print(f"error: {fault}", file=sys.stderr)
            return fault.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
