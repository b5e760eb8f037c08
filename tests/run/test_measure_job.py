"""The Job of one round against simulators and the local endpoint: what it measures, stores,
publishes and refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench_jobs import (
    PREFIX,
    RunJobs,
    aws,
    clients,
    encode_task,
    front,
    full_run,
    job,
    pair,
    proxy,
    put_object,
)
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule, StatusFault

from tandem.errors import ExternalError, InputError, SilentServerError

__all__ = ["aws", "clients", "front", "full_run", "job", "pair", "proxy"]
pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("bench-jobs")]
ROOT = Path(__file__).resolve().parents[2]
ROUND_OBJECTS = [
    "counters.jsonl",
    "manifest.json",
    "records.jsonl",
    "round.json",
    "rounds.jsonl",
    "warmup.jsonl",
]
DOWN = StatusFault(status=503, code="ServiceUnavailable")
END_S = 60


def name_round(number: int) -> list[str]:
    """Names of the objects of a round that was measured."""
    return [f"rounds/{number:05}/1/{name}" for name in ROUND_OBJECTS]


def test_a_round_is_stored_and_its_word_last(job, proxy):
    assert job.measure(0) == 0

    stores = [request.path.rpartition("/")[2] for request in proxy.requests("PutObject")]
    result = json.loads(job.read("rounds/00000/1/round.json"))
    assert job.list() == name_round(0)
    assert (len(stores), stores[-1]) == (len(ROUND_OBJECTS), "round.json")
    assert result.pop("duration_s") > 0
    assert result.pop("environment") == job.environment
    assert result == {
        "schema": 1,
        "number": 0,
        "attempt": 1,
        "requests": 6,
        "failed": 0,
        "is_simulated": True,
    }
    assert {record.round for record in job.records()} == {0}
    assert proxy.requests("PutMetricData") == ()


def test_each_job_publishes_the_rounds_before_its_own(full_run):
    markers = [f"published/{full_run.environment}/round-0000{number}.json" for number in (0, 1)]
    assert full_run.list("published") == markers
    assert full_run.list("records/") == [f"records/round-0000{number}.jsonl" for number in (0, 1)]
    assert full_run.read("records/round-00001.jsonl") == full_run.read(
        "rounds/00001/1/records.jsonl"
    )


def test_figures_of_simulated_servers_go_to_a_namespace_apart(full_run, endpoint):
    names = {
        metric["Namespace"] for metric in endpoint.client("cloudwatch").list_metrics()["Metrics"]
    }
    assert {name for name in names if full_run.environment in name} == {
        f"Tandem/Simulated/{full_run.environment}"
    }


def test_only_the_confirmed_attempt_of_a_round_counts(job):
    assert job.measure(0) == 0
    assert job.measure(1, 1, is_confirmed=False) == 0
    assert job.measure(1, 2) == 0
    assert job.measure(2) == 0

    first, second = (job.read(f"rounds/00001/{attempt}/records.jsonl") for attempt in (1, 2))
    content = (job.folder / "records.jsonl").read_bytes()
    assert second in content
    assert first not in content
    assert len({record.request_id for record in job.records()}) == len(job.records()) == 18


def test_what_cannot_be_published_loses_no_round(job, proxy, capsys):
    assert job.measure(0) == 0
    proxy.use(FaultRule(fault=ACCESS_DENIED_FAULT, operation="PutMetricData"))
    assert job.measure(1) == 0

    assert job.list("published") == []
    assert set(name_round(1)) <= set(job.list())
    assert "not published yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    "operation", ["PutObject", pytest.param("GetObject", marks=pytest.mark.proof)]
)
def test_s3_may_be_down_for_a_while(job, proxy, capsys, operation):
    assert job.measure(0) == 0
    proxy.use(FaultRule(fault=DOWN, operation=operation, path="*/rounds/*", times=24))
    assert job.measure(1) == 0
    assert set(name_round(1)) <= set(job.list())
    assert len(job.records()) == 12
    assert "trying again" in capsys.readouterr().out


def test_s3_that_stays_down_leaves_no_round(job, proxy, monkeypatch):
    monkeypatch.setattr("tandem.run.round_records.S3_RETRY_S", 0.2)
    proxy.use(FaultRule(fault=DOWN, operation="PutObject", path="*round.json"))
    with pytest.raises(ExternalError):
        job.measure(0)
    proxy.use()

    assert "rounds/00000/1/round.json" not in job.list()
    assert job.measure(0, 2) == 0
    assert len(job.records()) == 6


def test_an_attempt_that_another_process_stored_is_not_taken_over(job):
    put_object(job.store, f"{PREFIX}rounds/00000/1/round.json", b"{}")
    with pytest.raises(ExternalError, match="another process stored this attempt"):
        job.measure(0)


def test_absent_server_leaves_no_round(job):
    job.urls = (job.urls[0], "http://127.0.0.1:1")
    with pytest.raises(SilentServerError, match="nothing answers"):
        job.measure(0)
    assert job.list() == []


def test_server_that_changed_since_the_first_round_is_refused(job):
    assert job.measure(0) == 0
    with pytest.raises(InputError, match=r"arms\[qwen-vllm\]\.image was null when this run began"):
        job.measure(1, arms=change_arms(job, image="other@sha256:1"))


def test_a_server_that_moved_keeps_each_round_s_own_half(job):
    assert job.measure(0, arms=change_arms(job, placement="first-half")) == 0
    assert job.measure(1, arms=change_arms(job, placement="second-half")) == 0
    places = {(record.round, record.placement) for record in job.records()}
    assert places == {(0, "first-half"), (1, "second-half")}


def change_arms(job: RunJobs, **changes: Any) -> tuple[Any, ...]:
    return tuple(msgspec.structs.replace(arm, **changes) for arm in job.task().arms)


@pytest.mark.parametrize(
    ("number", "attempt", "confirmed", "problem"),
    [
        (0, 2, ((0, 1),), "round 0 is confirmed already"),
        (3, 1, (), "the plan has no round 3; name one of its 3 rounds"),
        (1, 1, ((0, 9),), "round 0 is not stored whole: records.jsonl, counters.jsonl"),
    ],
)
def test_a_task_that_cannot_be_done_is_refused(job, number, attempt, confirmed, problem):
    with pytest.raises(InputError, match=problem):
        job.measure(number, attempt, confirmed=confirmed)
    assert job.list() == []


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("round.json", None, "round.json is missing"),
        ("records.jsonl", b"{}\n", "it has 1 records, and not those it counts"),
    ],
)
def test_a_torn_round_is_refused_as_the_confirmed_one(job, name, content, problem):
    assert job.measure(0) == 0
    key = f"{PREFIX}rounds/00000/1/{name}"
    job.store.delete([key])
    if content is not None:
        put_object(job.store, key, content)
    with pytest.raises(InputError, match=problem):
        job.measure(1)


def test_job_that_gets_sigterm_stores_no_round(job, proxy):
    proxy.use(FaultRule(fault=DOWN, operation="PutObject"))
    job.folder.parent.mkdir(exist_ok=True)
    variables = {"TANDEM_TASK": encode_task(job.task()), "AWS_MAX_ATTEMPTS": "1"}
    end_s = time.monotonic() + END_S
    with subprocess.Popen(
        [sys.executable, "-m", "tandem.run", "measure", "--folder", str(job.folder)],
        cwd=ROOT,
        text=True,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as running:
        try:
            while not proxy.requests("PutObject"):
                assert running.poll() is None, running.communicate()
                assert time.monotonic() < end_s
                time.sleep(0.005)
            running.send_signal(signal.SIGTERM)
            output, _ = running.communicate(timeout=END_S)
        finally:
            running.kill()

    assert running.returncode == 3
    assert "told to stop" in output.splitlines()[-1]
    assert job.list() == []
