"""Whole reports on servers that are as fast as each other: how often any cell says faster or slower.

There are two nulls. `drafts`: both servers speculate, each good at other prompts, so every prompt differs and their
mean does not. `equal`: the same server twice, without speculation. Each run is judged with the control round that
`tandem bench run` adds, and again without it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from coverage_world import (
    ARMS,
    CONCURRENCY,
    PLAIN,
    POPULATION,
    Seen,
    Server,
    Values,
    Whole,
    engine,
    run,
    seen,
    world,
)

from tandem.bench import manifest
from tandem.bench.request_table import UNKNOWN, PromptKey, RequestTable
from tandem.bench.schedule import CONTROL_SUFFIX, LoadLevel, control_numbers
from tandem.judge.cells import judge_speed_ups
from tandem.judge.controls import check_controls
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import RunControls

Null = Literal["drafts", "equal"]
CLASSES = ("a", "b", "c")
PROMPTS = 12
ROUNDS = 4
MARGIN = 0.05
_DRAFT_MS = 10.0


class Called(NamedTuple):
    """Number of reports that call any cell: with a control round, which a run has by default, and without."""

    controlled: int
    bare: int


def reports(null: Null, count: int, seed: int) -> Called:
    """Return how many of `count` reports call any cell."""
    rng = np.random.default_rng(seed)
    order = tuple(int(place) for place in rng.permutation(POPULATION))
    servers = (PLAIN, PLAIN) if null == "equal" else (Server(_DRAFT_MS), Server(_DRAFT_MS, order))
    served = [engine(server, seed + arm) for arm, server in enumerate(servers)]
    plain = [server.draft_ms is None for server in servers]
    controlled = bare = 0
    for _ in range(count):
        classes, itself = [], []
        for _class in CLASSES:
            prompts = rng.integers(POPULATION, size=PROMPTS)
            work = run(served, plain, prompts, ROUNDS, rng)
            again = run([served[0]] * 2, [plain[0]] * 2, prompts, 1, rng)
            classes.append(seen(work, world(work, rng)))
            itself.append(seen(again, world(again, rng)))
        observations = observed(classes, itself)
        controlled += _calls(observations, check_controls(observations))
        bare += _calls(observations, RunControls())
    return Called(controlled, bare)


def _calls(observations: RequestTable, checked: RunControls) -> bool:
    found = judge_speed_ups(RequestPairing(observations), checked, margin=MARGIN).cells
    return any(cell.verdict in ("faster", "slower", "mixed") for cell in found)


class _Columns(NamedTuple):
    """Requests of a run, class by class; arms are codes of ARMS and the control."""

    class_: Whole
    arm: Whole
    round: Whole
    prompt: Whole
    ttft_ms: Values
    e2e_ms: Values
    tokens: Values


def _columns(classes: Sequence[Seen], arms: Sequence[int], rounds: Sequence[int]) -> _Columns:
    shape = (len(classes), len(arms), len(rounds), PROMPTS)
    class_, arm, number, prompt = (axis.ravel() for axis in np.indices(shape))
    times = (np.stack([one.of(name) for one in classes]).ravel() for name in ("ttft_ms", "e2e_ms", "tokens"))
    return _Columns(class_, np.array(arms)[arm], np.array(rounds)[number], prompt, *times)


def observed(classes: Sequence[Seen], itself: Sequence[Seen]) -> RequestTable:
    """Return a client's view of every class, and of the baseline against itself, as the observations of one run."""
    control = control_numbers(ROUNDS, 1)
    others = [number for number in range(ROUNDS + 1) if number not in control]
    parts = _columns(classes, (0, 1), others), _columns(itself, (0, 2), list(control))
    class_, arm, number, prompt, ttft_ms, e2e_ms, tokens = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    unknown, none = np.full(len(arm), UNKNOWN), np.zeros(len(arm), bool)
    return RequestTable(
        folder=Path("virtual-time"), run=_run(), arms=(*ARMS, f"{ARMS[0]}{CONTROL_SUFFIX}"), classes=CLASSES,
        loads=(LoadLevel(concurrency=CONCURRENCY),),
        prompts=tuple(PromptKey("virtual", f"{name}-{place}") for name in CLASSES for place in range(PROMPTS)),
        starts=(), placements=(), errors=(), contents=(), arm=arm, class_=class_, load=np.zeros(len(arm), np.intp),
        prompt=class_ * PROMPTS + prompt, start=unknown, placement=unknown, round=number,
        slot=np.zeros(len(arm), np.intp), repeat=np.zeros(len(arm), np.intp), start_s=np.zeros(len(arm)),
        end_s=e2e_ms / 1e3, tokens=tokens, error=unknown, content=unknown, failed=none, hit_token_limit=none,
        figures={
            "ttft_ms": ttft_ms, "e2e_ms": e2e_ms, "tpot_ms": (e2e_ms - ttft_ms) / (tokens - 1),
            "output_tokens_per_s": 1e3 * tokens / e2e_ms, "completion_tokens": tokens,
        },
        output=np.ones(len(arm), np.uint64), ids=np.zeros(len(arm), np.uint64), line_offsets=np.arange(len(arm)),
    )  # fmt: skip


def _run() -> manifest.RunManifest:
    moment = "2026-11-21T00:00:00Z"
    return manifest.RunManifest(
        schema=manifest.SCHEMA,
        simulated=True,
        version="0", created_utc=moment,
        arms=tuple(
            manifest.ManifestArm(name=name, role="variant" if place else "baseline", url="virtual", model="virtual")
            for place, name in enumerate(ARMS)
        ),
        suites=(manifest.SuiteEntry(name="virtual", sha256="0" * 64, prompts=len(CLASSES) * PROMPTS, classes=CLASSES),),
        schedule="interleaved", seed=0, api="chat", concurrency=(CONCURRENCY,), rounds=ROUNDS, control_rounds=1,
        clock=manifest.ClockReading(source="monotonic", resolution_s=1e-9, monotonic_s=0.0, utc=moment),
        host=manifest.HostInfo(cpus=1, python="3"), plan=manifest.PlanTotals(requests=0),
        ended=manifest.RunEnd(reason="done", utc=moment),
    )  # fmt: skip
