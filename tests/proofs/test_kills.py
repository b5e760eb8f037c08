"""Real processes of `upload` and `stage`, killed at 50 random moments each, beside a reader that never rests."""

from __future__ import annotations

import shutil

import pytest
from compiled import TARGET, variables, write_artifact, write_outcome
from doubles.checkpoint import RandomCheckpoint
from doubles.fault_proxy.rules import FaultRule, SlowAnswerFault
from doubles.hub.server import LocalHub
from killing import PLACEHOLDER, Bench, Command, difference

pytestmark = pytest.mark.proof
MIB = 1 << 20

KILLS = 50
MODEL, COMMIT = "tandem-proof/tiny", "5" * 40


@pytest.fixture
def upload(endpoint, tmp_path):
    """Two ranks of three parts each, a graph, a configuration."""
    artifact = write_artifact(tmp_path / "artifact", rank_bytes=40 * MIB)
    work = write_outcome(tmp_path / "work")
    staged = f"models/{TARGET.replace('@', '/')}/tandem-manifest.json"
    return Command(
        argv=lambda bucket, _: ["upload", "--bucket", bucket, "--artifact", str(artifact), "--work", str(work)],
        environment=variables(),
        prepare=lambda bucket: endpoint.client("s3").put_object(Bucket=bucket, Key=staged, Body=PLACEHOLDER),
    )


@pytest.fixture
def stage(tmp_path):
    """Two shards of two parts each from a hub over HTTP, and small files; now and then another pod's empty disk."""
    RandomCheckpoint.from_size(40 * MIB, shards=2).write(tmp_path / "hub" / MODEL / COMMIT)

    def work(trial):
        return tmp_path / "work" / str(trial)

    def another_disk(chance, trial):
        if chance.random() < 0.5:
            shutil.rmtree(work(trial), ignore_errors=True)

    with LocalHub(tmp_path / "hub", FaultRule(path="/cdn/*", fault=SlowAnswerFault(bytes_per_s=60_000_000))) as hub:
        yield Command(
            argv=lambda bucket, trial: ["stage", "--bucket", bucket, "--model", MODEL, "--revision", COMMIT,
                                        "--work", str(work(trial))],
            environment={"TANDEM_HOLDER": "stage-proof-1", "HF_ENDPOINT": hub.url}, between=another_disk,
        )  # fmt: skip


@pytest.mark.parametrize("name", ["upload", "stage"])
def test_killed_at_random_moments_the_end_is_the_same_bytes(name, request, endpoint, proxy, chance, report, tmp_path):
    bench = Bench(endpoint=endpoint, proxy=proxy, command=request.getfixturevalue(name), home=tmp_path)
    bench.undisturbed()
    kills, trials, looks, broken, twice = 0, 0, 0, 0, 0
    while kills < KILLS:
        trial = bench.killed(chance)
        said = f"after {', '.join(trial.moments)}: "
        assert trial.code == 0, said + trial.said
        assert difference(trial.state, bench.expected) == "", said
        assert (trial.uploads, trial.sent_twice, trial.broken_promises) == ([], [], []), said
        kills, trials, looks = kills + trial.killed, trials + 1, looks + trial.looks
        broken, twice = broken + len(trial.broken_promises), twice + len(trial.sent_twice)
        endpoint.client("s3").delete_objects(
            Bucket=trial.bucket, Delete={"Objects": [{"Key": key} for key in trial.state]}
        )

    report(
        kills_of_a_running_process=kills, runs_to_an_end=trials, requests_of_an_undisturbed_run=bench.requests,
        bytes_in_the_end=sum(len(body) for body, *_ in bench.expected.values()), looks_of_the_reader=looks,
        files_not_whole_below_a_manifest=broken, whole_files_sent_twice=twice,
    )  # fmt: skip
