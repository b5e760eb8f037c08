"""Count the words of whole reports in worlds of a known truth: print Markdown for docs/coverage.md.

    python benchmarks/worlds.py [--scale X] [--seed S] [--world NAME] [--words] [--write]

The program simulates runs of three shapes (world_records.py) and judges them as `tandem bench
report` does. No time of this machine enters: the same seeds give the same table. The exit code is 1
if a promise is missed.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Literal, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a process a core is enough
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from between_marks import write_between
from machine import describe_day
from world_records import (
    DEFAULT_SHAPE,
    FIRST_TOKEN_S,
    NO_SUMMARY,
    QUICK_SHAPE,
    SHAPES,
    STARTS_SHAPE,
    RunShape,
    World,
    simulate_run,
)

from tandem.errors import TandemError
from tandem.judge.schema import MARGIN, Verdict
from tandem.judge.verdict import JudgeOptions, judge_run

MOST_FALSE = 0.065
"""Largest share of reports with a false word."""

MOST_FALSE_QUICK = 0.1
"""The same for --quick in the two worlds where it is promised less."""

SEEDS: Mapping[str, int] = {QUICK_SHAPE.name: 1000, DEFAULT_SHAPE.name: 300, STARTS_SHAPE.name: 300}
"""Runs of a world, by shape."""

LEAST_COVERED = 0.93
"""Smallest share of the pooled intervals that hold a true gain."""

CHANCE_ERRORS = 2.33
"""Standard errors below LEAST_COVERED that chance brings in 1 of 100 figures."""

_NO_DIFFERENCE = 1e-9  # of a log of a true speed-up
RESERVED = "server start"
TASK = 20  # runs that one process judges at a time

Question = Literal["false", "unreserved", "faster", "mixed", "called faster", "more"]
"""What is counted. `false`: reports with a false word in headline, classes or routing.
`unreserved`: those whose false word lacks the reservation of one start. `faster` and `mixed`:
headlines that find the truth. `called faster`: headlines that say faster although the mean is
slower, or although requests fail. `more`: reports that find more requests within the limits."""

_IS_LIMIT_UPPER: Mapping[Question, bool] = {
    "false": True,
    "unreserved": True,
    "faster": False,
    "mixed": False,
    "more": False,
    "called faster": True,
}


@dataclass(frozen=True, kw_only=True)
class WorldRow:
    """A world and what is promised of the reports in it.

    Args:
        world: of the runs.
        question: what is counted.
        limits: largest share, or smallest of what is to be found, by shape; a shape without one is
            listed.
    """

    world: World
    question: Question = "false"
    limits: Mapping[str, float] = field(default_factory=lambda: limit_all(MOST_FALSE))


def limit_all(share: float, **others: float) -> dict[str, float]:
    """Return the same limit for every shape, but for those named: quick, default, starts."""
    limits = {
        QUICK_SHAPE.name: others.get("quick", share),
        DEFAULT_SHAPE.name: others.get("default", share),
        STARTS_SHAPE.name: others.get("starts", share),
    }
    return {name: limit for name, limit in limits.items() if math.isfinite(limit)}


EQUAL_WORLDS = (
    World(name="requests 4 %", request_noise=0.04),
    World(name="requests 20 %", request_noise=0.2),
    World(name="requests 50 %", request_noise=0.5),
    World(name="own 2 %, 20 s", own_noise=0.02, own_noise_s=20.0),
    World(name="own 5 %, 30 s", own_noise=0.05, own_noise_s=30.0),
    World(name="own 10 %, 20 s", own_noise=0.1, own_noise_s=20.0),
    World(name="own 10 %, 30 s", own_noise=0.1, own_noise_s=30.0),
    World(name="drift 15 %, wave 5 %", drift=0.15, wave=0.05),
    World(name="autocorrelated 5 %", chained_noise=0.05),
    World(name="first-token tail", first_token_tail=0.05),
    World(name="request tail", request_tail=0.05),
    World(name="episodes", episodes_per_hour=6),
    World(name="cron", has_cron=True),
    World(name="prompts normal 20 %", prompt_spread=0.2),
)
SKEWED_ROWS = (
    WorldRow(
        world=World(name="prompts exponential 20 %", prompt_spread=0.2, prompt_law="exponential"),
        limits=limit_all(MOST_FALSE, quick=MOST_FALSE_QUICK),
    ),
    WorldRow(world=World(name="prompts of two points", prompt_law="two points"), limits={}),
)
UNKNOWABLE_WORLDS = (
    World(name="starts 3 %", start_spread=0.03),
    World(name="halves, starts 3 %", start_spread=0.03, half_slowness=0.03),
    World(name="cold 30 %", cold=0.3),
    World(name="own 5 %, 200 s", own_noise=0.05, own_noise_s=200.0),
)
"""Noise beyond a run."""


def _list_gain_rows() -> Iterator[WorldRow]:
    """Yield the worlds of a true gain; the limits are those that docs/coverage.md promises."""
    limits: dict[tuple[float, float], dict[str, float]] = {
        (1.1, 0.1): {},
        (1.1, 0.2): {DEFAULT_SHAPE.name: 0.9},
        (1.2, 0.2): {QUICK_SHAPE.name: 0.75, DEFAULT_SHAPE.name: 0.95},
        (1.2, 0.3): {},
        (1.5, 0.2): {DEFAULT_SHAPE.name: 0.99},
        (1.5, 0.3): {},
    }
    for (gain, spread), own_limits in limits.items():
        yield WorldRow(
            world=World(
                name=f"true {gain}, prompts {100 * spread:g} %",
                true_speed_up=gain,
                prompt_spread=spread,
            ),
            question="faster",
            limits=own_limits,
        )


def _list_mixed_rows() -> Iterator[WorldRow]:
    """Yield worlds of classes that differ either way.

    Commit 26bb912b, before one figure led, found these shares on the same runs; 3 points fewer are
    allowed, 6 at `--quick` (docs/decisions/0053-one-figure-with-a-share-of-its-own.md).
    """
    worlds = {
        (0.713, 0.633, 0.72): World(
            name="one class 3 times, one 10 % slower",
            class_speed_ups=(3.0, 1 / 1.1),
            prompt_spread=0.04,
        ),
        (1.0, 1.0, 1.0): World(
            name="one class 1.5 times, one 1/1.5",
            class_speed_ups=(1.5, 1 / 1.5),
            prompt_spread=0.04,
        ),
        (0.913, 1.0, 1.0): World(
            name="one class 3 times, others 10 % slower",
            class_speed_ups=(3.0,),
            other_classes=1 / 1.1,
            prompt_spread=0.04,
        ),
    }
    for (quick, default, starts), world in worlds.items():
        limits = limit_all(default - 0.03, quick=quick - 0.06, starts=starts - 0.03)
        yield WorldRow(world=world, question="mixed", limits=limits)


def _list_rare_rows() -> Iterator[WorldRow]:
    """Yield worlds of few slow or failing requests; limits: what 26bb912b called faster."""
    limits = {
        World(name="10 % at 3 times", slow_share=0.1, slow_times=3.0): limit_all(0.01),
        _describe_failing(0.02): limit_all(21 / 300, quick=0.231, starts=1 / 300),
        _describe_failing(0.03): limit_all(3 / 300, quick=0.211, starts=0.0),
        _describe_failing(0.04): limit_all(0.0, quick=0.153),
        _describe_slow(0.03, 12.0): limit_all(7 / 300, quick=0.156, starts=5 / 300),
        _describe_slow(0.15, 4.0): limit_all(0.0, quick=0.003),
        _describe_slow(0.02, 20.0): limit_all(7 / 300, quick=0.235, starts=4 / 300),
    }
    for world, own_limits in limits.items():
        yield WorldRow(world=world, question="called faster", limits=own_limits)


def _describe_failing(share: float) -> World:
    name = f"{100 * share:g} % slow and failing"
    return World(name=name, true_speed_up=1.25, prompt_spread=0.2, fail_share=share, slow_times=8.0)


def _describe_slow(share: float, times: float) -> World:
    return World(
        name=f"{100 * share:g} % at {times:.0f} times",
        true_speed_up=1.25,
        slow_share=share,
        slow_times=times,
    )


def _list_limit_rows() -> Iterator[WorldRow]:
    """Yield worlds with a limit on TTFT: of equal servers, and of a variant that keeps it more."""
    for noise_name in ("requests 20 %", "own 5 %, 30 s", "own 10 %, 20 s", "first-token tail"):
        (world,) = (world for world in EQUAL_WORLDS if world.name == noise_name)
        spread = math.hypot(world.request_noise, world.own_noise)
        limit_ms = _find_limit_ms(0.8, spread)
        limited_world = replace(world, name=f"limits, {noise_name}", ttft_limit_ms=limit_ms)
        most_quick = MOST_FALSE_QUICK if noise_name == "own 5 %, 30 s" else MOST_FALSE
        yield WorldRow(world=limited_world, limits=limit_all(MOST_FALSE, quick=most_quick))
    spread = 0.5
    for baseline, variant in ((0.75, 0.85), (0.85, 0.95)):
        limit_ms = _find_limit_ms(baseline, spread)
        world = World(
            name=f"limits kept {baseline:.0%}, then {variant:.0%}",
            true_speed_up=_find_limit_ms(variant, spread) / limit_ms,
            request_noise=spread,
            ttft_limit_ms=limit_ms,
        )
        yield WorldRow(world=world, question="more", limits={DEFAULT_SHAPE.name: 0.8})


def _find_limit_ms(share: float, spread: float) -> float:
    """Return the TTFT that a share of requests keeps, their logs normal with this sd."""
    return 1000 * FIRST_TOKEN_S * math.exp(spread * NormalDist().inv_cdf(share))


ROWS: tuple[WorldRow, ...] = (
    *(WorldRow(world=world) for world in EQUAL_WORLDS),
    *_list_limit_rows(),
    *SKEWED_ROWS,
    *_list_gain_rows(),
    *_list_mixed_rows(),
    *_list_rare_rows(),
    *(WorldRow(world=world, question="unreserved") for world in UNKNOWABLE_WORLDS),
)


class ReportSummary(NamedTuple):
    """Summary of one verdict.

    Args:
        word: of its headline, with its reservations.
        false_words: what is false in it, each as `headline faster`, `class slower` or `routing
            saves`.
        is_unreserved: whether one of them lacks the reservation of one start.
        is_covered: whether the pooled interval of E2E holds the truth; None without one.
        attainment: the word on the limits; empty without limits.
    """

    word: str
    false_words: tuple[str, ...]
    is_unreserved: bool
    is_covered: bool | None
    attainment: str = ""

    def answer(self, question: Question) -> bool:
        """Return whether the report counts."""
        if question == "false":
            return bool(self.false_words)
        if question == "unreserved":
            return self.is_unreserved
        if question == "more":
            return self.attainment == "more"
        return self.word.startswith("faster" if question == "called faster" else question)


class SpokenWord(NamedTuple):
    """A verdict's word: headline, class or routing; and whether for one start alone."""

    place: str
    word: str
    is_reserved: bool


def summarize_verdict(verdict: Verdict, world: World) -> ReportSummary:
    """Compare a verdict on one variant with the truth of its world."""
    (headline,) = verdict.headlines
    (load,) = verdict.overall
    class_names = list(dict.fromkeys(cell.class_ for cell in verdict.cells))
    truths = {name: world.find_class_speed_up(place) for place, name in enumerate(class_names)}
    truth = math.exp(sum(map(math.log, truths.values())) / len(truths))
    has_slow_requests = bool(world.slow_share or world.fail_share)
    false_words = [] if has_slow_requests else list(_list_false_words(verdict, truths))

    pooled = load.deciding.speed_up
    is_covered = None
    if not has_slow_requests and pooled is not None and pooled.low and pooled.high:
        is_covered = pooled.low <= truth <= pooled.high
    return ReportSummary(
        word=headline.verdict,
        false_words=tuple(f"{spoken.place} {spoken.word}" for spoken in false_words),
        is_unreserved=not all(spoken.is_reserved for spoken in false_words),
        is_covered=is_covered,
        attainment=verdict.attainment[0].verdict if verdict.attainment else "",
    )


def _list_false_words(verdict: Verdict, truths: Mapping[str, float]) -> Iterator[SpokenWord]:
    """Yield the words of a verdict that are not true, where no request is slow by itself."""
    (headline,) = verdict.headlines
    for cell in verdict.cells:
        if cell.verdict in list_untrue_words(truths[cell.class_]):
            yield SpokenWord("class", cell.verdict, cell.evidence == "one-start")

    speed_ups = set(truths.values())
    for row in verdict.attainment:
        if row.verdict in {"more", "fewer"} and speed_ups == {1.0}:
            yield SpokenWord("limits", row.verdict, row.evidence == "one-start")

    # so `mixed` is true, and routing saves against either arm
    has_unlike_classes = len(speed_ups) > 1
    untrue_words = {"same"} if has_unlike_classes else list_untrue_words(min(speed_ups))
    if headline.finding in untrue_words:
        yield SpokenWord("headline", headline.finding, RESERVED in headline.verdict)

    savings = itertools.chain.from_iterable(route.savings for route in verdict.routing)
    for saving in savings:
        saves_truly = has_unlike_classes or (
            min(speed_ups) > 1 and saving.against == verdict.baseline
        )
        if saving.word == "costs" or (saving.word == "saves" and not saves_truly):
            yield SpokenWord("routing", saving.word, saving.evidence == "one-start")


def list_untrue_words(true_speed_up: float) -> frozenset[str]:
    """Return the words that are not true of a speed-up."""
    if abs(math.log(true_speed_up)) < _NO_DIFFERENCE:
        return frozenset({"faster", "slower", "mixed"})
    contrary_word = "slower" if true_speed_up > 1 else "faster"
    is_beyond_margin = abs(math.log(true_speed_up)) > math.log1p(MARGIN)
    return frozenset({contrary_word, "mixed"} | ({"same"} if is_beyond_margin else set()))


def judge_runs(world: World, shape: RunShape, seeds: Iterable[int]) -> list[ReportSummary]:
    """Simulate and judge a run of each seed."""
    options = JudgeOptions()
    return [
        summarize_verdict(judge_run(simulate_run(world, seed, shape), options, NO_SUMMARY), world)
        for seed in seeds
    ]


class ShapeReports(NamedTuple):
    """The reports of a world on runs of one shape."""

    row: WorldRow
    shape: RunShape
    reports: Sequence[ReportSummary]

    @property
    def share(self) -> float:
        """Share of the reports that count."""
        return sum(report.answer(self.row.question) for report in self.reports) / len(self.reports)

    @property
    def error(self) -> float:
        """Standard error of the share (binomial)."""
        return math.sqrt(self.share * (1 - self.share) / len(self.reports))

    @property
    def coverage(self) -> float | None:
        """Share of the pooled intervals that hold the truth; None without any."""
        covered = [report.is_covered for report in self.reports if report.is_covered is not None]
        return sum(covered) / len(covered) if covered else None

    @property
    def misses_promise(self) -> bool:
        """Whether the share, or the coverage in a world of a true gain, is beyond its limit."""
        error = math.sqrt(LEAST_COVERED * (1 - LEAST_COVERED) / len(self.reports))
        least_covered = LEAST_COVERED - CHANCE_ERRORS * error
        if self.row.question == "faster" and (self.coverage or 0.0) < least_covered:
            return True
        limit = self.row.limits.get(self.shape.name)
        if limit is None:
            return False
        return self.share > limit if _IS_LIMIT_UPPER[self.row.question] else self.share < limit


def measure_rows(
    rows: Sequence[WorldRow], first_seed: int, scale: float = 1.0
) -> Iterator[tuple[ShapeReports, ...]]:
    """Yield the reports of each world, by shape; all cores are used.

    Args:
        rows: the worlds.
        first_seed: of each world.
        scale: of the numbers of runs in SEEDS.
    """
    tasks = []
    for row, shape in itertools.product(rows, SHAPES):
        end = first_seed + max(1, round(scale * SEEDS[shape.name]))
        begins = range(first_seed, end, TASK)
        tasks += [(row, shape, range(begin, min(begin + TASK, end))) for begin in begins]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        worlds = [row.world for row, _, _ in tasks]
        parts = pool.map(
            judge_runs, worlds, [task[1] for task in tasks], [task[2] for task in tasks]
        )
        for row, results in itertools.groupby(
            zip(tasks, parts, strict=True), key=lambda result: result[0][0]
        ):
            reports: dict[str, list[ReportSummary]] = defaultdict(list)
            for (_, shape, _), part in results:
                reports[shape.name] += part
            yield tuple(ShapeReports(row, shape, reports[shape.name]) for shape in SHAPES)


def format_table(rows: Sequence[tuple[ShapeReports, ...]]) -> list[str]:
    """Return a table with a line a world; a figure that misses its promise is bold."""
    lines = [
        f"| world | counted | {' | '.join(shape.name for shape in SHAPES)} |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        first = row[0].row
        cells = [first.world.name, first.question, *map(_format_reports, row)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _format_reports(reports: ShapeReports) -> str:
    text = f"{reports.share:.1%} \u00b1 {100 * reports.error:.1f}"
    if reports.misses_promise:
        text = f"**{text}**"
    return text if reports.coverage is None else f"{text}; {reports.coverage:.1%}"


def main() -> int:
    """Print the table; return 1 if a promise is missed."""
    options = _read_options()
    begun_s = time.monotonic()
    selected_rows = [row for row in ROWS if not options.world or row.world.name in options.world]
    if options.ttft_limit_ms is not None:
        selected_rows = [
            replace(row, world=replace(row.world, ttft_limit_ms=options.ttft_limit_ms))
            for row in selected_rows
        ]
    measured_rows = []
    for row in measure_rows(selected_rows, options.seed, options.scale):
        print(f"{time.monotonic() - begun_s:.0f} s: {format_table([row])[-1]}", file=sys.stderr)
        if options.words:
            print(*_describe_words(row), sep="\n", file=sys.stderr)
        measured_rows.append(row)

    has_missed = any(
        reports.misses_promise for reports in itertools.chain.from_iterable(measured_rows)
    )
    counts = ", ".join(
        f"{len(reports.reports)} {reports.shape.name}" for reports in measured_rows[0]
    )
    head = (
        f"`python benchmarks/worlds.py --seed {options.seed} --scale {options.scale:g}`, "
        f"{describe_day()}, {time.monotonic() - begun_s:.0f} s; "
        f"runs of a world: {counts}; promises {'**not held**' if has_missed else 'held'}."
    )
    text = "\n".join([head, "", *format_table(measured_rows)])
    print(text)
    if options.write:
        try:
            write_between("worlds", text)
        except TandemError as fault:
            print(f"error: {fault}", file=sys.stderr)
            return fault.exit_code
    return int(has_missed)


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [row.world.name for row in ROWS]
    parser.add_argument(
        "--scale", type=float, default=1.0, metavar="X", help="X times as many runs (default 1)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="the first run's seed (default 0)"
    )
    parser.add_argument(
        "--world",
        choices=names,
        action="append",
        metavar="NAME",
        help="this world alone; repeatable",
    )
    parser.add_argument(
        "--ttft-limit-ms",
        type=float,
        metavar="MS",
        help="a limit of goodput in every world: what its tests cost the others",
    )
    parser.add_argument("--words", action="store_true", help="print the words of each world too")
    parser.add_argument("--write", action="store_true", help="put the table into its page of docs/")
    options = parser.parse_args()
    if options.write and (options.world or options.ttft_limit_ms is not None):
        parser.error("--write takes the table of all worlds: drop --world and --ttft-limit-ms")
    return options


def _describe_words(row: Sequence[ShapeReports]) -> Iterator[str]:
    """Yield the headlines and the false words of a world, by shape."""
    for reports in row:
        headlines = Counter(report.word for report in reports.reports)
        false_words = Counter(
            itertools.chain.from_iterable(set(report.false_words) for report in reports.reports)
        )
        yield f"  {reports.shape.name}: {dict(headlines.most_common())}; {dict(false_words)}"


if __name__ == "__main__":
    sys.exit(main())
