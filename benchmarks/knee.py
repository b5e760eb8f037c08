"""How often `--knee` is right, over simulators of known capacity in virtual time: docs/knee.md.

python benchmarks/knee.py [--runs N] [--seed S] [--world NAME] [--write]

Each world has two servers; the second is the first with every time divided. The truth of a server
is the highest rate at which 95 % of 100,000 requests keep the limit.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from between_marks import write_between
from machine import describe_day
from virtual_engine import run_engine

from tandem.bench.plan.knee_search import (
    GOODPUT_SHARE,
    KneeSearch,
    KneeTurn,
    KneeTurnCount,
    count_requests,
    next_count,
)
from tandem.judge.knee import KneeFinding, KneeRange, find_knees
from tandem.simulator.engine import EngineRequest
from tandem.simulator.settings import PromptClassSettings, SimulatorSettings

TRUTH_REQUESTS = 100_000
TRUTH_BRACKET = 1.005
COARSE_BRACKET = 3
LARGEST_ERROR = math.log(1.1)
LEAST_WITHIN = 0.90
LEAST_COVERED = 0.85
_CLASSES = {
    "default": PromptClassSettings(output_tokens=60, output_spread=30),
    "long": PromptClassSettings(output_tokens=120, output_spread=60),
}
_PROMPT_TOKENS = (50, 400)


class KneeWorld(NamedTuple):
    """Two servers and a limit.

    Args:
        name: of the world.
        server: the first server.
        speed: by which every time of the second is divided.
        limit_ms: of TTFT, or of TPOT.
        by_tpot: whether the limit is of TPOT.
    """

    name: str
    server: SimulatorSettings
    speed: float
    limit_ms: float
    by_tpot: bool = False

    def list_servers(self) -> dict[str, SimulatorSettings]:
        """Return the servers by name."""
        return {"a": self.server, "b": self.server.scale_time(self.speed)}

    def is_good(self, request: EngineRequest) -> bool:
        """Return whether an ended request kept the limit."""
        taken_s = request.first_s - request.arrived_s
        if self.by_tpot:
            taken_s = (request.end_s - request.first_s) / max(request.output_tokens - 1, 1)
        return 1000 * taken_s <= self.limit_ms


WORLDS = (
    KneeWorld(
        "cliff: a batch of 16, TTFT 500 ms",
        SimulatorSettings(
            classes=_CLASSES, step_ms=(20.0,), prefill_base_ms=30, max_num_seqs=16, jitter=0.1
        ),
        speed=1.6,
        limit_ms=500,
    ),
    KneeWorld(
        "flat: a batch of 64 that slows every step, TPOT 20 ms",
        SimulatorSettings(
            classes=_CLASSES,
            step_ms=tuple(10 + size / 2 for size in range(64)),
            prefill_base_ms=20,
            prefill_ms_per_token=0.05,
            max_num_seqs=64,
            jitter=0.1,
        ),
        speed=1.2,
        limit_ms=20,
        by_tpot=True,
    ),
    KneeWorld(
        "flat and slow: a batch of 4, TTFT 1 s",
        SimulatorSettings(classes=_CLASSES, step_ms=(45.0,), max_num_seqs=4, jitter=0.05),
        speed=1.6,
        limit_ms=1000,
    ),
)


def draw_requests(
    settings: SimulatorSettings, rate_per_s: float, seed: str
) -> Iterator[EngineRequest]:
    """Yield endless Poisson arrivals; one seed gives the same prompts and gaps at every rate."""
    generator = random.Random(seed)  # noqa: S311 - repeatable, no secret
    at_s = 0.0
    for number in itertools.count(1):
        at_s += generator.expovariate(1) / rate_per_s
        class_ = generator.choice(list(settings.classes))
        own = settings.classes[class_]
        tokens = own.output_tokens + generator.randint(-own.output_spread, own.output_spread)
        yield EngineRequest(number, class_, generator.randint(*_PROMPT_TOKENS), tokens, at_s)


def run_turn(
    world: KneeWorld, settings: SimulatorSettings, turn: KneeTurn, seed: str
) -> KneeTurnCount:
    """Send one turn in virtual time, from an idle server, by the rules of a measured turn."""
    sent: list[EngineRequest] = []
    ended = set[int]()

    end = next_count(0)

    def is_over() -> bool:
        nonlocal end
        while len(sent) >= turn.warm_up + end:
            rest = sent[turn.warm_up : turn.warm_up + end]
            if not ended.issuperset(request.number for request in reversed(rest)):
                return False
            if count_requests(list(map(world.is_good, rest))) is not None:
                return True
            end = next_count(end + 1)
        return False

    def send_requests() -> Iterator[EngineRequest]:
        for request in draw_requests(settings, turn.rate_per_s, seed):
            if is_over():
                return
            sent.append(request)
            yield request

    own_settings = settings.model_copy(update={"seed": random.Random(seed).getrandbits(31)})  # noqa: S311
    for _, requests in run_engine(own_settings, send_requests(), max_steps=4096):
        ended.update(request.number for request in requests)
    rest = sent[turn.warm_up :]
    counted = count_requests(list(map(world.is_good, rest))) or 0
    seconds = [request.end_s - request.arrived_s for request in rest[:counted]]
    good = sum(map(world.is_good, rest[:counted]))
    return KneeTurnCount(turn, counted, good, sum(seconds) / counted)


def search_knees(world: KneeWorld, seed: int) -> tuple[KneeFinding, int]:
    """Return what a whole run finds, and its counted requests of an arm."""
    servers = world.list_servers()
    search = KneeSearch(arms=tuple(servers), share=GOODPUT_SHARE, first_rates={})
    counts: list[KneeTurnCount] = []
    while (turn := search.next_turn(counts)) is not None:
        place = f"{seed}/{turn.round}/{turn.slot}"
        counts.append(run_turn(world, servers[turn.arm], turn, place))
    finding = find_knees(tuple(servers), counts, GOODPUT_SHARE, {})
    return finding, sum(count.counted + count.turn.warm_up for count in counts) // len(servers)


def find_true_knee(world: KneeWorld, settings: SimulatorSettings) -> float:
    """Return the highest rate at which a long virtual run keeps the share."""
    low, high = 0.05, 100.0
    while high / low > TRUTH_BRACKET:
        rate_per_s = math.sqrt(low * high)
        # a short run tells what is far from the knee
        count = TRUTH_REQUESTS if high / low < COARSE_BRACKET else TRUTH_REQUESTS // 20
        requests = itertools.islice(draw_requests(settings, rate_per_s, "truth"), count)
        good = 0
        for _, ended in run_engine(settings, requests, max_steps=4096):
            good += sum(map(world.is_good, ended))
        if good >= GOODPUT_SHARE * count:
            low = rate_per_s
        else:
            high = rate_per_s
    return math.sqrt(low * high)


def check_estimate(estimate: KneeRange | None, truth: float) -> tuple[bool, bool]:
    """Return whether an estimate is within 10 % of the truth, and whether its interval holds it."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return False, False
    is_within = abs(math.log(estimate.value / truth)) <= LARGEST_ERROR
    return is_within, estimate.low <= truth <= estimate.high


HEAD = (
    (
        "| world | knee of a | of b | ratio | requests an arm | knee within 10 % | in its"
        " interval | ratio within 10 % | in its interval |"
    ),
    "|---|---|---|---|---|---|---|---|---|",
)


def measure_world(world: KneeWorld, seeds: Sequence[int]) -> tuple[str, bool]:
    """Return the row of a world, and whether its shares hold; a run without a knee is a miss."""
    truths = [find_true_knee(world, settings) for settings in world.list_servers().values()]
    knee_checks: list[tuple[bool, bool]] = []
    ratio_checks: list[tuple[bool, bool]] = []
    requests = 0
    for seed in seeds:
        finding, sent = search_knees(world, seed)
        requests += sent
        for knee, truth in zip(finding.arms, truths, strict=True):
            knee_checks.append(check_estimate(knee.rate_per_s, truth))
        ratio = finding.ratios[0].ratio if finding.ratios else None
        ratio_checks.append(check_estimate(ratio, truths[1] / truths[0]))

    cells = [world.name, *(f"{truth:.2f}" for truth in truths), f"{truths[1] / truths[0]:.2f}"]
    cells.append(f"{requests / len(seeds):,.0f}")
    is_held = True
    for checks in (knee_checks, ratio_checks):
        within, covered = (sum(column) / len(checks) for column in zip(*checks, strict=True))
        cells += [f"{within:.1%}", f"{covered:.1%}"]
        is_held &= within >= LEAST_WITHIN and covered >= LEAST_COVERED
    return f"| {' | '.join(cells)} |", is_held


def main() -> int:
    """Print the table; return 1 if a share is below its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="of each world (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="of the first run (default 0)")
    parser.add_argument("--world", action="append", help="only worlds whose name begins so")
    parser.add_argument("--write", action="store_true", help="put the table into docs/knee.md")
    options = parser.parse_args()
    lines = [
        (
            f"`python benchmarks/knee.py --runs {options.runs} --seed {options.seed}`,"
            f" {describe_day()}:"
        ),
        "",
        *HEAD,
    ]
    has_missed = False
    prefixes = tuple(options.world or ("",))
    for world in WORLDS:
        if not world.name.startswith(prefixes):
            continue
        row, is_held = measure_world(world, range(options.seed, options.seed + options.runs))
        print(row, file=sys.stderr, flush=True)
        has_missed |= not is_held
        lines.append(row)
    text = "\n".join(lines)
    print(text)
    if options.write:
        write_between("knee", text)
    return int(has_missed)


if __name__ == "__main__":
    sys.exit(main())
