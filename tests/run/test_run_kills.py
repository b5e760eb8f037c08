"""A runner that is killed at any call, on nodes that are drained or lost, with claims that come
late.

Each life draws how many calls of AWS and Kubernetes go by before the process is gone, again and
again; the last call of a process may have been done without its answer. Between the kills nodes are
drained or lost and claims are late; the reaper passes all the while. Every life ends judged, at
zero, as one without kills: no pod that is only late ends a run. One whose raise fails for ten
minutes is fenced by the reaper. SEED=N of `make proof` repeats a proof.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from runner_kills import RunnerKills, calm, draw_seed
from virtual_world import (
    BASELINE,
    FULL_BUCKET,
    LOOK_S,
    RUN,
    VARIANT,
    VirtualWorld,
)

PROOF_KILLS = 2000
PROOF_KILLS_A_LIFE = 10
SHORT_LIVES = 3
# of servers in a life: a third one in the same round may void the run, as docs/run-steps.md says
MAX_DISRUPTIONS = 2
# a drain and two late steps after it stay within the ten minutes that a server has for its devices
MAX_DRAIN_S = 180
LATE_S = (1, 60, 120, 150)
GAPS = (1, 3, 10, 30, 60, 150, 300)  # calls from one kill to the next
SERVING_STEPS = ("compile", "serve", "ready", "check", "round-", "restart-")


@dataclass
class Disruptions:
    """What happens to the nodes of a life, by its chance.

    Attributes:
        seen: events that happened, by kind and step.
        quiet_looks: until the next event may begin.
        drained_looks: until drained nodes take pods again; 0 while none is drained.
    """

    chance: random.Random
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    quiet_looks: int = 10
    drained_looks: int = 0

    def happen(self, world: VirtualWorld) -> None:
        """Let the next event happen between two calls of the next looks, if its time has come."""
        if self.drained_looks:
            self.drained_looks -= 1
            if not self.drained_looks:
                world.uncordon()
        self.quiet_looks -= 1
        if self.quiet_looks > 0:
            return
        self.quiet_looks = self.chance.randint(2, 40)
        kind = self.chance.choice(("drain", "loss", "deletion", "late claims"))
        world.account.interrupt(lambda: self._act(world, kind), skip=self.chance.randint(0, 60))

    def _act(self, world: VirtualWorld, kind: str) -> None:
        """Let an event happen before whatever call comes next, if it means something at this
        step."""
        step = self._find_step(world)
        if kind == "late claims":
            claim_s, allocation_s = (self.chance.choice(LATE_S) for _ in range(2))
            world.cluster.timing = replace(
                world.cluster.timing, claim_s=claim_s, allocation_s=allocation_s
            )
        elif not step or self.count_disruptions() >= MAX_DISRUPTIONS or not world.find_running():
            return
        elif kind == "drain":
            world.drain()
            self.drained_looks = self.chance.randint(1, MAX_DRAIN_S // LOOK_S)
        elif kind == "loss":
            world.lose_node()
        else:
            world.delete_server(self.chance.choice((BASELINE, VARIANT)))
        world.settle()
        self.seen[kind, step.rstrip("-0123456789")] += 1

    def count_disruptions(self) -> int:
        return sum(count for (kind, _), count in self.seen.items() if kind != "late claims")

    def _find_step(self, world: VirtualWorld) -> str:
        """Return the step at work if its servers matter, else an empty text."""
        steps = [step for step, state, _ in world.list_steps() if state == "running"]
        return next((step for step in steps if step.startswith(SERVING_STEPS)), "")


@dataclass(frozen=True)
class KilledLife:
    """One life at its end."""

    world: VirtualWorld
    record: dict
    kills: int
    events: Counter[tuple[str, str]]

    @property
    def is_fenced(self) -> bool:
        """Whether the reaper fenced the fleet."""
        return self.world.account.read("stop.json") is not None


def live_with_kills(seed: int, kills: int) -> KilledLife:
    """Live a run whose runner is killed so often, and whose nodes are disrupted."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    world = VirtualWorld(stored=FULL_BUCKET if chance.random() < 0.7 else set())
    if chance.random() < 0.3:
        world.account.odds = {"*": 0.03}
    if chance.random() < 0.3:
        world.account.loses = 0.02
    world.account.chance = chance
    world.ask(rounds=4, control_rounds=chance.choice((0, 1)), starts=chance.choice((1, 1, 2)))
    disruptions = Disruptions(chance)
    runner_kills = RunnerKills(chance, GAPS, kills)

    def disturb(world: VirtualWorld) -> None:
        disruptions.happen(world)
        runner_kills.look(world)

    world.live(until=disturb)
    return KilledLife(world, calm(world), runner_kills.done, disruptions.seen)


def hold_life(seed: int, kills: int) -> KilledLife:
    life = live_with_kills(seed, kills)
    world = life.world
    record = life.record
    steps = world.list_steps()
    if life.is_fenced:
        hold_fenced_life(seed, life)
        return life
    assert world.is_empty, (seed, record, steps[-3:], world.log[-5:])
    assert record["state"] == "judged", (seed, record["state"], record["reason"], life.events)
    assert record["verdict"] == "qwen-sd-vllm is faster"
    rounds = [step for step, state, _ in steps if step.startswith("round-") and state == "done"]
    assert len(rounds) == record["rounds_total"], (seed, steps)
    assert sorted(number for number, _ in world.judged.confirmed) == list(
        range(record["rounds_total"])
    )
    return life


def hold_fenced_life(seed: int, life: KilledLife) -> None:
    """Hold a life whose raise failed for so long that the reaper fenced its empty lease, as it
    should."""
    world = life.world
    record = life.record
    why = f"run {RUN} has a lease and its fleet is at 0"
    assert (record["state"], why in record["reason"]) == ("ended", True), (seed, record["reason"])
    assert world.find_step("raise")[1] == "failed", seed
    assert [world.account.alive, world.store.list_objects("jobs"), world.list_servers()] == [
        [],
        [],
        [],
    ], seed


def live_without_raise() -> KilledLife:
    """Live a run whose raise EKS throttles until the reaper fences its lease."""
    world = VirtualWorld(stored=FULL_BUCKET)
    world.account.odds = {"eks.update_nodegroup_config": 1}
    world.ask()
    return KilledLife(world, world.live(), 0, Counter())


def test_raise_that_is_kept_away_ends_with_its_sentence():
    hold_fenced_life(0, live_without_raise())


@pytest.mark.parametrize("seed", range(SHORT_LIVES))
def test_killed_runner_leaves_nothing(seed):
    hold_life(seed, 8)


@pytest.mark.proof
def test_two_thousand_kills():
    base = draw_seed("kills of the runner")
    kills = lives = passes = fence_lives = 0
    events = Counter[tuple[str, str]]()
    while kills < PROOF_KILLS:  # some lives end before all that was planned
        life = hold_life(base + lives, PROOF_KILLS_A_LIFE)
        kills += life.kills
        lives += 1
        passes += life.world.passes
        fence_lives += life.is_fenced
        events += life.events
    counts = Counter[str]()
    for (kind, _), count in events.items():
        counts[kind] += count
    sys.stderr.write(
        f"{kills} kills in {lives} lives, {passes} passes of the reaper, {fence_lives} fenced; "
    )
    sys.stderr.write(f"{dict(counts)}: {dict(events)}\n")
