"""A sweep whose runner is killed at any call: it decides what it decides without kills, and leaves
nothing.

Each life draws which draft is the better one, whether a candidate never compiles, now and then
throttled and lost answers, and again and again how many calls of AWS and Kubernetes go by before
the process is gone. SEED=N of `make proof` repeats one.
"""

from __future__ import annotations

import functools
import random
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from runner_kills import RunnerKills, calm, draw_seed
from sweep_life import HOURS, LARGE, SMALL, SweepLife
from virtual_world import ENVIRONMENT, LOOK_S

USD_PER_MINUTE = ENVIRONMENT.capacity.usd_per_hour / 60
DRAFTS = (  # acceptance and cost of the small draft, then of the large one
    ((0.5, 0.1), (0.8, 0.1)),  # the large one is the best
    ((0.85, 0.05), (0.8, 0.2)),  # the small one
    ((0.4, 0.4), (0.4, 0.4)),  # plain decoding
)
BROKEN_CANDIDATE = "qwen-sd-qwen3-1-7b-k7"  # the best window of the large draft
CALLS = (1, 3, 10, 60, 200, 500)  # from one kill to the next; a life without kills has about 2,200
# what a kill may change of a decision
WAITS = {"node_minutes", "compile_minutes", "usd", "decided_at"}
SHORT_KILLS = 8
PROOF_KILLS = 15
PROOF_LIVES = 200
PROOF_BUDGETS = 100


@dataclass(frozen=True)
class KilledSweep:
    """A sweep that was killed, and what it decides without kills.

    Attributes:
        kills: how many happened.
        paid_minutes: in which an instance was alive and did not end yet, by looks.
    """

    decision: dict[str, Any]
    reference: dict[str, Any]
    kills: int
    paid_minutes: float


def build_life(drafts: int, candidate: str) -> SweepLife:
    """Return a sweep that nobody asked for yet."""
    world = SweepLife()
    (small, small_cost), (large, large_cost) = DRAFTS[drafts]
    world.acceptance = {SMALL: small, LARGE: large}
    world.cost = {SMALL: small_cost, LARGE: large_cost}
    if candidate:
        world.fail_candidate(candidate)
    return world


@functools.cache
def decide_undisturbed(drafts: int, candidate: str) -> dict[str, Any]:
    """Return what a sweep decides that nobody kills."""
    world = build_life(drafts, candidate)
    world.ask(**HOURS)
    world.live()
    return world.read_decision()


def live_with_kills(seed: int, kills: int, *, has_budget: bool = False) -> KilledSweep:
    """Live a sweep whose runner is killed so often; hold that it ends judged, with nothing left."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    drafts = chance.randrange(len(DRAFTS))
    candidate = chance.choice(("", "", BROKEN_CANDIDATE))
    reference = decide_undisturbed(drafts, candidate)
    world = build_life(drafts, candidate)
    budget_usd = round(chance.uniform(4, reference["usd"]), 2) if has_budget else 0
    if not has_budget and chance.random() < 0.3:  # weather takes time, and a budget pays for it
        world.account.odds = {"*": 0.01}
        world.account.loses = 0.005
    world.account.chance = chance
    world.ask(**HOURS, budget_usd=budget_usd)
    runner_kills = RunnerKills(chance, CALLS, kills)
    paid = timedelta()

    def kill_again(world: SweepLife) -> None:
        nonlocal paid
        paying = [machine for machine in world.account.alive if not machine.ended]
        paid += len(paying) * timedelta(seconds=LOOK_S)
        runner_kills.look(world)

    world.live(until=kill_again)
    record = calm(world)
    assert (record["state"], world.is_empty) == ("judged", True), (
        seed,
        record["reason"],
        world.list_steps()[-3:],
    )
    return KilledSweep(
        world.read_decision(), reference, runner_kills.done, paid / timedelta(minutes=1)
    )


def drop_waits(document: dict[str, Any]) -> dict[str, Any]:
    """Return a decision, or a candidate of it, without what a wait changes."""
    rest = {name: value for name, value in document.items() if name not in WAITS}
    return rest | {"candidates": [drop_waits(row) for row in rest.get("candidates", ())]}


def hold_life(seed: int, kills: int) -> int:
    sweep = live_with_kills(seed, kills)
    assert drop_waits(sweep.decision) == drop_waits(sweep.reference), seed
    return sweep.kills


def hold_budget(seed: int, kills: int) -> tuple[KilledSweep, float]:
    """Hold what a budget leaves of a decision; return the sweep and the USD above its budget."""
    sweep = live_with_kills(seed, kills, has_budget=True)
    decision = sweep.decision
    reference = sweep.reference
    rows = [row for row in decision["candidates"] if row["state"] == "measured"]
    former = {row["variant"]: drop_waits(row) for row in reference["candidates"]}
    assert all(drop_waits(row) == former[row["variant"]] for row in rows), seed
    best = max(rows, key=lambda row: row["speed_up"][0], default={"variant": ""})["variant"]
    assert decision["winner"] == (best if reference["winner"] else ""), seed
    above_usd = decision["usd"] - decision["budget_usd"]
    # a dead runner looks one look later
    assert above_usd <= sweep.kills * USD_PER_MINUTE * LOOK_S / 60, seed
    assert sweep.paid_minutes <= decision["node_minutes"] + 1, seed
    return sweep, above_usd


def test_killed_runner_decides_the_same():
    hold_life(0, SHORT_KILLS)


def test_killed_runner_decides_within_its_budget():
    # a seed whose sweep measures two candidates before its budget ends
    hold_budget(13, SHORT_KILLS)


@pytest.mark.proof
def test_hundreds_of_killed_sweeps_decide_the_same():
    base = draw_seed("kills of a sweep's runner")
    kills = sum(hold_life(base + life, PROOF_KILLS) for life in range(PROOF_LIVES))
    sys.stderr.write(f"{kills} kills in {PROOF_LIVES} sweeps\n")


@pytest.mark.proof
def test_hundred_killed_sweeps_end_within_their_budget():
    base = draw_seed("kills of a sweep with a budget")
    outcomes = [hold_budget(base + life, PROOF_KILLS) for life in range(PROOF_BUDGETS)]
    above = [usd for _, usd in outcomes if usd > 0]
    words = [sweep.decision["word"] for sweep, _ in outcomes]
    sys.stderr.write(
        f"{sum(sweep.kills for sweep, _ in outcomes)} kills in {PROOF_BUDGETS} sweeps,"
        f" {words.count('unfinished')} unfinished, {len(above)} above the budget, by at most"
        f" {max(above, default=0):.2f} USD\n"
    )
