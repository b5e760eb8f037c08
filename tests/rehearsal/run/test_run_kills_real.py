"""Kills of real processes in whole runs: runner, servers, Jobs, endpoint; every life ends at zero
with its own word.

A life draws two or three of them, each at a moment of its own; SEED=N of `make proof` repeats what
is drawn.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter

import pytest

from rehearsal.run.settings import RunFaults
from tandem.declarations.system_jobs import JUDGE_JOB

pytestmark = [pytest.mark.endpoint, pytest.mark.proof, pytest.mark.xdist_group("run-life")]
KILLS = 30
# in the order of a run's steps
MOMENTS = ("stage", "compile", "server", "bench", "bench", "bench", JUDGE_JOB)
ENDPOINT = "endpoint"
NEW_MOMENTS = {"stage", "compile"}  # they come only where nothing is stored yet
A_START_THAT_ARMS_NO_STOP = """
import sys
if "tandem.run" in sys.orig_argv:
    from tandem.guard import fleet_start
    fleet_start._FleetStart.arm_stop = lambda _: "arn"
"""


def draw_faults(chance: random.Random) -> list[RunFaults]:
    """Draw what is killed at which moments, the earliest first."""
    places = sorted(chance.sample(range(len(MOMENTS)), chance.choice((2, 3))))
    faults = list[RunFaults]()
    for moment in (MOMENTS[place] for place in places):
        component = chance.choice((moment, moment, "runner", ENDPOINT))
        what = (
            {"endpoint_down_s": chance.choice((1.0, 5.0))}
            if component == ENDPOINT
            else {"killed_component": component}
        )
        faults.append(RunFaults(moment=moment, moment_s=chance.choice((0.0, 0.5, 2.0)), **what))
    return faults


def test_thirty_kills_of_real_processes(lives):
    seed = int(os.environ.get("TANDEM_PROOF_SEED") or random.SystemRandom().randrange(1 << 30))
    sys.stderr.write(f"\nkills of real processes: SEED={seed}\n")
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    kills = Counter[str]()
    ends = Counter[str]()
    words = lives.hold_end(lives.live())
    assert "faster" in words.values()
    while kills.total() < KILLS:
        faults = draw_faults(chance)
        life = lives.live(faults=faults, is_new=faults[0].moment in NEW_MOMENTS)
        what = [
            f"{fault.killed_component or ENDPOINT} at {fault.moment} + {fault.moment_s} s"
            for fault in life.acting_faults
        ]
        sys.stderr.write(
            f"{life.name}: {', '.join(what)}: {life.record['state']} {life.record['reason']}\n"
        )
        life_words = lives.hold_end(life)
        assert life.record["state"] in {"judged", "void"}, (
            life.acting_faults,
            life.record,
            life.output,
        )
        others = {
            cell: word
            for cell, word in life_words.items()
            if word not in {words[cell], "no evidence"}
        }
        assert {
            cell: word for cell, word in others.items() if words[cell] != "no evidence"
        } == {}, life.acting_faults
        kills.update(fault.killed_component or ENDPOINT for fault in life.acting_faults)
        ends[life.record["state"]] += 1
    rows = ", ".join(f"{count} {what}" for what, count in sorted(kills.items()))
    sys.stderr.write(f"{kills.total()} kills ({rows}) in {ends.total()} lives: {dict(ends)}\n")


def test_a_start_that_arms_no_stop_is_caught(lives, change_runner):
    change_runner(A_START_THAT_ARMS_NO_STOP)
    life = lives.live("--rounds", "1", faults=[RunFaults(killed_component="bench", moment="bench")])
    assert life.unguarded_ids != ()
    with pytest.raises(AssertionError):
        lives.hold_end(life)
