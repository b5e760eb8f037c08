"""A command that is killed at random moments, beside a reader that never rests, and what must be
true in the end.

The command is a real process that speaks to the endpoint through the fault proxy: `upload` or
`stage`, of sizes that the tests and the proofs choose.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from compiled import TARGET, variables, write_artifact, write_outcome
from doubles.fault_proxy.proxy import FaultProxy
from doubles.fault_proxy.rules import FaultRule, SlowAnswerFault
from doubles.hub.server import LocalHub

from rehearsal.aws.endpoint import AwsEndpoint
from rehearsal.checkpoint import RandomCheckpoint
from tandem.artifacts.manifest import LEASE_NAME, MANIFEST_NAME, parse_manifest
from tandem.errors import TandemError

ROOT = Path(__file__).resolve().parents[2]
BY_REQUEST = 0.7  # of the kills; the others come after a random time
END_S = 120.0
State = dict[str, tuple[bytes, dict[str, str], str]]


@dataclass(frozen=True, kw_only=True)
class Command:
    """What is run.

    Args:
        argv: of `python -m tandem.artifacts`, from the bucket's name and the number of the trial.
        environment: beside what leads boto3 to the proxy.
        prepare: puts what the command finds into a bucket.
        between: what may befall local disk between two runs, such as another pod's empty one.
    """

    argv: Callable[[str, int], list[str]]
    environment: Mapping[str, str]
    prepare: Callable[[str], None] = lambda _: None
    between: Callable[[random.Random, int], None] = lambda _chance, _trial: None


@dataclass(kw_only=True)
class Trial:
    """What was seen of one command that was killed and run again."""

    bucket: str
    moments: list[str] = field(default_factory=list)
    killed: int = 0
    code: int = 0
    said: str = ""
    state: State = field(default_factory=dict)
    uploads: list[str] = field(default_factory=list)
    sent_twice: list[str] = field(default_factory=list)
    broken_promises: list[str] = field(default_factory=list)
    looks: int = 0


@dataclass(kw_only=True)
class Bench:
    """One endpoint, one proxy, one command."""

    endpoint: AwsEndpoint
    proxy: FaultProxy
    command: Command
    home: Path
    requests: int = 0
    seconds: float = 0.0
    expected: State = field(default_factory=dict)
    _trials: Iterator[int] = field(default_factory=itertools.count)

    def new_bucket(self):
        bucket = f"kills-{uuid.uuid4().hex[:10]}"
        where = {"LocationConstraint": self.endpoint.region}
        self.endpoint.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration=where)
        self.command.prepare(bucket)
        return bucket

    def start(self, bucket, trial, **variables):
        there = {"AWS_ENDPOINT_URL": self.proxy.url, "AWS_ENDPOINT_URL_S3": self.proxy.url}
        log = self.home / f"{bucket}.log"
        with log.open("ab") as log_file:
            return subprocess.Popen(
                [sys.executable, "-m", "tandem.artifacts", *self.command.argv(bucket, trial)],
                cwd=ROOT,
                stdout=log_file,
                stderr=log_file,
                env={
                    "PATH": os.environ["PATH"],
                    **self.endpoint.client_environment(self.home),
                    **there,
                    **self.command.environment,
                    **variables,
                },
            )

    def said(self, bucket):
        return (self.home / f"{bucket}.log").read_text(errors="replace")

    def undisturbed(self):
        """Run the command once, unharmed; the end state that every other run is held against."""
        bucket = self.new_bucket()
        trial = next(self._trials)
        self.proxy.forget()
        began = time.monotonic()
        code = self.start(bucket, trial).wait(END_S)
        assert code == 0, self.said(bucket)
        self.seconds, self.requests = time.monotonic() - began, len(self.proxy.log)
        self.expected = state_of(self.endpoint, bucket)
        return self.expected

    def killed(self, chance):
        """Run the command in a bucket of its own, kill it once or more, run it again, and look."""
        trial = Trial(bucket=self.new_bucket())
        number = next(self._trials)
        self.proxy.forget()
        with Reader(self.endpoint, trial.bucket) as reader:
            for _ in range(1 if chance.random() < 0.7 else 3):
                moment = Moment.draw(chance, self.requests, self.seconds)
                trial.moments.append(str(moment))
                trial.killed += self._kill(trial.bucket, number, moment)
                self.proxy.wait_until_idle()
                self.command.between(chance, number)
            trial.code = self.start(trial.bucket, number).wait(END_S)
        trial.said = self.said(trial.bucket)
        return self.look(trial, reader)

    def look(self, trial, reader):
        """See what came of a trial."""
        trial.state = state_of(self.endpoint, trial.bucket)
        uploads = (
            self.endpoint.client("s3")
            .list_multipart_uploads(Bucket=trial.bucket)
            .get("Uploads", [])
        )
        trial.uploads = [upload["Key"] for upload in uploads]
        trial.sent_twice = sent_twice(self.proxy)
        trial.broken_promises = [*reader.broken, *broken(trial.state)]
        trial.looks = reader.looks
        return trial

    def _kill(self, bucket, number, moment):
        """Start the command and kill it at a moment; whether it still ran then."""
        process = self.start(bucket, number)
        count = itertools.count(1)
        lock = threading.Lock()

        def watch(when, _request):
            with lock:
                here = next(count) if when == moment.when else 0
            if here == moment.request:
                process.kill()

        try:
            if moment.request:
                self.proxy.moment_callback = watch
                process.wait(END_S)
            else:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(moment.after_s)
                process.kill()
            return process.wait(END_S) == -signal.SIGKILL
        finally:
            self.proxy.moment_callback = None


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When to kill: at a request, before it is sent on or when it is done and not answered; or
    after a time."""

    request: int = 0
    when: str = ""
    after_s: float = 0.0

    @classmethod
    def draw(cls, chance, requests, seconds):
        if chance.random() < BY_REQUEST:
            return cls(request=chance.randint(1, requests), when=chance.choice(["asked", "done"]))
        return cls(after_s=chance.uniform(0, seconds))

    def __str__(self):
        return (
            f"request {self.request} {self.when}" if self.request else f"after {self.after_s:.3f} s"
        )


class Reader:
    """Looks for manifests all the while, past the proxy; what one names must be whole at once and
    for ever."""

    def __init__(self, endpoint, bucket):
        self.looks = 0
        self.broken: list[str] = []
        self._s3 = endpoint.client("s3")
        self._bucket = bucket
        self._seen: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _look(self):
        while not self._end.wait(0.02):
            self.looks += 1
            rows = self._s3.list_objects_v2(Bucket=self._bucket).get("Contents", [])
            fresh = {
                row["Key"] for row in rows if row["Key"].endswith(f"/{MANIFEST_NAME}")
            } - self._seen
            if fresh:
                self._seen |= fresh
                self.broken += broken(state_through(self._s3, self._bucket))


def state_of(endpoint, bucket):
    """Every object with its body, metadata and type."""
    return state_through(endpoint.client("s3"), bucket)


def state_through(s3, bucket):
    objects: State = {}
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for row in page.get("Contents", []):
            answer = s3.get_object(Bucket=bucket, Key=row["Key"])
            objects[row["Key"]] = (answer["Body"].read(), answer["Metadata"], answer["ContentType"])
    return objects


def broken(state):
    """The files that a manifest names and that are not whole."""
    wrong: list[str] = []
    for key, (body, _, _) in state.items():
        prefix, _, name = key.rpartition("/")
        if name != MANIFEST_NAME or body == PLACEHOLDER:
            continue
        try:
            manifest = parse_manifest(body, key)
        except TandemError as error:
            wrong.append(str(error))
            continue
        below = f"{prefix}/{manifest.folder}" if manifest.folder else prefix
        for file in manifest.files:
            there = state.get(f"{below}/{file.path}", (b"", {}, ""))[0]
            if (len(there), hashlib.sha256(there).hexdigest()) != (file.size, file.sha256):
                wrong.append(f"{below}/{file.path}")
    return wrong


PLACEHOLDER = b"stands for a manifest that another command wrote"


def sent_twice(proxy):
    """Name the objects that were sent again although they were whole. Leases are written often."""
    done = Counter(
        f"{request.operation} {request.path}"
        for request in proxy.log
        if request.done
        and request.operation in {"PutObject", "CompleteMultipartUpload"}
        and not request.path.endswith(LEASE_NAME)
    )
    return [what for what, times in done.items() if times > 1]


def difference(objects, expected):
    """Say in words where two end states differ; empty for nowhere."""
    differences = [f"missing {key}" for key in expected.keys() - objects.keys()]
    differences += [f"too much {key}" for key in objects.keys() - expected.keys()]
    for key in objects.keys() & expected.keys():
        if objects[key] != expected[key]:
            differences.append(
                f"other {key}: {objects[key][0][:200]!r} {objects[key][1:]}, not"
                f" {expected[key][0][:200]!r}"
            )
    return "; ".join(sorted(differences))


def build_upload_command(endpoint: AwsEndpoint, folder: Path, rank_bytes: int) -> Command:
    """An upload of two ranks, a graph and a configuration."""
    artifact = write_artifact(folder / "artifact", rank_bytes=rank_bytes)
    work = write_outcome(folder / "work")
    model = f"models/{TARGET.replace('@', '/')}/tandem-manifest.json"
    return Command(
        argv=lambda bucket, _: [
            "upload",
            "--bucket",
            bucket,
            "--artifact",
            str(artifact),
            "--work",
            str(work),
        ],
        environment=variables(),
        prepare=lambda bucket: endpoint.client("s3").put_object(
            Bucket=bucket, Key=model, Body=PLACEHOLDER
        ),
    )


@contextlib.contextmanager
def serve_stage_command(folder: Path, model: str, commit: str, size: int) -> Iterator[Command]:
    """A stage of two shards and small files from a hub over HTTP; now and then another pod's empty
    disk."""
    RandomCheckpoint.from_size(size, shards=2).write(folder / "hub" / model / commit)

    def work(trial: int) -> Path:
        return folder / "work" / str(trial)

    def change_disk(chance: random.Random, trial: int) -> None:
        if chance.random() < 0.5:
            shutil.rmtree(work(trial), ignore_errors=True)

    words = ["stage", "--model", model, "--revision", commit]
    with LocalHub(
        folder / "hub", FaultRule(path="/cdn/*", fault=SlowAnswerFault(bytes_per_s=60_000_000))
    ) as hub:
        yield Command(
            argv=lambda bucket, trial: [*words, "--bucket", bucket, "--work", str(work(trial))],
            environment={"TANDEM_HOLDER": "stage-1", "HF_ENDPOINT": hub.url},
            between=change_disk,
        )
