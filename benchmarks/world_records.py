"""Records of runs in worlds of known truth: a simulator apart from `tandem.simulator`, no HTTP.

A run has the shape of `tandem bench run --quick`, of its defaults, or of the defaults with six
starts. The bench's own plan gives the requests and their order, CONCURRENCY workers send them, and
a clock advances. A request is work for its server: FIRST_TOKEN_S, then TOKEN_S a token. A world
changes the work of a request, or the speed of a server at a moment. So noise of T seconds touches
every request that runs in them, one or a hundred.

Each arm is one server; the control arm is the baseline's server once more. Every answer is the same
in both arms.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import signal

from tandem.bench.figures.request_table import UNKNOWN, PromptKey, RequestTable
from tandem.bench.figures.summary import RecordSummary
from tandem.bench.plan.request_plan import RunPlan, plan_blocks
from tandem.bench.plan.run_size import DEFAULT_SIZE, QUICK_SIZE, RunSize
from tandem.bench.plan.schedule import CONTROL_SUFFIX, FEWEST_ROUNDS, LoadLevel
from tandem.bench.records import manifest
from tandem.bench.suites import suite
from tandem.judge.interval import FEWEST_STARTS

Values = NDArray[np.float64]
Codes = NDArray[np.intp]

FIRST_TOKEN_S = 0.5
TOKEN_S = 0.045
(CONCURRENCY,) = DEFAULT_SIZE.concurrency or ()
ARMS = ("base", "spec")
HALVES = ("first half", "second half")

SHORTEST_ANSWER = 0.3
"""Least share of its limit that an answer fills; the shares are uniform from here to 1."""

CHAIN = 0.9
"""Correlation of a request with the next one, in a world whose noise goes from request to
request."""

COLD_SHARE = 0.1
"""Share of the run after which a cold server is warm."""

LONGEST_FIRST_TOKEN = 100.0
"""Largest factor of a heavy tail on a first token: 50 s, well inside of the time-out."""

LONGEST_REQUEST = 20.0
"""Largest factor of a heavy tail on a whole request."""

TAIL_INDEX = 1.5
"""Index of the Pareto law of a heavy tail on a whole request: it has a mean and no variance."""

EPISODE_S = 20.0
EPISODE_TIMES = 3.0
"""An episode of other work on the machine: how long it lasts, and how many times slower both
servers are."""

CRON_PERIOD_S = 60.0
CRON_S = 5.0
CRON_TIMES = 2.0
"""A job of the clock: how often it runs, how long, and how many times slower both servers are."""

FAST_QUARTER = 2.0
"""Speed-up of a quarter of the prompts in a world of two points; the others make up for it."""

ORDERS = 32
"""Orders of requests: a run's seed chooses one, because to draw an order takes longer than to
simulate a run."""

_STEP_S = 1.0  # of the clocks' grid
_ANSWERS_SEED = 20_261_122


PromptLaw = Literal["normal", "exponential", "two points"]


@dataclass(frozen=True, kw_only=True)
class RunShape:
    """What is measured.

    Args:
        name: in a word or two.
        size: prompts, answers and load.
        rounds: without the control round.
        restarts: whether each round has a new start of each server.
    """

    name: str
    size: RunSize
    rounds: int
    restarts: bool = False


QUICK_SHAPE = RunShape(name="--quick", size=QUICK_SIZE, rounds=FEWEST_ROUNDS)
DEFAULT_SHAPE = RunShape(name="default", size=DEFAULT_SIZE, rounds=FEWEST_ROUNDS)
STARTS_SHAPE = RunShape(name="six starts", size=DEFAULT_SIZE, rounds=FEWEST_STARTS, restarts=True)
SHAPES = (QUICK_SHAPE, DEFAULT_SHAPE, STARTS_SHAPE)
# a simulated table lacks columns that a summary takes, and a verdict takes its notes alone
NO_SUMMARY = RecordSummary(
    arms=(),
    simulated=True,
    records=0,
    cells=(),
    metrics=(),
    requests=(),
    errors=(),
    content=(),
    suspects=(),
    notes=(),
)


@dataclass(frozen=True, kw_only=True)
class World:
    """Behavior of two servers and their machine; the servers are alike except for the knobs.

    Args:
        name: in a few words.
        true_speed_up: of the variant, the geometric mean over prompts.
        class_speed_ups: further factors of the first classes of the suite, in its order.
        other_classes: the further factor of the classes that `class_speed_ups` does not reach.
        prompt_spread: sd over prompts of the log of the speed-up.
        prompt_law: its distribution, of mean 0. `two points` has no spread of its own: a quarter of
            the prompts is FAST_QUARTER times as fast.
        request_noise: sd of the log of each request's time.
        drift: log of how much slower or faster the machine is at the end than at the begin.
        wave: log amplitude of a slow wave over it.
        chained_noise: sd of a log factor on both arms' requests, CHAIN correlated from request to
            request.
        request_tail: share of requests of both arms with a heavy tail.
        first_token_tail: share of requests whose first token takes 10 times as long or more (a
            Pareto law).
        own_noise: sd of the log of each server's own Ornstein-Uhlenbeck noise.
        own_noise_s: its time constant.
        episodes_per_hour: of other work on the machine.
        has_cron: whether the machine has a job of the clock.
        start_spread: sd of the log factor that each start of a server has.
        half_slowness: log by which a server is slower on the second half of its host. The arms run
            on a half each, and change halves where they start again. Records then name the half.
        cold: share by which the variant is slower at the begin of the run.
        slow_share: share of the variant's requests that take `slow_times` as long.
        fail_share: share of the variant's requests that take `slow_times` as long and fail.
        ttft_limit_ms: of a good request; None for a run without limits.
    """

    name: str
    true_speed_up: float = 1.0
    class_speed_ups: tuple[float, ...] = ()
    other_classes: float = 1.0
    prompt_spread: float = 0.0
    prompt_law: PromptLaw = "normal"
    request_noise: float = 0.02
    drift: float = 0.0
    wave: float = 0.0
    chained_noise: float = 0.0
    request_tail: float = 0.0
    first_token_tail: float = 0.0
    own_noise: float = 0.0
    own_noise_s: float = 1.0
    episodes_per_hour: float = 0.0
    has_cron: bool = False
    start_spread: float = 0.0
    half_slowness: float = 0.0
    cold: float = 0.0
    slow_share: float = 0.0
    fail_share: float = 0.0
    slow_times: float = 1.0
    ttft_limit_ms: float | None = None

    def find_class_speed_up(self, place: int) -> float:
        """Return the true speed-up of a class, by its place in the suite."""
        is_named = place < len(self.class_speed_ups)
        own = self.class_speed_ups[place] if is_named else self.other_classes
        return self.true_speed_up * own


class RequestPlan(NamedTuple):
    """The requests of a run in the order they are sent. Columns have one value a request.

    Args:
        run: the manifest.
        prompts: the prompts of the codes.
        arm: code of ARMS, 2 the control.
        server: code of ARMS of the server that gets the request.
        class_, prompt, round, slot: as in Observations.
        tokens: of the answer.
        turns: first request of each turn, and the number of all requests.
        length_s: of the run without disturbances.
    """

    run: manifest.RunManifest
    prompts: tuple[PromptKey, ...]
    arm: Codes
    server: Codes
    class_: Codes
    prompt: Codes
    round: Codes
    slot: Codes
    tokens: Values
    turns: tuple[int, ...]
    length_s: float


class RequestWork(NamedTuple):
    """Work of each request in seconds: to its first token, then to its last; and if it fails."""

    first_s: Values
    rest_s: Values
    is_failed: NDArray[np.bool_]


class RequestTimes(NamedTuple):
    """When each request was sent, and its first and last token, in seconds from run begin."""

    begin_s: Values
    first_s: Values
    end_s: Values


class ServerClock(NamedTuple):
    """Work of a server up to each moment of a grid, both in seconds and rising."""

    time_s: Values
    done_s: Values

    def find_end(self, begin_s: float, work_s: float) -> float:
        """Return when work that begins at a moment ends.

        Raises:
            OverflowError: the end is beyond the grid, where the world is not known.
        """
        done_s = np.interp(begin_s, self.time_s, self.done_s) + work_s
        if done_s > self.done_s[-1]:
            raise OverflowError(
                f"a run took longer than the {self.time_s[-1]:.0f} s that its world was drawn for"
            )
        return float(np.interp(done_s, self.done_s, self.time_s))


def simulate_run(world: World, seed: int, shape: RunShape = DEFAULT_SHAPE) -> RequestTable:
    """Return the requests of one run in a world; the same seed gives the same run."""
    rng = np.random.default_rng([seed, *world.name.encode()])
    plan = plan_requests(shape, seed % ORDERS)
    work = draw_work(world, plan, shape, rng)
    longest_s = 1.5 * _bound_length(plan, work.first_s + work.rest_s)
    clocks = draw_clocks(world, plan.length_s, longest_s, rng)
    times = time_requests(plan, work.first_s, work.rest_s, clocks)
    order = np.argsort(times.end_s, kind="stable")  # as a run writes its records
    table = _build_observations(shape, plan, order, times, work.is_failed)
    if world.half_slowness:
        table = replace(table, placements=HALVES, placement=find_halves(plan, shape)[order])
    if world.ttft_limit_ms is None:
        return table
    run = msgspec.structs.replace(table.run, goodput={"ttft_ms": world.ttft_limit_ms})
    return replace(table, run=run)


@lru_cache(maxsize=3 * ORDERS)
def plan_requests(shape: RunShape, seed: int) -> RequestPlan:
    """Return the requests of a run of some shape from the suite `real`.

    Args:
        shape: of the run.
        seed: of every order. The prompts and the lengths of their answers are always the same.
    """
    (real,) = shape.size.narrow_suites([suite.load_suite("real")])
    run_manifest = _build_manifest(real, shape, seed)
    plan = RunPlan(
        manifest=run_manifest, blocks=plan_blocks(run_manifest, [real], shape.size.concurrency)
    )
    entries = list(itertools.chain.from_iterable(block.entries for block in plan.blocks))
    codes = {entry.prompt.id: code for code, entry in enumerate(entries)}
    arms = {name: code for code, name in enumerate((*ARMS, plan.control_arm))}

    turns = list(plan.turns())
    rows = []
    for turn in turns:
        place = (arms[turn.arms[0]], real.classes.index(turn.block.class_))
        rows += [
            (*place, codes[item.entry.prompt.id], turn.round, turn.slot) for item in turn.items
        ]
    arm, class_, prompt, round_, slot = np.array(rows).T.astype(np.intp)

    shares = np.random.default_rng(_ANSWERS_SEED).uniform(SHORTEST_ANSWER, 1, len(entries))
    tokens = np.ceil(shares * [entry.max_tokens for entry in entries])
    requests = RequestPlan(
        run=msgspec.structs.replace(run_manifest, plan=manifest.PlanTotals(requests=len(rows))),
        prompts=tuple(PromptKey("real", name) for name in codes),
        arm=arm,
        server=arm % len(ARMS),
        class_=class_,
        prompt=prompt,
        round=round_,
        slot=slot,
        tokens=tokens[prompt],
        turns=(0, *np.cumsum([len(turn.items) for turn in turns]).tolist()),
        length_s=0.0,
    )
    return requests._replace(length_s=_measure_length(requests))


def _measure_length(plan: RequestPlan) -> float:
    """Return how long a run takes without disturbances."""
    first_s = np.full(len(plan.arm), FIRST_TOKEN_S)
    rest_s = TOKEN_S * (plan.tokens - 1)
    steady = np.array([0.0, _bound_length(plan, first_s + rest_s)])
    times = time_requests(plan, first_s, rest_s, [ServerClock(steady, steady)] * len(ARMS))
    return float(times.end_s.max())


def draw_work(
    world: World, plan: RequestPlan, shape: RunShape, rng: np.random.Generator
) -> RequestWork:
    """Return the work of each request."""
    log = _draw_noise(world, plan, shape, rng)
    count = len(log)
    draws = rng.random(count)
    is_variant = plan.server == 1
    log[is_variant & (draws < world.slow_share + world.fail_share)] += math.log(world.slow_times)

    if world.request_tail:
        is_tail = rng.random(count) < world.request_tail
        times = np.minimum(1 + rng.pareto(TAIL_INDEX, count), LONGEST_REQUEST)
        log += np.where(is_tail, np.log(times), 0.0)
    first_times = np.ones(count)
    if world.first_token_tail:
        index = -math.log10(world.first_token_tail)
        first_times = np.minimum(1 + rng.pareto(index, count), LONGEST_FIRST_TOKEN)
    first_s = FIRST_TOKEN_S * first_times * np.exp(log)
    return RequestWork(
        first_s, TOKEN_S * (plan.tokens - 1) * np.exp(log), is_variant & (draws < world.fail_share)
    )


def _draw_noise(
    world: World, plan: RequestPlan, shape: RunShape, rng: np.random.Generator
) -> Values:
    """Return the log of each request's factor by noise, true speed-up and start."""
    count = len(plan.arm)
    log = world.request_noise * rng.standard_normal(count)
    log += world.chained_noise * draw_chain(count, CHAIN, rng)

    gains = draw_gains(world, len(plan.prompts), rng)[plan.prompt]
    class_count = int(plan.class_.max()) + 1
    class_gains = np.log([world.find_class_speed_up(place) for place in range(class_count)])
    log -= np.where(plan.server == 1, gains + class_gains[plan.class_], 0.0)

    starts = world.start_spread * rng.standard_normal((len(ARMS), int(plan.round.max()) + 1))
    log += starts[plan.server, plan.round if shape.restarts else 0]
    log += world.half_slowness * find_halves(plan, shape)
    return log


def find_halves(plan: RequestPlan, shape: RunShape) -> Codes:
    """Return the half of the host, 0 or 1, that each request's server runs on."""
    swaps = plan.round if shape.restarts else 0
    return (plan.server + swaps) % len(HALVES)


def draw_gains(world: World, count: int, rng: np.random.Generator) -> Values:
    """Return the log of each prompt's own factor of the speed-up; the law has mean 0."""
    if world.prompt_law == "two points":
        fast = math.log(FAST_QUARTER)
        return np.where(rng.random(count) < 1 / 4, fast, -fast / 3)
    if world.prompt_law == "exponential":
        return world.prompt_spread * (rng.standard_exponential(count) - 1)
    return world.prompt_spread * rng.standard_normal(count)


def draw_clocks(
    world: World, length_s: float, longest_s: float, rng: np.random.Generator
) -> list[ServerClock]:
    """Return the clock of each server.

    Args:
        world: the causes that slow them.
        length_s: of the run without disturbances: drift, wave and cold are shares of it.
        longest_s: end of the clocks.
        rng: of all draws.
    """
    time_s = np.arange(0.0, longest_s + _STEP_S, _STEP_S)
    share = time_s / length_s
    slow = np.zeros((len(ARMS), len(time_s)))
    slow += world.drift * rng.choice([-1, 1]) * share
    slow += world.wave * np.sin(2 * math.pi * (rng.uniform(0.5, 3) * share + rng.uniform()))
    for server in range(len(ARMS)):
        slow[server] += world.own_noise * draw_chain(
            len(time_s), math.exp(-_STEP_S / world.own_noise_s), rng
        )
    slow[1] += np.log1p(world.cold * np.maximum(1 - share / COLD_SHARE, 0.0))
    _add_other_work(slow, world, time_s, longest_s, rng)
    speed = np.exp(-slow)
    done_s = np.cumsum((speed[:, 1:] + speed[:, :-1]) / 2 * _STEP_S, axis=1)
    return [ServerClock(time_s, np.concatenate([[0.0], row])) for row in done_s]


def _add_other_work(
    slow: Values, world: World, time_s: Values, longest_s: float, rng: np.random.Generator
) -> None:
    """Add episodes of other work, and the clock's job, to the logs of servers' slowness."""
    for begin_s in rng.uniform(
        0, longest_s, rng.poisson(world.episodes_per_hour * longest_s / 3600)
    ):
        is_episode = (time_s >= begin_s) & (time_s < begin_s + EPISODE_S)
        slow[:, is_episode] += math.log(EPISODE_TIMES)
    if world.has_cron:
        phase_s = (time_s + rng.uniform(0, CRON_PERIOD_S)) % CRON_PERIOD_S
        slow[:, phase_s < CRON_S] += math.log(CRON_TIMES)


def draw_chain(count: int, correlation: float, rng: np.random.Generator) -> Values:
    """Return a stationary chain of sd 1 in which each value has this correlation with the next."""
    fresh = rng.standard_normal(count)
    fresh[1:] *= math.sqrt(1 - correlation**2)
    chain: Values = signal.lfilter([1.0], [1.0, -correlation], fresh)
    return chain


def time_requests(
    plan: RequestPlan, first_s: Values, rest_s: Values, clocks: list[ServerClock]
) -> RequestTimes:
    """Return each request's times: turns follow one another, and CONCURRENCY workers send.

    Args:
        plan: the requests.
        first_s, rest_s: the work of each request, up to its first token and from there.
        clocks: of the servers.
    """
    begins, firsts, ends = np.zeros((3, len(plan.arm)))
    now_s = 0.0
    for begin, end in zip(plan.turns, plan.turns[1:], strict=False):
        workers = [now_s] * CONCURRENCY
        clock = clocks[plan.server[begin]]
        for request in range(begin, end):
            begins[request] = heapq.heappop(workers)
            firsts[request] = clock.find_end(begins[request], first_s[request])
            ends[request] = clock.find_end(firsts[request], rest_s[request])
            heapq.heappush(workers, ends[request])
        now_s = max(workers)
    return RequestTimes(begins, firsts, ends)


def _bound_length(plan: RequestPlan, work_s: Values) -> float:
    """Return a time no run exceeds at full speed (Graham 1966: turns' mean load and longest)."""
    begins = plan.turns[:-1]
    longest_s = np.maximum.reduceat(work_s, begins)
    return float((np.add.reduceat(work_s, begins) / CONCURRENCY + longest_s).sum())


def _build_observations(
    shape: RunShape,
    plan: RequestPlan,
    order: Codes,
    times: RequestTimes,
    is_failed: NDArray[np.bool_],
) -> RequestTable:
    places = _build_places(shape, plan, order)
    count = len(order)
    answers = (places["prompt"] + 1).astype(np.uint64)
    begin_s, first_s, end_s = (column[order] for column in times)
    tokens = plan.tokens[order]
    failed = is_failed[order]
    ttft_ms = 1e3 * (first_s - begin_s)
    e2e_ms = 1e3 * (end_s - begin_s)
    return RequestTable(
        folder=Path("virtual-time"),
        run=plan.run,
        **places,
        errors=("timeout",),
        contents=("ok",),
        start_s=begin_s,
        end_s=end_s,
        tokens=tokens,
        error=np.where(failed, 0, UNKNOWN),
        content=np.zeros(count, np.intp),
        failed=failed,
        hit_token_limit=np.zeros(count, bool),
        figures={
            "ttft_ms": ttft_ms,
            "e2e_ms": e2e_ms,
            "tpot_ms": (e2e_ms - ttft_ms) / (tokens - 1),
            "output_tokens_per_s": 1e3 * tokens / e2e_ms,
            "completion_tokens": tokens,
        },
        output=answers,
        ids=answers,
        line_offsets=np.arange(count),
    )


def _build_places(shape: RunShape, plan: RequestPlan, order: Codes) -> dict[str, Any]:
    """Return the columns that say what each request is, with their names."""
    server = plan.server[order]
    round_ = plan.round[order]
    starts = int(round_.max()) + 1 if shape.restarts else 1
    names = itertools.product(ARMS, range(starts))
    return {
        "arms": (*ARMS, f"{ARMS[0]}{CONTROL_SUFFIX}"),
        "classes": plan.run.suites[0].classes,
        "loads": (LoadLevel(concurrency=CONCURRENCY),),
        "prompts": plan.prompts,
        "starts": tuple(f"{name}@{number}" for name, number in names),
        "placements": (),
        "arm": plan.arm[order],
        "class_": plan.class_[order],
        "load": np.zeros(len(order), np.intp),
        "prompt": plan.prompt[order],
        "start": server * starts + (round_ if shape.restarts else 0),
        "placement": np.full(len(order), UNKNOWN),
        "round": round_,
        "slot": plan.slot[order],
        "repeat": np.zeros(len(order), np.intp),
    }


def _build_manifest(real: suite.Suite, shape: RunShape, seed: int) -> manifest.RunManifest:
    moment = "2026-11-22T00:00:00Z"
    return manifest.RunManifest(
        schema=manifest.SCHEMA,
        version="0",
        created_utc=moment,
        simulated=True,
        arms=tuple(
            manifest.ManifestArm(
                name=name,
                role="variant" if place else "baseline",
                url="virtual",
                model="virtual",
                simulated=True,
            )
            for place, name in enumerate(ARMS)
        ),
        suites=(
            manifest.SuiteEntry(
                name=real.name, sha256=real.sha256, prompts=len(real.prompts), classes=real.classes
            ),
        ),
        schedule="interleaved",
        seed=seed,
        api="chat",
        concurrency=(CONCURRENCY,),
        rounds=shape.rounds,
        control_rounds=1,
        prompts_per_class=shape.size.prompts_per_class,
        max_tokens=shape.size.max_tokens,
        warm_up={name: manifest.WarmUpEntry(requests=CONCURRENCY, stable=True) for name in ARMS},
        clock=manifest.ClockReading(
            source="monotonic", resolution_s=1e-9, monotonic_s=0.0, utc=moment
        ),
        host=manifest.HostInfo(cpus=1, python="3"),
        plan=manifest.PlanTotals(requests=0),
        ended=manifest.RunEnd(reason="done", utc=moment),
    )
