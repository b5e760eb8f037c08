"""A runner that is killed at any call: every life ends at zero, with the word that it has without kills.

Each life draws how many calls of AWS and Kubernetes go by before the process is gone, again and again; the last call of
a process may have been done without its answer. SEED=N of `make proof` repeats one.
"""

from __future__ import annotations

import os
import random
import sys

import pytest
from virtual_world import ARTIFACTS, MODELS, RUN, VirtualWorld

STORED = {*MODELS.values(), *ARTIFACTS.values()}
PROOF_KILLS, PROOF_KILLS_A_LIFE, SHORT_LIVES = 2000, 10, 3


def live_with_kills(seed: int, kills: int) -> tuple[VirtualWorld, dict, int]:
    """Live a run whose runner is killed so often; return the world, the run's record and the kills that happened."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    world = VirtualWorld(stored=set(STORED) if chance.random() < 0.7 else set())
    if chance.random() < 0.3:
        world.account.odds = {"*": 0.03}
    if chance.random() < 0.3:
        world.account.loses = 0.02
    world.account.chance = chance
    world.ask(rounds=4, control_rounds=chance.choice((0, 1)), starts=chance.choice((1, 1, 2)))
    planned, done = kills, 0

    def kill_again(seen: VirtualWorld) -> bool:
        nonlocal planned, done
        if seen.account.dies_after is None:
            done = seen.runner_number - 1
            if planned:
                planned -= 1
                seen.account.dies_after = chance.choice((1, 3, 10, 30, 60, 150, 300))
        for machine in seen.account.alive:
            assert machine.state == "shutting-down" or is_guarded(seen), "an instance without lease and armed stop"
        return False

    record = world.live(until=kill_again)
    world.account.dies_after, world.account.odds, world.account.loses = None, {}, 0
    for _ in range(10):
        world.look()
    return world, world.read_run() or record, done


def is_guarded(world: VirtualWorld) -> bool:
    """Tell whether a lease leads to an armed one-shot stop."""
    run = (world.account.read("lease.json") or {}).get("run")
    return run is not None and f"stop-{run}" in world.account.schedules


def hold_life(seed: int, kills: int) -> int:
    world, record, done = live_with_kills(seed, kills)
    steps = world.list_steps()
    assert world.is_empty, (seed, record, steps[-3:], world.log[-5:])
    assert record["state"] == "judged", (seed, record["state"], record["reason"])
    assert record["verdict"] == "qwen-sd-vllm is faster"
    rounds = [step for step, state, _ in steps if step.startswith("round-") and state == "done"]
    assert len(rounds) == record["rounds_total"], (seed, steps)
    assert sorted(number for number, _ in world.judged.confirmed) == list(range(record["rounds_total"]))
    assert len([key for key in world.account.objects if key == f"runs/{RUN}/run.json"]) == 1
    return done


@pytest.mark.parametrize("seed", range(SHORT_LIVES))
def test_killed_runner_leaves_nothing(seed):
    hold_life(seed, 8)


@pytest.mark.proof
def test_two_thousand_kills():
    base = int(os.environ.get("TANDEM_PROOF_SEED") or random.SystemRandom().randrange(1 << 30))
    sys.stderr.write(f"\nkills of the runner: SEED={base}\n")
    kills = lives = 0
    while kills < PROOF_KILLS:  # some lives end before all that was planned
        kills, lives = kills + hold_life(base + lives, PROOF_KILLS_A_LIFE), lives + 1
    sys.stderr.write(f"{kills} kills in {lives} lives\n")
