"""A stage and an upload that are killed end as ones that were not, and no reader ever sees half of a set."""

from __future__ import annotations

import random
import shutil

import pytest
from compiled import TARGET, variables, write_artifact, write_outcome
from doubles.checkpoint import MIB, RandomCheckpoint
from doubles.fault_proxy.rules import FaultRule, SlowAnswerFault
from doubles.hub.server import LocalHub
from killing import PLACEHOLDER, Bench, Command, difference
from staging_inputs import COMMIT, MODEL

pytestmark = pytest.mark.endpoint
SEED = 4_071_969
KILLS = 2  # proofs/ kill each fifty times


@pytest.fixture
def upload(endpoint, tmp_path):
    """Two ranks of two parts each, a graph, a configuration."""
    artifact = write_artifact(tmp_path / "artifact", rank_bytes=12 * MIB)
    work = write_outcome(tmp_path / "work")
    model = f"models/{TARGET.replace('@', '/')}/tandem-manifest.json"
    return Command(
        argv=lambda bucket, _: ["upload", "--bucket", bucket, "--artifact", str(artifact), "--work", str(work)],
        environment=variables(),
        prepare=lambda bucket: endpoint.client("s3").put_object(Bucket=bucket, Key=model, Body=PLACEHOLDER),
    )


@pytest.fixture
def stage(tmp_path):
    """Two shards of two parts each, and small files; now and then another pod's empty disk."""
    RandomCheckpoint.from_size(24 * MIB, shards=2).write(tmp_path / "hub" / MODEL / COMMIT)

    def work(trial):
        return tmp_path / "work" / str(trial)

    def change_disk(chance, trial):
        if chance.random() < 0.5:
            shutil.rmtree(work(trial), ignore_errors=True)

    words = ["stage", "--model", MODEL, "--revision", COMMIT]
    with LocalHub(tmp_path / "hub", FaultRule(path="/cdn/*", fault=SlowAnswerFault(bytes_per_s=60_000_000))) as hub:
        yield Command(
            argv=lambda bucket, trial: [*words, "--bucket", bucket, "--work", str(work(trial))],
            environment={"TANDEM_HOLDER": "stage-1", "HF_ENDPOINT": hub.url},
            between=change_disk,
        )


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
