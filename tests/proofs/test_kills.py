"""Real processes of `upload` and `stage`, killed at 50 random moments each, beside a reader that never rests."""

from __future__ import annotations

import pytest
from killing import Bench, build_upload_command, difference, serve_stage_command

pytestmark = pytest.mark.proof
MIB = 1 << 20

KILLS = 50
MODEL, COMMIT = "tandem-proof/tiny", "5" * 40


@pytest.fixture
def upload(endpoint, tmp_path):
    return build_upload_command(endpoint, tmp_path, rank_bytes=40 * MIB)


@pytest.fixture
def stage(tmp_path):
    with serve_stage_command(tmp_path, MODEL, COMMIT, 40 * MIB) as command:
        yield command


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
