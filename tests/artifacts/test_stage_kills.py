"""A stage that is killed again and again ends as one that was never killed, and no reader ever sees half of it."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doubles.checkpoint import MIB, RandomCheckpoint
from doubles.fault_proxy.proxy import FaultProxy
from doubles.fault_proxy.rules import FaultRule, SlowAnswerFault
from doubles.hub.server import LocalHub
from staging_inputs import COMMIT, MODEL

from rehearsal.aws.endpoint import AwsEndpoint
from tandem.artifacts.manifest import MANIFEST_NAME, parse_manifest
from tandem.artifacts.store import ObjectStore

pytestmark = pytest.mark.endpoint
SEED = 4_071_969
KILLS = 4  # proofs/ kill it fifty times
PREFIX = f"models/{MODEL}/{COMMIT}"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LocalHub]:
    """Two shards of two parts each, and small files."""
    RandomCheckpoint.from_size(40 * MIB, shards=2).write(tmp_path / "hub" / MODEL / COMMIT)
    with LocalHub(tmp_path / "hub", FaultRule(path="/cdn/*", fault=SlowAnswerFault(bytes_per_s=40_000_000))) as running:
        yield running


@pytest.fixture
def start(
    hub: LocalHub, proxied: ObjectStore, aws: dict[str, str], tmp_path: Path
) -> Callable[[Path], subprocess.Popen[bytes]]:
    """Start the command as a pod does."""

    def begin(work: Path) -> subprocess.Popen[bytes]:
        said = (tmp_path / "said").open("ab")
        return subprocess.Popen(
            [sys.executable, "-m", "tandem.artifacts", "stage", "--bucket", proxied.bucket, "--model", MODEL,
             "--revision", COMMIT, "--work", str(work)],
            cwd=ROOT, stdout=said, stderr=said,
            env={"PATH": os.environ["PATH"], **aws, "HF_ENDPOINT": hub.url, "TANDEM_HOLDER": "stage-tiny"},
        )  # fmt: skip

    return begin


def objects(endpoint: AwsEndpoint, bucket: str) -> dict[str, bytes]:
    s3 = endpoint.client("s3")
    keys = [row["Key"] for row in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
    return {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


def broken_promise(there: dict[str, bytes]) -> list[str]:
    """The files that a manifest names and that are not whole."""
    body = there.get(f"{PREFIX}/{MANIFEST_NAME}")
    files = parse_manifest(body, PREFIX).files if body else ()
    found = {file.path: there.get(f"{PREFIX}/{file.path}", b"") for file in files}
    return [file.path for file in files if hashlib.sha256(found[file.path]).hexdigest() != file.sha256]


def test_killed_at_random_moments_the_end_state_is_the_same_byte_for_byte(
    start: Callable[[Path], subprocess.Popen[bytes]],
    hub: LocalHub,
    proxy: FaultProxy,
    endpoint: AwsEndpoint,
    bucket: str,
    tmp_path: Path,
) -> None:
    assert start(tmp_path / "clean").wait(60) == 0
    clean, total = objects(endpoint, bucket), len(hub.log) + len(proxy.log)
    endpoint.client("s3").delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in clean]})
    chance, killed = random.Random(SEED), 0  # noqa: S311 - a moment is no secret
    print(f"seed {SEED}, {total} requests")  # noqa: T201 - so that a failure can be repeated

    for _ in range(KILLS):
        if chance.random() < 0.5:  # another pod, another disk
            shutil.rmtree(tmp_path / "work", ignore_errors=True)
        hub.forget()
        proxy.forget()
        after, process = chance.randrange(2, total // 2), start(tmp_path / "work")
        while len(hub.log) + len(proxy.log) < after and process.poll() is None:
            time.sleep(0.001)
        time.sleep(chance.random() * 0.05)
        process.kill()
        killed += process.wait() == -9

        assert broken_promise(objects(endpoint, bucket)) == []

    assert start(tmp_path / "work").wait(60) == 0
    assert (killed >= 3, objects(endpoint, bucket)) == (True, clean)
    assert endpoint.client("s3").list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []


def test_a_whole_file_is_not_sent_again_after_a_kill(
    start: Callable[[Path], subprocess.Popen[bytes]], proxy: FaultProxy, tmp_path: Path
) -> None:
    process = start(tmp_path / "work")
    while not list_whole_files(proxy):
        time.sleep(0.001)
    process.kill()
    process.wait()
    while any(one.ended_s is None for one in proxy.log):
        time.sleep(0.001)
    before = list_whole_files(proxy)
    proxy.forget()

    assert start(tmp_path / "work").wait(60) == 0

    keys = [f"/{PREFIX}/model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    assert (len(before) >= 1, sorted(before + list_whole_files(proxy))) == (True, keys)


def list_whole_files(proxy: FaultProxy) -> list[str]:
    done = [request for request in proxy.requests("CompleteMultipartUpload") if request.done]
    return ["/" + request.path.split("/", 2)[2] for request in done]
