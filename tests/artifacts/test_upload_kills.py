"""An upload that is killed ends as one that was never killed; proofs/ kill it far more often."""

from __future__ import annotations

import random

import pytest
from compiled import KEY, TARGET, variables, write_artifact, write_outcome
from killing import PLACEHOLDER, Bench, Command, difference

pytestmark = pytest.mark.endpoint
SEED = 4
MIB = 1 << 20
KILLS = 2


@pytest.fixture
def bench(endpoint, proxy, tmp_path):
    artifact = write_artifact(tmp_path / "artifact", rank_bytes=20 * MIB)
    work = write_outcome(tmp_path / "work")
    staged = f"models/{TARGET.replace('@', '/')}/tandem-manifest.json"
    return Bench(
        endpoint=endpoint, proxy=proxy, home=tmp_path,
        command=Command(
            argv=lambda bucket, _: ["upload", "--bucket", bucket, "--artifact", str(artifact), "--work", str(work)],
            environment=variables(),
            prepare=lambda bucket: endpoint.client("s3").put_object(Bucket=bucket, Key=staged, Body=PLACEHOLDER),
        ),
    )  # fmt: skip


def test_killed_at_random_moments_an_upload_ends_in_the_same_bytes(bench):
    bench.undisturbed()
    chance = random.Random(SEED)  # noqa: S311 - a moment is no secret

    trials = [bench.killed(chance) for _ in range(KILLS)]

    assert [(trial.code, difference(trial.state, bench.expected)) for trial in trials] == [(0, "")] * KILLS
    assert [(trial.uploads, trial.sent_twice, trial.broken_promises) for trial in trials] == [([], [], [])] * KILLS
    assert sum(trial.killed for trial in trials) >= 1


def test_an_undisturbed_upload_leaves_the_files_the_manifest_and_a_free_lease(bench):
    state = bench.undisturbed()

    names = sorted(key.rpartition("/")[2] for key in state if key.startswith(KEY.prefix))
    assert names == ["model.pt", "neuron_config.json", "tandem-lease.json", "tandem-manifest.json",
                     "tp0_sharded_checkpoint.safetensors", "tp1_sharded_checkpoint.safetensors"]  # fmt: skip
    assert b'"state": "released"' in state[f"{KEY.prefix}/tandem-lease.json"][0]
