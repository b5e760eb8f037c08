"""Whole reports on servers that are as fast as each other: how often any cell says faster or slower.

Two nulls. `drafts`: both servers speculate, each good at other prompts, so every prompt differs and their mean does
not. `equal`: the same server twice, without speculation. `tandem.bench.judge.cells` judges, with no noise floor.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from coverage_world import ARMS, CONCURRENCY, PLAIN, POPULATION, Seen, Server, engine, run, seen, world

from tandem.bench import manifest
from tandem.bench.judge.cells import cells
from tandem.bench.judge.form import Controls, Load
from tandem.bench.judge.observations import Observations, Prompt

Null = Literal["drafts", "equal"]
CLASSES = ("a", "b", "c")
PROMPTS = 12
ROUNDS = 4
MARGIN = 0.05
_DRAFT_MS = 10.0


def reports(null: Null, count: int, seed: int) -> int:
    """Return how many of `count` reports call any cell."""
    rng = np.random.default_rng(seed)
    order = tuple(int(place) for place in rng.permutation(POPULATION))
    servers = (PLAIN, PLAIN) if null == "equal" else (Server(_DRAFT_MS), Server(_DRAFT_MS, order))
    served = [engine(server, seed + arm) for arm, server in enumerate(servers)]
    plain = [server.draft_ms is None for server in servers]
    called = 0
    for _ in range(count):
        classes = []
        for _class in CLASSES:
            work = run(served, plain, rng.integers(POPULATION, size=PROMPTS), ROUNDS, rng)
            classes.append(seen(work, world(work, rng)))
        found = cells(observed(classes), Controls(), margin=MARGIN)
        called += any(cell.verdict in ("faster", "slower") for cell in found)
    return called


def observed(classes: Sequence[Seen]) -> Observations:
    """Return what a client saw of every class as the observations of one run."""
    shape = (len(classes), len(ARMS), ROUNDS, PROMPTS)
    class_, arm, number, prompt = (axis.ravel() for axis in np.indices(shape))
    ttft_ms, e2e_ms, tokens = (
        np.stack([getattr(one, name) for one in classes]).ravel() for name in ("ttft_ms", "e2e_ms", "tokens")
    )
    unknown, none = np.full(len(arm), -1), np.zeros(len(arm), bool)
    return Observations(
        folder=Path("virtual-time"), run=_run(), arms=ARMS, classes=CLASSES, loads=(Load(concurrency=CONCURRENCY),),
        prompts=tuple(Prompt("virtual", f"{name}-{place}") for name in CLASSES for place in range(PROMPTS)),
        starts=(), placements=(), errors=(), contents=(), arm=arm, class_=class_, load=np.zeros(len(arm), np.intp),
        prompt=class_ * PROMPTS + prompt, start=unknown, placement=unknown, round=number,
        slot=np.zeros(len(arm), np.intp), repeat=np.zeros(len(arm), np.intp), start_s=np.zeros(len(arm)),
        end_s=e2e_ms / 1e3, tokens=tokens, error=unknown, content=unknown, failed=none, cut=none,
        figures={
            "ttft_ms": ttft_ms, "e2e_ms": e2e_ms, "tpot_ms": (e2e_ms - ttft_ms) / (tokens - 1),
            "output_tokens_per_s": 1e3 * tokens / e2e_ms, "completion_tokens": tokens,
        },
        output=np.ones(len(arm), np.uint64), ids=np.zeros(len(arm), np.uint64), at=np.arange(len(arm)),
    )  # fmt: skip


def _run() -> manifest.Manifest:
    moment = "2026-11-21T00:00:00Z"
    return manifest.Manifest(
        version="0", created_utc=moment,
        arms=tuple(
            manifest.Arm(name=name, role="variant" if place else "baseline", url="virtual", model="virtual")
            for place, name in enumerate(ARMS)
        ),
        suites=(manifest.SuiteUsed(name="virtual", sha256="0" * 64, prompts=len(CLASSES) * PROMPTS, classes=CLASSES),),
        schedule="interleaved", seed=0, api="chat", concurrency=(CONCURRENCY,), rounds=ROUNDS,
        clock=manifest.Clock(source="monotonic", resolution_s=1e-9, monotonic_s=0.0, utc=moment),
        host=manifest.Host(cpus=1, python="3"), plan=manifest.Plan(requests=0),
        ended=manifest.Ended(reason="done", utc=moment),
    )  # fmt: skip
