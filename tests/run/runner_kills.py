"""Kills of a runner in virtual time, one after another, and what holds at every look."""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass

from virtual_world import VirtualWorld

LAST_LOOKS = 10  # after the last kill, in an account that works


def draw_seed(proof: str) -> int:
    """Return the seed of a proof and print it; SEED=N of `make proof` repeats one."""
    seed = int(os.environ.get("TANDEM_PROOF_SEED") or random.SystemRandom().randrange(1 << 30))
    sys.stderr.write(f"\n{proof}: SEED={seed}\n")
    return seed


def is_guarded(world: VirtualWorld) -> bool:
    """Tell whether a lease leads to an armed one-shot stop."""
    run = (world.account.read("lease.json") or {}).get("run")
    return run is not None and f"stop-{run}" in world.account.schedules


@dataclass
class RunnerKills:
    """The kills of one life.

    Args:
        gaps: calls of AWS and Kubernetes from one kill to the next.
        left: kills that are still to come.

    Attributes:
        done: kills that happened.
    """

    chance: random.Random
    gaps: tuple[int, ...]
    left: int
    done: int = 0

    def look(self, world: VirtualWorld) -> None:
        """Plan the next kill once the last one came, and hold that a stop is armed."""
        if world.account.dies_after is None:
            self.done = world.runner_number - 1
            if self.left:
                self.left -= 1
                world.account.dies_after = self.chance.choice(self.gaps)
        for machine in world.account.alive:
            assert machine.state == "shutting-down" or is_guarded(world), (
                "an instance without lease and armed stop"
            )


def calm(world: VirtualWorld) -> dict:
    """Let the account work, and the runner look on; return the one record of the run."""
    world.account.dies_after = None
    world.account.odds = {}
    world.account.loses = 0
    for _ in range(LAST_LOOKS):
        world.look()
    return world.read_run()
