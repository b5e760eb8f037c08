"""The Job that judges a run: what it stores, what it says in one sentence, and what of llmperf it
answers."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bench_jobs import (
    ARMS,
    WRITE_PAGE,
    RunJobs,
    aws,
    clients,
    front,
    full_run,
    hurry,
    job,
    pair,
    proxy,
    put_object,
    put_rounds,
)
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule, StatusFault
from measured import BURSTS, arm, record, write_run

from tandem.bench.records.manifest import ClockReading, Speculation
from tandem.bench.records.record import Chunk, RequestRecord
from tandem.cli.program import main
from tandem.errors import InputError
from tandem.run.round_records import download_results

__all__ = ["aws", "clients", "front", "full_run", "job", "pair", "proxy"]
pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("bench-jobs")]
RESULT_FILES = [
    "counters.jsonl",
    "judgment.json",
    "manifest.json",
    "rounds.jsonl",
    "summary.json",
    "verdict.json",
    "verdict.txt",
    "warmup.jsonl",
]
DOWN = StatusFault(status=503, code="ServiceUnavailable")
LLMPERF_JOB = "qwen-llmperf-0badca-1"
QUALITY_JOB = "tandem-quality-0badca-1"


def list_files(job: RunJobs) -> list[str]:
    """Names of the run's objects that are of no single round."""
    return [
        name for name in job.list() if not name.startswith(("rounds/", "records/", "published/"))
    ]


@pytest.fixture(scope="module")
def judgment_run(full_run):
    """The whole run and its judgment; its page is drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tandem.report.page.write_report", WRITE_PAGE)
        return full_run, full_run.judge()


def test_the_judge_stores_verdict_report_and_the_run_s_files(judgment_run):
    job, _ = judgment_run
    assert list_files(job) == sorted([*RESULT_FILES, "report.html"])
    assert job.list("records/") == [f"records/round-0000{number}.jsonl" for number in range(3)]
    assert len(job.list("published/")) == 3


def test_the_judgment_is_one_sentence_that_says_simulated(judgment_run):
    job, judgment = judgment_run
    sentence = judgment.pop("sentence")
    assert judgment.pop("evidence")
    assert judgment.pop("pair_verdict")
    assert judgment == {"schema": 1, "is_void": False, "exit_code": 0, "notes": []}
    assert sentence.startswith(
        "SIMULATED servers: End to end, qwen-sd-vllm is not shown to be faster"
    )
    assert sentence.endswith("4 can (--rounds).")
    assert job.read("verdict.txt").decode().startswith("SIMULATED SERVERS")
    assert b"<title>Simulated: " in job.read("report.html")


def test_a_downloaded_run_is_reported_on_as_it_was_judged(judgment_run, tmp_path, monkeypatch):
    job, _ = judgment_run
    folder = download_results(job.store, "post", "fall-1", tmp_path / "run", tuple(job.confirmed))
    expected = json.loads(job.read("verdict.json"))
    text = job.read("verdict.txt").decode()
    monkeypatch.setenv("COLUMNS", "80")
    with hurry():
        outputs = [run_report(str(folder), *flags) for flags in ((), ("--json",))]

    assert {path.name for path in folder.iterdir()} == {
        *RESULT_FILES,
        "records.jsonl",
        "report.html",
    }
    # then where more stands, and the path of the page
    assert outputs[0].splitlines()[:-2] == text.splitlines()
    assert json.loads(outputs[1]) == expected | {"exit_code": 0}
    assert expected["run"] == "fall-1"


def run_report(*flags: str) -> str:
    with redirect_stdout(io.StringIO()) as output:
        assert main(["bench", "report", *flags]) == 0
    return output.getvalue()


@pytest.mark.parametrize(
    ("confirmed", "problem"),
    [(((0, 1),), "the folder is not empty"), ((), "no round of this run is confirmed")],
)
def test_a_download_needs_a_new_folder_and_a_round(judgment_run, tmp_path, confirmed, problem):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(InputError, match=problem):
        download_results(judgment_run[0].store, "post", "fall-1", tmp_path, confirmed)


def test_broken_download_leaves_no_folder(job, tmp_path):
    assert job.measure(0) == 0
    folder = tmp_path / "run"
    wrong = ((0, 1), (1, 1))
    with pytest.raises(InputError, match="round 1 is not stored whole"):
        download_results(job.store, "post", "fall-1", folder, wrong)
    assert not folder.exists()
    assert download_results(job.store, "post", "fall-1", folder, ((0, 1),)) == folder
    assert (folder / "records.jsonl").read_bytes() == job.read("rounds/00000/1/records.jsonl")


def test_a_run_without_a_round_is_refused(job):
    with pytest.raises(InputError, match="no round is confirmed"):
        job.judge()
    assert job.list() == []


def test_unpublished_run_is_judged_with_a_note(job, proxy):
    assert job.measure(0) == 0
    proxy.use(FaultRule(fault=ACCESS_DENIED_FAULT, operation="PutMetricData"))
    judgment = job.judge()
    proxy.use()

    assert ["PutMetricData" in note for note in judgment["notes"]] == [True]
    assert list_files(job) == RESULT_FILES
    assert job.list("published/") == []
    assert job.judge()["notes"] == []
    assert job.list("published/") == [f"published/{job.environment}/round-00000.json"]


def test_judgment_is_stored_last_when_s3_was_down(job, proxy):
    assert job.measure(0) == 0
    proxy.use(FaultRule(fault=DOWN, operation="PutObject", path="*verdict*", times=20))
    job.judge()
    stores = [request.path.rpartition("/")[2] for request in proxy.requests("PutObject")]
    assert stores[-1] == "judgment.json"


def test_run_with_missing_rounds_has_its_exit_code(job):
    assert job.measure(0) == 0
    assert job.judge()["exit_code"] == 1
    assert job.judge()["is_void"] is False


def answer_times(name: str, factor: float, round_: int, prompt: int) -> RequestRecord:
    """An answer of so many times the usual duration."""
    chunks = tuple(Chunk(chunk.at_s * factor, chunk.kind, chunk.tokens) for chunk in BURSTS)
    return record(
        request_id=f"{name}.r{round_}.b0.{prompt}",
        arm=name,
        round=round_,
        prompt_id=f"repeat-{prompt:02}",
        class_="repeat",
        chunks=chunks,
        headers_s=0.05 * factor,
        end_s=0.3 * factor,
        start_s=1000.0 + 100 * round_ + prompt,
        slot=0 if name == ARMS[0] else 1,
    )


def write_crafted(folder: Path, control_factor: float, **changes: Any) -> Path:
    """Four rounds of twelve prompts in which the variant halves every time, and a control round
    between them."""
    pairs = dict.fromkeys((0, 1, 3, 4), (ARMS[1], 0.5)) | {2: (f"{ARMS[0]}#2", control_factor)}
    records = [
        answer_times(name, factor * (1 + 0.001 * prompt), number, prompt)
        for number, measurement in sorted(pairs.items())
        for prompt in range(12)
        for name, factor in ((ARMS[0], 1.0), measurement)
    ]
    arms = (arm(ARMS[0], role="baseline"), arm(ARMS[1]))
    return write_run(
        folder,
        records,
        **{"arms": arms, "rounds": 4, "control_rounds": 1, "run": "fall-1", **changes},
    )


def test_a_void_run_is_judged_void(job, tmp_path):
    put_rounds(job, write_crafted(tmp_path / "crafted", 2.0))
    judgment = job.judge()
    assert judgment["is_void"] is True
    assert judgment["exit_code"] == 4
    assert judgment["sentence"].startswith(
        "The run is void, so nothing is concluded: asked twice, qwen-vllm differs"
    )


def test_run_of_real_servers_says_nothing_of_simulation(job, tmp_path):
    put_rounds(job, write_crafted(tmp_path / "crafted", 1.0))
    sentence = job.judge()["sentence"]
    assert sentence.startswith(
        "End to end, qwen-sd-vllm is 2.00 times as fast as qwen-vllm over all prompts ("
    )


def put_llmperf(job: RunJobs, folder: Path) -> None:
    """Store what the post's generator left of eight calls, in which the variant's answers take half
    the time."""
    records = []
    for call in range(8):
        for name, factor in ((ARMS[0], 1.0), (ARMS[1], 0.5)):
            for number in range(8):
                end_s = (2.0 + 0.01 * number + 0.001 * call) * factor
                first_s = 0.1 + 0.0001 * (number + call)
                records.append(
                    record(
                        request_id=f"llmperf-{name}-{call}-{number}",
                        generator="llmperf",
                        class_="llmperf",
                        arm=name,
                        suite="llmperf",
                        prompt_id="",
                        round=call,
                        start_s=100.0 * call,
                        end_s=end_s,
                        chunks=(Chunk(first_s, "text", None), Chunk(end_s, "end", 0)),
                    )
                )
    arms = (arm(ARMS[0], role="baseline"), arm(ARMS[1]))
    write_run(
        folder,
        records,
        arms=arms,
        generator="llmperf",
        rounds=8,
        suites=(),
        schedule="simultaneous",
    )
    for path in folder.iterdir():
        put_object(
            job.store, f"results/post/llmperf/{LLMPERF_JOB}-uid/{path.name}", path.read_bytes()
        )


def declare_post() -> dict[str, Any]:
    """What the manifest of the post's own set-up says."""
    fields = {
        "model": "Qwen/Qwen3-32B",
        "runtime": "nxdi-v0",
        "image": "i@sha256:1",
        "server_version": "0.9.1",
    }
    fused = Speculation(method="fused", num_speculative_tokens=7)
    arms = (
        arm(ARMS[0], role="baseline", speculation=Speculation(method=None), **fields),
        arm(ARMS[1], speculation=fused, **fields),
    )
    # CloudWatch takes no figure older than two weeks
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    clock = ClockReading(source="monotonic", resolution_s=1e-9, monotonic_s=1000.0, utc=now)
    return {
        "arms": arms,
        "environment": "e",
        "experiment": "post",
        "instance_type": "trn2.48xlarge",
        "clock": clock,
    }


def put_post(job: RunJobs, folder: Path) -> None:
    """Store a run of the post's own set-up that is not void."""
    put_rounds(job, write_crafted(folder / "crafted", 1.0, **declare_post()))


POST_CLAIMS: dict[str, Any] = {"claims": "post", "drafts": {ARMS[1]: "Qwen/Qwen3-1.7B"}}


def test_no_claim_is_asked_unless_the_experiment_says_so(job, tmp_path):
    put_post(job, tmp_path)
    job.judge()
    assert "claims.json" not in list_files(job)


def test_the_post_s_claims_are_answered_from_llmperf_too(job, tmp_path):
    put_post(job, tmp_path)
    put_llmperf(job, tmp_path / "llmperf")
    judgment = job.judge(llmperf_job=LLMPERF_JOB, **POST_CLAIMS)

    claims = json.loads(job.read("claims.json"))["claims"]
    rows = [claim for claim in claims if claim["text"].endswith("(by llmperf's own requests)")]
    answers = {claim["claim"]: (claim["answer"], claim["variant"]) for claim in rows}
    assert judgment["notes"] == []
    assert answers == {"C1": ("contradicted", ARMS[1]), "C6": ("confirmed", ARMS[1])}
    assert "over 8 rounds of 1 prompt" in rows[0]["why"]
    assert {"llmperf/manifest.json", "llmperf/records.jsonl"} < set(list_files(job))
    folder = download_results(job.store, "post", "fall-1", tmp_path / "run", tuple(job.confirmed))
    assert "the post's claims (why: claims.json" in run_report(str(folder), "--verbose")


def test_llmperf_that_left_no_records_is_a_note(job, tmp_path):
    put_post(job, tmp_path)
    judgment = job.judge(llmperf_job=LLMPERF_JOB)
    url = f"s3://{job.store.bucket}/results/post/llmperf/{LLMPERF_JOB}"
    fault = f"{url} lacks llmperf/manifest.json, llmperf/records.jsonl"
    assert judgment["notes"] == [f"llmperf's records are not in the results: {fault}"]


def test_answers_of_the_tasks_are_in_the_verdict(job, tmp_path):
    put_post(job, tmp_path)
    rows = [
        {"task": "sums", "item": f"sum-{number}", "arm": name, "right": True}
        for number in range(200)
        for name in ARMS
    ]
    key = f"results/post/quality/{QUALITY_JOB}-uid/quality.jsonl"
    job.store.create(key, b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    job.judge(quality_job=QUALITY_JOB)
    (task,) = json.loads(job.read("verdict.json"))["quality"]
    assert (task["task"], task["items"], task["word"]) == ("sums", 200, "same")


def test_tasks_without_answers_are_no_evidence(job, tmp_path):
    put_post(job, tmp_path)
    job.judge(quality_fault="the servers were gone")
    verdict = json.loads(job.read("verdict.json"))
    assert {(task["word"], task["why"]) for task in verdict["quality"]} == {
        ("no evidence", "the servers were gone")
    }
    assert (
        "quality of all tasks: no evidence: the servers were gone."
        in verdict["headlines"][0]["reasons"]
    )
