"""Runners that freeze, are replaced and wake end no healthy run, tell no untrue reason, and leave
nothing.

About twenty freezes a life, each before any call of AWS or Kubernetes; in some lives no runner
lives for hours. SEED=N of `make proof` repeats a proof.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

import pytest
from frozen_runners import ABSENCE_HOURS, FreezePlan, FrozenWorld, sum_node_minutes
from runner_kills import draw_seed
from virtual_world import FULL_BUCKET

FREEZES = 20
PROOF_LIVES = 500
MAX_ENDS = 2
ABSENT_SHARE = 0.3
NODE_MINUTES = 3  # between the journal and EC2


@dataclass(frozen=True)
class FrozenLife:
    """One life at its end."""

    world: FrozenWorld
    record: dict

    @property
    def is_healthy(self) -> bool:
        """Whether nobody but a runner could end the run: the reaper had no reason to stop its
        fleet."""
        return self.world.account.read("stop.json") is None and self.record["state"] != "waiting"

    @property
    def minutes(self) -> tuple[float, float]:
        """The node-minutes of the journal, and EC2's."""
        return self.record["node_s"] / 60, sum_node_minutes(self.world.account.machines)

    def find_left(self) -> list[str]:
        """Return what the run left: instances, Jobs, pods and servers."""
        world = self.world
        servers = [
            body["metadata"]["name"]
            for body in world.store.view_objects("deployments")
            if body["spec"]["replicas"]
        ]
        jobs = [body["metadata"]["name"] for body in world.store.view_objects("jobs")]
        pods = [body["metadata"]["name"] for body in world.list_servers()]
        return [*(machine.id for machine in world.account.alive), *jobs, *pods, *servers]

    def is_reason_true(self) -> bool:
        """Tell whether a run that was not judged says what happened: the reaper's words, or that
        its lease is over."""
        fence = self.world.account.read("stop.json")
        reason = self.record["reason"]
        if self.record["state"] == "waiting":
            return "of the lease" in reason and self.world.plan.was_absent
        return fence is not None and fence["who"] in reason and fence["why"] in reason


def plan_freezes(seed: int, *, is_absent: bool | None = None) -> FreezePlan:
    """Return when the runners of a life freeze, and whether nobody lives for hours; None draws
    that."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    plan = FreezePlan(chance, FREEZES)
    is_absence = chance.random() < ABSENT_SHARE
    if is_absence if is_absent is None else is_absent:
        plan.absent_at = chance.randint(1, FREEZES)
        plan.absence = timedelta(hours=chance.choice(ABSENCE_HOURS))
    return plan


def live_frozen(seed: int, *, is_absent: bool | None = None) -> FrozenLife:
    """Live a run to its end, and until every frozen runner has woken."""
    plan = plan_freezes(seed, is_absent=is_absent)
    chance = plan.chance
    world = FrozenWorld(plan, stored=FULL_BUCKET if chance.random() < 0.7 else set())
    world.ask(rounds=4, control_rounds=chance.choice((0, 1)), starts=chance.choice((1, 1, 2)))
    try:
        return FrozenLife(world, world.live_on())
    finally:
        world.finish()


def hold_life(seed: int, *, is_absent: bool | None = None) -> FrozenLife:
    """Hold everything of a life but that a healthy run is judged."""
    life = live_frozen(seed, is_absent=is_absent)
    record = life.record
    assert life.find_left() == [], (seed, record["reason"])
    own, ec2 = life.minutes
    assert abs(own - ec2) <= NODE_MINUTES, (seed, own, ec2)
    assert [lease["doubt"] for lease in record["leases"] if lease["doubt"]] == [], seed
    if record["state"] == "judged":
        assert record["verdict"] == "qwen-sd-vllm is faster"
        assert sorted(number for number, _ in life.world.judged.confirmed) == list(
            range(record["rounds_total"])
        )
    return life


def hold_told_life(seed: int) -> FrozenLife:
    """Hold everything of a life; a run that was not judged says why, and it was nobody's runner."""
    life = hold_life(seed)
    assert life.record["state"] == "judged" or (not life.is_healthy and life.is_reason_true()), (
        life.record["reason"]
    )
    return life


@pytest.mark.parametrize("seed", range(2))
def test_frozen_runners_end_no_healthy_run(seed):
    life = hold_life(seed, is_absent=False)
    assert (life.record["state"], life.is_healthy) == ("judged", True), (
        seed,
        life.record["reason"],
    )


@pytest.mark.parametrize("seed", [5])
def test_hours_without_a_runner_are_told_as_they_were(seed):
    life = hold_life(seed, is_absent=True)
    assert life.record["state"] == "judged" or life.is_reason_true(), (seed, life.record["reason"])


@pytest.mark.proof
def test_ten_thousand_freezes():
    base = draw_seed("frozen runners")
    counts = Counter[str]()
    untrue = list[str]()
    ends = list[str]()
    widest = 0.0
    for seed in range(base, base + PROOF_LIVES):
        life = hold_life(seed)
        counts["freezes"] += life.world.plan.done
        counts["runners"] += life.world.runner_number
        counts["absences"] += life.world.plan.was_absent
        counts[life.record["state"]] += 1
        own, ec2 = life.minutes
        widest = max(widest, abs(own - ec2))
        if life.record["state"] == "judged":
            continue
        sentence = f"seed {seed}: {life.record['state']}, {life.record['reason']}"
        if life.is_healthy:
            ends.append(sentence)
        elif not life.is_reason_true():
            untrue.append(sentence)
    sys.stderr.write(f"{PROOF_LIVES} lives, {dict(counts)}, at most {widest:.2f} min from EC2's\n")
    sys.stderr.write(f"healthy runs ended: {ends}; untrue reasons: {untrue}\n")
    assert untrue == []
    assert len(ends) <= MAX_ENDS, ends
