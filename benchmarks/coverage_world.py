"""Runs of two servers of known true ratio in virtual time: the simulator's engine, no HTTP.

The engine gets requests as in a run: rounds of turns A B B A, then B A A B, a closed loop in each
turn, a new order in every round. The engine gives times of work. The world then adds its effects: a
machine that drifts, stalls, a slower half of the host, an unlucky start. A factor on all of a
server's speed is a factor on its times of work, so one simulated run serves in every world.

Prompts are a population of POPULATION, each with its chance of acceptance, its length and its
tokens; a run sends a few of them, drawn at random. The truth of a prompt is the ratio of its median
times over endless repeats in an undisturbed world; the true ratio is the geometric mean over the
population. `compute_truth` computes it from many requests of every prompt, with separate draws. The
draft's cost is chosen so that the true ratio is near the wanted one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tandem.bench.plan.schedule import first_order, pass_order
from tandem.simulator.engine import BLOCK_STEPS, BatchingEngine, EngineRequest
from tandem.simulator.settings import DEFAULT_CLASS, PromptClassSettings, SimulatorSettings

Values = NDArray[np.float64]
Codes = NDArray[np.intp]

POPULATION = 240
CONCURRENCY = 4
WINDOW = 7
STEP_MS = (45.0, 45.5, 46.0, 46.5)
OUTPUT_TOKENS = (32, 64)
PROMPT_TOKENS = (32, 256)
ACCEPTANCE_MEAN = 1.35
ACCEPTANCE_SPREAD = 0.45
"""Of a prompt's acceptance in logits: 0.80 in the middle, from 0.67 to 0.88 for four prompts of
five."""

JITTER = 0.1
SEED = 20_261_121
DRAFT_MS = {0.8: 26.2, 1.0: 19.3, 1.05: 17.98, 1.5: 10.09, 3.0: 0.889}
"""Cost of a draft with which E2E is near so many times as fast as without; the truth is
simulated."""


class RunWork(NamedTuple):
    """Engine's work in a run, in seconds of work from its begin. Shapes: (arms, rounds, prompts).

    Args:
        sent_s, first_s, end_s: when each request was sent, and its first and last burst came.
        chunks: bursts of each.
        all_s: the run's end.
    """

    sent_s: Values
    first_s: Values
    end_s: Values
    chunks: Values
    all_s: float


class ClientView(NamedTuple):
    """A client's view of one run, in ms. Shapes: (arms, rounds, prompts)."""

    ttft_ms: Values
    e2e_ms: Values
    chunks: Values

    @property
    def chunk_itl_ms(self) -> Values:
        """Inter-token latency by llmperf: whole time over chunks, role chunk included."""
        return self.e2e_ms / (self.chunks + 1)

    def select_rounds(self, count: int) -> ClientView:
        """Return only the first rounds."""
        return ClientView(*(values[:, :count] for values in self))

    def read_metric(self, metric: str) -> Values:
        """Return one metric."""
        values: Values = getattr(self, metric)
        return values


class VirtualServer(NamedTuple):
    """The engine of one arm, and whether it speculates: then each prompt has its own acceptance."""

    engine: BatchingEngine
    speculates: bool


class Population(NamedTuple):
    """Acceptance, output tokens and prompt tokens of every prompt."""

    acceptances: Values
    output_tokens: Codes
    prompt_tokens: Codes


@lru_cache(maxsize=1)
def draw_population() -> Population:
    """Return the prompts that runs draw from."""
    rng = np.random.default_rng(SEED)
    logits = ACCEPTANCE_MEAN + ACCEPTANCE_SPREAD * special.ndtri(
        (np.arange(POPULATION) + 0.5) / POPULATION
    )
    output_tokens = rng.integers(*OUTPUT_TOKENS, size=POPULATION, endpoint=True)
    prompt_tokens = rng.integers(*PROMPT_TOKENS, size=POPULATION, endpoint=True)
    return Population(special.expit(logits), output_tokens, prompt_tokens)


def build_server(draft_ms: float | None, seed: int) -> VirtualServer:
    """Return a server of the whole population; its draws go on from run to run.

    Args:
        draft_ms: one draft forward; the window has WINDOW of them. None: the server does not
            speculate.
        seed: of its draws.
    """
    speculates = draft_ms is not None
    classes = {DEFAULT_CLASS: PromptClassSettings()}
    if speculates:
        acceptances = enumerate(draw_population().acceptances)
        classes = {
            str(prompt): PromptClassSettings(acceptance=float(chance))
            for prompt, chance in acceptances
        }
    settings = SimulatorSettings(
        law="vllm" if speculates else "none",
        num_speculative_tokens=WINDOW if speculates else 0,
        draft_ms=draft_ms or 0.0,
        step_ms=STEP_MS,
        jitter=JITTER,
        prefill_base_ms=20.0,
        prefill_ms_per_token=0.1,
        max_num_seqs=CONCURRENCY,
        seed=seed,
        classes=classes,
    )
    return VirtualServer(BatchingEngine(settings), speculates)


def send_turn(engine: BatchingEngine, jobs: Sequence[EngineRequest], now_s: float) -> float:
    """Send the requests of a turn in a closed loop; return when its last request ended."""
    waiting = iter(jobs)
    for job in itertools.islice(waiting, CONCURRENCY):
        job.arrived_s = now_s
        engine.submit(job)
    while (steps := engine.begin(now_s, max_steps=BLOCK_STEPS)) is not None:
        now_s = steps.end_s
        for job in itertools.islice(waiting, len(engine.end(steps))):
            job.arrived_s = now_s
            engine.submit(job)
    return now_s


def simulate_work(
    servers: Sequence[VirtualServer], prompts: Codes, rounds: int, rng: np.random.Generator
) -> RunWork:
    """Send `prompts` in `rounds` rounds to every arm, as an interleaved run does."""
    names = [str(arm) for arm in range(len(servers))]
    order = first_order(names, int(rng.integers(1 << 31)))
    columns = np.zeros((4, len(servers), rounds, len(prompts)))
    now_s = 0.0
    for number in range(rounds):
        for half, places in enumerate(np.array_split(rng.permutation(len(prompts)), 2)):
            for position in pass_order(names, 2 * number + half):
                arm = int(order[int(position)])
                jobs = [
                    build_job(prompt, speculates=servers[arm].speculates)
                    for prompt in prompts[places]
                ]
                now_s = send_turn(servers[arm].engine, jobs, now_s)
                for place, job in zip(places, jobs, strict=True):
                    columns[:, arm, number, place] = (
                        job.arrived_s,
                        job.first_s,
                        job.end_s,
                        1 + job.step_count,
                    )
    return RunWork(*columns, now_s)


def build_job(prompt: int, *, speculates: bool) -> EngineRequest:
    """Return the request of a prompt; a server without speculation has one class for all."""
    population = draw_population()
    class_name = str(prompt) if speculates else DEFAULT_CLASS
    output_tokens = int(population.output_tokens[prompt])
    return EngineRequest(0, class_name, int(population.prompt_tokens[prompt]), output_tokens)


class World(NamedTuple):
    """Disturbances of a run, in addition to its servers' work.

    Args:
        trend: log of how much slower the machine is at the end than at the begin.
        wave: log amplitude of a slow wave over it.
        waves: how many of them.
        phase: where it begins.
        stalls_s: when everything stood still.
        lengths_s: for how long.
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


def draw_world(work: RunWork, rng: np.random.Generator) -> World:
    """Draw a world with drift and stalls, and with equal halves and starts."""
    count = int(rng.poisson(work.all_s / STALL_EVERY_S))
    return World(
        trend=float(rng.uniform(-DRIFT, DRIFT)),
        wave=WAVE,
        waves=float(rng.uniform(0.5, 3)),
        phase=float(rng.uniform(0, 2 * math.pi)),
        stalls_s=np.sort(rng.uniform(0, work.all_s, count)),
        lengths_s=rng.exponential(STALL_S, count),
        slower=np.zeros(work.sent_s.shape[:2]),
    )


def draw_halves_and_starts(
    arms: int, rounds: int, rng: np.random.Generator, *, swaps: bool
) -> Values:
    """Return log factors of two halves, one EFFECT apart, and of starts. Shapes: (arms, rounds).

    Args:
        arms, rounds: of the run.
        rng: of all draws.
        swaps: in every round the arms change halves and both start again; otherwise they stay as
            they began.
    """
    flip = int(rng.integers(2))
    numbers = np.arange(rounds) if swaps else np.zeros(rounds, np.intp)
    halves = (np.arange(arms)[:, None] + numbers[None, :] + flip) % 2
    starts = rng.standard_normal((arms, rounds if swaps else 1))
    slower: Values = EFFECT * (halves + starts)
    return slower


def view_work(work: RunWork, world: World) -> ClientView:
    """Return a client's view of `work` in a world."""
    grid_s = np.linspace(0, work.all_s, 257)
    share = grid_s / work.all_s
    slow = np.exp(
        world.trend * share + world.wave * np.sin(2 * math.pi * world.waves * share + world.phase)
    )
    clock_s = np.concatenate([[0.0], np.cumsum((slow[1:] + slow[:-1]) / 2 * np.diff(grid_s))])
    stalls_s = np.concatenate([[0.0], np.cumsum(world.lengths_s)])
    factor = np.exp(world.slower)[:, :, None]

    def measure_ms(end_s: Values) -> Values:
        worked_s = np.interp(end_s, grid_s, clock_s) - np.interp(work.sent_s, grid_s, clock_s)
        stood_s = (
            stalls_s[world.stalls_s.searchsorted(end_s)]
            - stalls_s[world.stalls_s.searchsorted(work.sent_s)]
        )
        times_ms: Values = 1e3 * (worked_s * factor + stood_s)
        return times_ms

    return ClientView(measure_ms(work.first_s), measure_ms(work.end_s), work.chunks)


def compute_truth(draft_ms: float | None, prompts: int, *, repeats: int, seed: int) -> float:
    """Return the true E2E log-ratio without and with a draft: each prompt `repeats` times.

    Args:
        draft_ms: of the variant; None: it does not speculate either.
        prompts: number of prompts in a run; runs of so many cover the whole population.
        repeats: of each prompt.
        seed: of the draws.
    """
    rng = np.random.default_rng([SEED, seed])
    servers = [build_server(None, seed), build_server(draft_ms, seed + 1)]
    logs = []
    for group in rng.permutation(POPULATION).reshape(-1, prompts):
        work = simulate_work(servers, group, repeats, rng)
        base, spec = np.median(1e3 * (work.end_s - work.sent_s), axis=1)
        logs.append(np.log(base / spec))
    return float(np.concatenate(logs).mean())
