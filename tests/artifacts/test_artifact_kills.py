"""A stage and an upload that are killed end as ones that were not, and no reader ever sees half of a set."""

from __future__ import annotations

import random

import pytest
from killing import Bench, build_upload_command, difference, serve_stage_command
from staging_inputs import COMMIT, MODEL

from rehearsal.checkpoint import MIB

pytestmark = pytest.mark.endpoint
SEED = 4_071_969
KILLS = 2  # proofs/ kill each fifty times


@pytest.fixture
def upload(endpoint, tmp_path):
    return build_upload_command(endpoint, tmp_path, rank_bytes=12 * MIB)


@pytest.fixture
def stage(tmp_path):
    with serve_stage_command(tmp_path, MODEL, COMMIT, 24 * MIB) as command:
        yield command


@pytest.mark.parametrize("name", ["upload", "stage"])
def test_killed_at_random_moments_the_end_is_the_same_bytes(name, request, endpoint, proxy, tmp_path):
    bench = Bench(endpoint=endpoint, proxy=proxy, home=tmp_path, command=request.getfixturevalue(name))
    chance, state = random.Random(SEED), bench.undisturbed()  # noqa: S311 - a moment is no secret
    trials = [bench.killed(chance) for _ in range(KILLS)]

    assert [
        body for key, (body, _, _) in state.items() if key.endswith("lease.json") and b'"released"' not in body
    ] == []
    assert [(trial.code, difference(trial.state, bench.expected)) for trial in trials] == [(0, "")] * KILLS
    assert [(trial.uploads, trial.sent_twice, trial.broken_promises) for trial in trials] == [([], [], [])] * KILLS
    assert sum(trial.killed for trial in trials) >= 1
