"""Kills of real processes in whole runs: runner, servers, Jobs; every life ends at zero, with the word of all."""

from __future__ import annotations

import os
import random
import sys

import pytest
from test_run_life import run, world  # noqa: F401 - fixtures

pytestmark = [pytest.mark.endpoint, pytest.mark.proof, pytest.mark.xdist_group("run-life")]
KILLS = 30
COMPONENTS = ("runner", "runner", "server", "bench", "compile", "stage")


def test_thirty_kills_of_real_processes(run):  # noqa: F811
    seed = int(os.environ.get("TANDEM_PROOF_SEED") or random.SystemRandom().randrange(1 << 30))
    sys.stderr.write(f"\nkills of real processes: SEED={seed}\n")
    chance, states = random.Random(seed), list[str]()  # noqa: S311 - repeatable, not secret
    for _ in range(KILLS):
        component = chance.choice(COMPONENTS)
        moment = component if component in {"compile", "stage"} and not states else "bench"
        component = component if moment == component or component not in {"compile", "stage"} else "runner"
        record, result = run(killed_component=component, moment=moment, moment_s=chance.choice((0, 1, 3, 8)))
        assert record["state"] == "judged", (component, record["reason"], result.stdout)
        states.append(record["state"])
    sys.stderr.write(f"{len(states)} kills, {states.count('judged')} judged\n")
