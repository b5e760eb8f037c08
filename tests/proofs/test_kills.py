"""Real processes of `upload` and `stage`, killed at random moments, beside a reader that never
rests: 50 times each.

`make test` kills each once or in a row, with a seed that stays.
"""

from __future__ import annotations

import random

import pytest
from killing import Bench, build_upload_command, difference, serve_stage_command

MIB = 1 << 20
SHORT_SEED = 4_071_969
MODEL = "tandem-proof/tiny"
COMMIT = "5" * 40


@pytest.fixture
def command(name, size_mib, endpoint, tmp_path):
    if name == "upload":
        yield build_upload_command(endpoint, tmp_path, rank_bytes=size_mib * MIB)
        return
    with serve_stage_command(tmp_path, MODEL, COMMIT, size_mib * MIB) as command:
        yield command


@pytest.mark.parametrize(
    ("name", "wanted", "size_mib"),
    [
        ("upload", 1, 12),
        ("stage", 1, 16),
        *(pytest.param(name, 50, 40, marks=pytest.mark.proof) for name in ("upload", "stage")),
    ],
)
def test_killed_at_random_moments_the_end_is_the_same_bytes(
    name, wanted, command, endpoint, proxy, chance, report, tmp_path
):
    chance = random.Random(SHORT_SEED) if wanted == 1 else chance  # noqa: S311 - no secret
    bench = Bench(endpoint=endpoint, proxy=proxy, command=command, home=tmp_path)
    state = bench.undisturbed()
    assert [
        key
        for key, (body, *_) in state.items()
        if key.endswith("lease.json") and b'"released"' not in body
    ] == []
    kills = 0
    trials = 0
    looks = 0
    broken = 0
    twice = 0
    while kills < wanted:
        trial = bench.killed(chance)
        line = f"{name} after {', '.join(trial.moments)}: "
        assert trial.code == 0, line + trial.said
        assert difference(trial.state, bench.expected) == "", line
        assert (trial.uploads, trial.sent_twice, trial.broken_promises) == ([], [], []), line
        kills = kills + trial.killed
        trials = trials + 1
        looks = looks + trial.looks
        broken = broken + len(trial.broken_promises)
        twice = twice + len(trial.sent_twice)
        endpoint.client("s3").delete_objects(
            Bucket=trial.bucket, Delete={"Objects": [{"Key": key} for key in trial.state]}
        )

    report(
        kills_of_a_running_process=kills,
        runs_to_an_end=trials,
        requests_of_an_undisturbed_run=bench.requests,
        bytes_in_the_end=sum(len(body) for body, *_ in bench.expected.values()),
        looks_of_the_reader=looks,
        files_not_whole_below_a_manifest=broken,
        whole_files_sent_twice=twice,
    )
