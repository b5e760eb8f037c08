"""Real processes in bad weather: throttling, 500s, dropped connections, lost answers, cut answers,
lost parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compiled import HOLDER, KEY, TARGET, variables, write_artifact, write_outcome
from doubles.fault_proxy.rules import (
    INTERNAL_ERROR_FAULT,
    SLOW_DOWN_FAULT,
    AnswerCutFault,
    AnswerLossFault,
    DropFault,
    FaultRule,
    StatusFault,
)
from killing import PLACEHOLDER, Bench, Command, Reader, Trial, difference

from tandem.artifacts.manifest import LEASE_NAME

pytestmark = pytest.mark.proof
MIB = 1 << 20

RUNS = 20
MOST_TRIES = 10
LEASE = f"{KEY.prefix}/{LEASE_NAME}"
LEASE_S = 3  # a writer that dies while it holds the lease costs the other this and two seconds


@pytest.fixture
def bench(endpoint, proxy, tmp_path):
    artifact = write_artifact(tmp_path / "artifact", rank_bytes=40 * MIB)
    work = write_outcome(tmp_path / "work")
    manifest_key = f"models/{TARGET.replace('@', '/')}/tandem-manifest.json"
    bench = Bench(
        endpoint=endpoint,
        proxy=proxy,
        home=tmp_path,
        command=Command(
            argv=lambda bucket, _: [
                "upload",
                "--bucket",
                bucket,
                "--artifact",
                str(artifact),
                "--work",
                str(work),
                "--lease-s",
                f"{LEASE_S}",
            ],
            environment=variables(),
            prepare=lambda bucket: endpoint.client("s3").put_object(
                Bucket=bucket, Key=manifest_key, Body=PLACEHOLDER
            ),
        ),
    )
    bench.undisturbed()
    return bench


def weather(seed, probability):
    """Every request may meet one of these; each rule draws by itself."""
    faults = {
        "slow down": FaultRule(fault=SLOW_DOWN_FAULT),
        "internal error": FaultRule(fault=INTERNAL_ERROR_FAULT),
        "dropped": FaultRule(fault=DropFault()),
        "answer lost": FaultRule(fault=AnswerLossFault()),
        "answer cut": FaultRule(fault=AnswerCutFault(), method="GET"),
        "part lost": FaultRule(
            fault=StatusFault(status=400, code="InvalidPart"), operation="CompleteMultipartUpload"
        ),
        "upload lost": FaultRule(
            fault=StatusFault(status=404, code="NoSuchUpload"), operation="UploadPart"
        ),
        "conflict": FaultRule(
            fault=StatusFault(status=409, code="ConditionalRequestConflict"),
            operation="PutObject",
            path="*.json",
        ),
    }
    return {
        name: replace(rule, probability=probability, seed=seed + number)
        for number, (name, rule) in enumerate(faults.items())
    }


def besides(state, keys):
    """A bucket's state without these objects."""
    return {key: content for key, content in state.items() if key not in keys}


@pytest.mark.parametrize("probability", [0.02, 0.1])
def test_in_bad_weather_the_end_is_the_same_bytes(probability, bench, proxy, chance, report):
    meetings = {}
    tries_of = []
    failures = 0
    broken = 0
    leftovers = 0
    for _ in range(RUNS):
        trial = Trial(bucket=bench.new_bucket())
        rules = weather(chance.randrange(10**6), probability)
        proxy.use(*rules.values())
        proxy.forget()
        with Reader(bench.endpoint, trial.bucket) as reader:
            tries = 0
            while tries < MOST_TRIES:
                tries += 1
                trial.code = bench.start(trial.bucket, 0).wait(120)
                # done, or an external service failed
                assert trial.code in {0, 3}, bench.said(trial.bucket)
                if trial.code == 0:
                    break
                failures += 1
        for name, times in zip(rules, proxy.fault_counts, strict=True):
            meetings[name] = meetings.get(name, 0) + times
        proxy.use()
        tries_of.append(tries)
        bench.look(trial, reader)
        output = bench.said(trial.bucket)
        assert "Traceback" not in output
        # no try of it went through: it ends by itself
        left = {LEASE} if "lease not released" in output else set()
        leftovers += len(left)
        assert (
            trial.code,
            difference(besides(trial.state, left), besides(bench.expected, left)),
        ) == (0, "")
        assert trial.broken_promises == []
        broken += len(trial.broken_promises)

    report(
        runs=RUNS,
        faults_met=f"{sum(meetings.values())} ({', '.join(f'{name} {n}' for name, n in meetings.items())})",
        runs_that_gave_up_and_were_begun_again=failures,
        most_runs_for_one_end=max(tries_of),
        leases_left_to_end_by_themselves=leftovers,
        files_not_whole_below_a_manifest=broken,
    )


def test_two_writers_of_one_key_at_once_of_which_one_is_killed(bench, proxy, chance, report):
    """Two Jobs of one key, started together; one of them may die at any moment and is started
    again.

    The other takes the lease over when it has ended by S3's clock.
    """
    wins = {HOLDER: 0, "compile-tiny-other": 0}
    kills = 0
    for _ in range(RUNS):
        trial = Trial(bucket=bench.new_bucket())
        proxy.forget()
        with Reader(bench.endpoint, trial.bucket) as reader:
            both = {holder: bench.start(trial.bucket, 0, TANDEM_HOLDER=holder) for holder in wins}
            victim = chance.choice(list(both))
            try:
                both[victim].wait(chance.uniform(0, 2 * bench.seconds))
            except Exception:  # noqa: BLE001 - it still runs
                both[victim].kill()
            kills += both[victim].wait() == -9
            codes = [process.wait(120) for holder, process in both.items() if holder != victim]
            codes.append(bench.start(trial.bucket, 0, TANDEM_HOLDER=victim).wait(200))
        bench.look(trial, reader)
        assert (codes, trial.broken_promises) == ([0, 0], []), bench.said(trial.bucket)
        manifests = [
            body
            for key, (body, _, _) in trial.state.items()
            if key == f"{KEY.prefix}/tandem-manifest.json"
        ]
        assert len(manifests) == 1
        winner = next(holder for holder in wins if f'"run": "{holder}"'.encode() in manifests[0])
        wins[winner] += 1

    report(
        rounds=RUNS,
        killed=kills,
        **{
            f"won_by_{'first' if holder == HOLDER else 'second'}": times
            for holder, times in wins.items()
        },
    )
