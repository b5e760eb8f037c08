"""The Jobs of a run as its tests start them: two simulators, a bucket at the local endpoint, and
tasks for both."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from artifact_fixtures import aws, clients, front, proxy, variables
from bench_cli import however_busy, without_page
from doubles.simulator_thread import SimulatorThread

from tandem.artifacts.store import ObjectStore
from tandem.bench.plan import run_size
from tandem.bench.plan.run_size import RunSize
from tandem.bench.records.manifest import ManifestArm, Speculation
from tandem.bench.records.record import RequestRecord, read_records
from tandem.report import page
from tandem.run.judge_job import judge_run
from tandem.run.measure_job import measure_round
from tandem.run.round_records import ROUND_FILES
from tandem.run.run_keys import results_prefix
from tandem.run.run_values import BenchTask, RoundResult
from tandem.simulator.settings import PromptClassSettings, SimulatorSettings

__all__ = ["aws", "clients", "front", "full_run", "job", "pair", "proxy"]

WRITE_PAGE = page.write_report
ARMS = ("qwen-vllm", "qwen-sd-vllm")
ACCOUNT = "111122223333"
RUN = "fall-1"
PREFIX = results_prefix("post", RUN)
# three prompts of one class, so that a round is a blink and has what a verdict needs
SMALL = RunSize(prompts_per_class=3, max_tokens=12, concurrency=(2,), classes=("repetition",))
FAST = SimulatorSettings(
    model="m",
    step_ms=(1.0,),
    prefill_base_ms=1,
    prefill_ms_per_token=0,
    jitter=0.05,
    classes={"default": PromptClassSettings(acceptance=0.8, output_tokens=40)},
)
SPECULATING = FAST.model_copy(update={"law": "vllm", "num_speculative_tokens": 3})


@dataclass(kw_only=True)
class RunJobs:
    """One run in a bucket of its own, and its Jobs in this process.

    Args:
        urls: of the servers, the baseline first.
        environment: its name, of no other run.
        folder: of whichever Job runs; it is a new pod's each time.
        fields: of each task.
    """

    store: ObjectStore
    urls: tuple[str, ...]
    folder: Path
    environment: str
    fields: dict[str, Any] = field(default_factory=dict)
    confirmed: list[tuple[int, int]] = field(default_factory=list)

    def task(self, number: int = 0, attempt: int = 1, **changes: Any) -> BenchTask:
        roles = ("baseline", "variant")
        arms = tuple(
            ManifestArm(
                name=name,
                role=role,
                url=url,
                model="m",
                runtime="native",
                speculation=Speculation(method=None),
            )
            for name, role, url in zip(ARMS, roles, self.urls, strict=True)
        )
        fields = {
            "run": RUN,
            "environment": self.environment,
            "experiment": "post",
            "account": ACCOUNT,
            "region": "us-east-2",
            "bucket": self.store.bucket,
            "number": number,
            "attempt": attempt,
            "confirmed": tuple(self.confirmed),
            "arms": arms,
            "suites": ("real",),
            "size": "quick",
            "rounds": 2,
            "control_rounds": 1,
            "seed": 7,
            "schedule": "interleaved",
            "instance_type": "trn2.48xlarge",
            "usd_per_hour": 30.0,
        }
        return BenchTask(**{**fields, **self.fields, **changes})

    def measure(
        self, number: int, attempt: int = 1, *, is_confirmed: bool = True, **changes: Any
    ) -> int:
        """Measure a round; the runner confirms it where the Job ended well."""
        code = measure_round(self.task(number, attempt, **changes), self.folder)
        if code == 0 and is_confirmed:
            self.confirmed.append((number, attempt))
        return code

    def judge(self, **changes: Any) -> dict[str, Any]:
        """Judge the run; what judgment.json says."""
        assert judge_run(self.task(**changes), self.folder) == 0
        return json.loads(self.read("judgment.json"))

    def list(self, below: str = "") -> list[str]:
        """Names of the run's objects."""
        return [row.key.removeprefix(PREFIX) for row in self.store.list(PREFIX + below)]

    def read(self, name: str) -> bytes:
        content = self.store.read(PREFIX + name)
        assert content is not None, name
        return content.body

    def records(self) -> list[RequestRecord]:
        """Of the folder of the last Job."""
        return list(read_records(self.folder / "records.jsonl"))

    def manifest(self) -> dict[str, Any]:
        return json.loads((self.folder / "manifest.json").read_text())


def put_rounds(job: RunJobs, folder: Path) -> None:
    """Store the records of a folder as rounds that were measured, with their manifest, and confirm
    them."""
    lines: dict[int, list[bytes]] = {}
    for line in (folder / "records.jsonl").read_bytes().splitlines(keepends=True):
        lines.setdefault(json.loads(line)["round"], []).append(line)
    for number, round_lines in lines.items():
        result = RoundResult(
            number=number,
            attempt=1,
            requests=len(round_lines),
            failed=0,
            duration_s=1.0,
            is_simulated=True,
        )
        contents = dict.fromkeys(ROUND_FILES, b"") | {
            "records.jsonl": b"".join(round_lines),
            "manifest.json": (folder / "manifest.json").read_bytes(),
            "round.json": msgspec.json.encode(result),
        }
        for name, content in contents.items():
            put_object(job.store, f"{PREFIX}rounds/{number:05}/1/{name}", content)
        job.confirmed.append((number, 1))


def put_object(store: ObjectStore, key: str, content: bytes) -> None:
    store.client.put_object(Bucket=store.bucket, Key=key, Body=content)


def encode_task(task: BenchTask, **changes: Any) -> str:
    """A task as the runner writes it, with fields that a test spoils."""
    return json.dumps(json.loads(msgspec.json.encode(task)) | changes)


@pytest.fixture(scope="module")
def pair():
    with SimulatorThread(FAST) as baseline, SimulatorThread(SPECULATING) as variant:
        yield baseline, variant


@contextmanager
def hurry() -> Iterator[None]:
    """A small size, no page to draw, no round void because of the tests beside it, and no half
    minute between tries."""
    with pytest.MonkeyPatch.context() as patch, without_page(), however_busy():
        patch.setitem(run_size.SIZES, "quick", SMALL)
        patch.setattr("tandem.artifacts.retry.RETRY_PAUSE_S", 0.05)
        patch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.01)
        yield


def create_job(
    store: ObjectStore, servers: Iterable[SimulatorThread], region: str, folder: Path
) -> RunJobs:
    """A run of an environment of its own, whose bucket is made."""
    store.client.create_bucket(
        Bucket=store.bucket, CreateBucketConfiguration={"LocationConstraint": region}
    )
    urls = tuple(server.url for server in servers)
    return RunJobs(
        store=store,
        urls=urls,
        folder=folder / "work" / "run",
        environment=f"e{uuid.uuid4().hex[:8]}",
    )


@pytest.fixture
def job(endpoint, clients, proxy, aws, pair, tmp_path, monkeypatch):  # noqa: ARG001 - set up
    """The Jobs reach the endpoint through the fault proxy; the test looks into the bucket beside
    it."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, proxy.url)
    store = ObjectStore(f"results-{uuid.uuid4().hex[:10]}", clients[endpoint.url])
    with hurry():
        yield create_job(store, pair, endpoint.region, tmp_path)


@pytest.fixture(scope="module")
def full_run(endpoint, clients, pair, tmp_path_factory):
    """A run whose three rounds are measured, a Job each; nobody changes it."""
    folder = tmp_path_factory.mktemp("full_run")
    store = ObjectStore(f"full-run-{uuid.uuid4().hex}", clients[endpoint.url])
    with pytest.MonkeyPatch.context() as patch, hurry():
        for name, value in variables(endpoint, endpoint.url, folder).items():
            patch.setenv(name, value)
        job = create_job(store, pair, endpoint.region, folder)
        assert [job.measure(number) for number in range(3)] == [0, 0, 0]
        yield job
