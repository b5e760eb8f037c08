"""Runs of two servers in virtual time, whose true ratio is known: the simulator's own engine, without HTTP.

The engine gets requests as in a run: rounds of turns A B B A, then B A A B, a closed loop in each turn, a new order in
every round. The engine gives times of work. The world then adds its effects: a machine that drifts, stalls, a slower
half of the host, an unlucky start. A factor on all of a server's speed is a factor on its times of work, so one
simulated run serves in every world.

Prompts are a population of POPULATION, each with its chance of acceptance, its length and its tokens; a run sends a few
of them, drawn at random. The truth of a prompt is the ratio of its median times over endless repeats in an undisturbed
world; the true ratio is the geometric mean over the population. `truth` computes it from many requests of every prompt,
with separate draws. The draft's cost is chosen so that the true ratio is near the wanted one.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tandem.bench.schedule import first_order, pass_order
from tandem.simulator.engine import BLOCK_STEPS, BatchingEngine, EngineRequest
from tandem.simulator.settings import DEFAULT_CLASS, PromptClassSettings, SimulatorSettings

Values = NDArray[np.float64]
Whole = NDArray[np.intp]

POPULATION = 240
CONCURRENCY = 4
WINDOW = 7
STEP_MS = (45.0, 45.5, 46.0, 46.5)
OUTPUT_TOKENS = (32, 64)
PROMPT_TOKENS = (32, 256)
ACCEPTANCE = 1.35, 0.45
"""Mean and spread of a prompt's acceptance in logits: 0.80, from 0.67 to 0.88 for four prompts of five."""

JITTER = 0.1
SEED = 20_261_121
ARMS = ("base", "spec")

Law = Literal["plain", "speculates"]


class Server(NamedTuple):
    """Settings of a server.

    Args:
        draft_ms: one draft forward; the window has WINDOW of them. None: the server does not speculate.
        order: the prompt whose acceptance each prompt of the population takes; None: each its own.
    """

    draft_ms: float | None
    order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Work:
    """Work of the engine in one run, in seconds of work from the run's begin. Shapes: (arms, rounds, prompts).

    Args:
        asked_s, first_s, ended_s: when each request was sent, and its first and last burst came.
        chunks: bursts of each. tokens: of each. all_s: the run's end.
    """

    asked_s: Values
    first_s: Values
    ended_s: Values
    chunks: Values
    tokens: Values
    all_s: float


@dataclass(frozen=True)
class Seen:
    """A client's view of one run, in ms. Shapes: (arms, rounds, prompts)."""

    ttft_ms: Values
    e2e_ms: Values
    tokens: Values
    chunks: Values

    @property
    def tpot_ms(self) -> Values:
        """Time per output token after the first."""
        return (self.e2e_ms - self.ttft_ms) / (self.tokens - 1)

    @property
    def chunk_itl_ms(self) -> Values:
        """Inter-token latency by llmperf: the whole time over the chunks, the chunk of the role included."""
        return self.e2e_ms / (self.chunks + 1)

    def first(self, rounds: int) -> Seen:
        """Return only the first rounds."""
        return Seen(*(values[:, :rounds] for values in (self.ttft_ms, self.e2e_ms, self.tokens, self.chunks)))

    def of(self, metric: str) -> Values:
        """Return one metric."""
        values: Values = getattr(self, metric)
        return values


@lru_cache(maxsize=1)
def population() -> tuple[Values, Whole, Whole]:
    """Return acceptance, output tokens and prompt tokens of every prompt of the population."""
    rng = np.random.default_rng(SEED)
    mean, spread = ACCEPTANCE
    logits = mean + spread * special.ndtri((np.arange(POPULATION) + 0.5) / POPULATION)
    return (
        special.expit(logits), rng.integers(*OUTPUT_TOKENS, size=POPULATION, endpoint=True),
        rng.integers(*PROMPT_TOKENS, size=POPULATION, endpoint=True),
    )  # fmt: skip


def engine(server: Server, seed: int) -> BatchingEngine:
    """Return the simulator's engine for a server of the whole population; its draws go on from run to run."""
    chances = population()[0]
    chances = chances if server.order is None else chances[list(server.order)]
    speculates = server.draft_ms is not None
    classes = {str(place): PromptClassSettings(acceptance=float(chance)) for place, chance in enumerate(chances)}
    return BatchingEngine(
        SimulatorSettings(
            law="vllm" if speculates else "none", num_speculative_tokens=WINDOW if speculates else 0,
            draft_ms=server.draft_ms or 0.0, step_ms=STEP_MS, jitter=JITTER, prefill_base_ms=20.0,
            prefill_ms_per_token=0.1, max_num_seqs=CONCURRENCY, seed=seed,
            classes=classes if speculates else {DEFAULT_CLASS: PromptClassSettings()},
        )
    )  # fmt: skip


def ask(served: BatchingEngine, jobs: Sequence[EngineRequest], at_s: float) -> float:
    """Send the requests of a turn in a closed loop; return when its last request ended."""
    waiting = iter(jobs)
    for job in itertools.islice(waiting, CONCURRENCY):
        job.arrived_s = at_s
        served.submit(job)
    while (steps := served.begin(at_s, max_steps=BLOCK_STEPS)) is not None:
        at_s = steps.end_s
        for job in itertools.islice(waiting, len(served.end(steps))):
            job.arrived_s = at_s
            served.submit(job)
    return at_s


def run(
    served: Sequence[BatchingEngine], plain: Sequence[bool], prompts: Whole, rounds: int, rng: np.random.Generator
) -> Work:
    """Send `prompts` in `rounds` rounds to every arm, as an interleaved run does."""
    _, output, lengths = population()
    arms = range(len(served))
    names = [str(arm) for arm in arms]
    first = [int(name) for name in first_order(names, int(rng.integers(1 << 31)))]
    told = np.zeros((5, len(served), rounds, len(prompts)))
    now = 0.0
    for number in range(rounds):
        halves = np.array_split(rng.permutation(len(prompts)), 2)
        for half, places in enumerate(halves):
            for arm in (first[int(place)] for place in pass_order(names, 2 * number + half)):
                jobs = [
                    EngineRequest(0, DEFAULT_CLASS if plain[arm] else str(prompts[place]), int(lengths[prompts[place]]),
                        int(output[prompts[place]]))
                    for place in places
                ]  # fmt: skip
                now = ask(served[arm], jobs, now)
                for place, job in zip(places, jobs, strict=True):
                    told[:, arm, number, place] = (
                        job.arrived_s, job.first_s, job.end_s, 1 + job.step_count, job.output_tokens
                    )  # fmt: skip
    asked_s, first_s, ended_s, chunks, tokens = told
    return Work(asked_s, first_s, ended_s, chunks, tokens, now)


class World(NamedTuple):
    """Disturbances of a run, in addition to its servers' work.

    Args:
        trend: log of how much slower the machine is at the end than at the begin.
        wave: log amplitude of a slow wave over it. waves: how many of them. phase: where it begins.
        stalls_s: when everything stood still. lengths_s: for how long.
        slower: log factor on an arm's times in a round. Shapes: (arms, rounds).
    """

    trend: float
    wave: float
    waves: float
    phase: float
    stalls_s: Values
    lengths_s: Values
    slower: Values


DRIFT = 0.15
"""Largest drift of the machine over a run, either way: log."""

WAVE = 0.05
STALL_EVERY_S = 60.0
STALL_S = 0.5
EFFECT = math.log(1.03)
"""The cost of the slower half, and the spread of the cost of a start."""


def world(work: Work, rng: np.random.Generator) -> World:
    """Draw a world with drift and stalls, and with equal halves and starts."""
    count = int(rng.poisson(work.all_s / STALL_EVERY_S))
    return World(
        trend=float(rng.uniform(-DRIFT, DRIFT)), wave=WAVE, waves=float(rng.uniform(0.5, 3)),
        phase=float(rng.uniform(0, 2 * math.pi)), stalls_s=np.sort(rng.uniform(0, work.all_s, count)),
        lengths_s=rng.exponential(STALL_S, count), slower=np.zeros(work.asked_s.shape[:2]),
    )  # fmt: skip


def halves_and_starts(arms: int, rounds: int, rng: np.random.Generator, *, swaps: bool) -> Values:
    """Return the log factors of two halves, one EFFECT apart, and of starts. Shapes: (arms, rounds).

    Args:
        swaps: in every round the arms change halves and both start again; otherwise they stay as they began.
    """
    flip = int(rng.integers(2))
    if not swaps:
        half, start = (np.arange(arms)[:, None] + flip) % 2, rng.standard_normal((arms, 1))
        return EFFECT * (half + start) * np.ones(rounds)
    placement = (np.arange(arms)[:, None] + np.arange(rounds)[None, :] + flip) % 2
    slower: Values = EFFECT * placement + EFFECT * rng.standard_normal((arms, rounds))
    return slower


def seen(work: Work, met: World) -> Seen:
    """Return a client's view of `work` in a world."""
    grid = np.linspace(0, work.all_s, 257)
    share = grid / work.all_s
    slow = np.exp(met.trend * share + met.wave * np.sin(2 * math.pi * met.waves * share + met.phase))
    passed = np.concatenate([[0.0], np.cumsum((slow[1:] + slow[:-1]) / 2 * np.diff(grid))])
    stood = np.concatenate([[0.0], np.cumsum(met.lengths_s)])
    factor = np.exp(met.slower)[:, :, None]

    def between_ms(begin: Values, end: Values) -> Values:
        gone: Values = np.interp(end, grid, passed) - np.interp(begin, grid, passed)
        waited = stood[met.stalls_s.searchsorted(end)] - stood[met.stalls_s.searchsorted(begin)]
        passed_ms: Values = 1e3 * (gone * factor + waited)
        return passed_ms

    return Seen(
        between_ms(work.asked_s, work.first_s), between_ms(work.asked_s, work.ended_s), work.tokens, work.chunks
    )


def undisturbed(work: Work) -> Seen:
    """Return a client's view of `work` without disturbances."""
    return Seen(1e3 * (work.first_s - work.asked_s), 1e3 * (work.ended_s - work.asked_s), work.tokens, work.chunks)


METRICS = ("e2e_ms", "tpot_ms", "ttft_ms")


def truth(servers: Sequence[Server], prompts: int, *, repeats: int, seed: int) -> dict[str, float]:
    """Return the true log-ratio of two servers by metric: every prompt of the population, `repeats` times each.

    Args:
        prompts: number of prompts in a run; runs of so many cover the whole population.
    """
    rng = np.random.default_rng([SEED, seed])
    served = [engine(server, seed + arm) for arm, server in enumerate(servers)]
    plain = [server.draft_ms is None for server in servers]
    logs: dict[str, list[Values]] = {metric: [] for metric in METRICS}
    for together in rng.permutation(POPULATION).reshape(-1, prompts):
        found = undisturbed(run(served, plain, together, repeats, rng))
        for metric in METRICS:
            base, spec = np.median(found.of(metric), axis=1)
            logs[metric].append(np.log(base / spec))
    return {metric: float(np.concatenate(values).mean()) for metric, values in logs.items()}


PLAIN = Server(None)
DRAFT_MS = {0.8: 26.2, 1.0: 19.3, 1.05: 17.98, 1.5: 10.09, 3.0: 0.889}
"""Cost of a draft with which E2E is near so many times as fast as without; the truth is simulated."""
