"""One endpoint for all tests of a worker, and a fresh bucket for each test; proofs/ take the same."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from doubles.fault_proxy.proxy import FaultProxy

from rehearsal.aws.endpoint import AwsEndpoint
from tandem.artifacts.store import DEFAULT_CONCURRENCY, ObjectStore, open_store

ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = "111122223333"


@pytest.fixture(scope="session")
def endpoint() -> Iterator[AwsEndpoint]:
    with AwsEndpoint(account=ACCOUNT, region="us-east-2") as running:
        yield running


@pytest.fixture(scope="session")
def front(endpoint: AwsEndpoint) -> Iterator[FaultProxy]:
    """The one fault proxy; tests take `proxy`, which is it without rules and log."""
    with FaultProxy(endpoint.url) as running:
        yield running


@pytest.fixture(scope="session")
def clients(endpoint: AwsEndpoint, front: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """boto3's clients by URL, made once as a pod makes them: a second each on a busy machine."""
    made = {}
    for url in (endpoint.url, front.url):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables(endpoint, url, tmp_path_factory.mktemp("home")).items():
                patch.setenv(name, value)
            made[url] = open_store("any-bucket").client
    return made


def variables(endpoint: AwsEndpoint, url: str, home: Path) -> dict[str, str]:
    there = {"AWS_ENDPOINT_URL": url, "AWS_ENDPOINT_URL_S3": url}
    return {**endpoint.client_environment(home), **there, "AWS_MAX_ATTEMPTS": "4"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the SDK try again at once."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.01)


@pytest.fixture
def aws(endpoint: AwsEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables that lead boto3 to the endpoint, set for this test and handed on to its processes."""
    found = variables(endpoint, endpoint.url, tmp_path)
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def bucket(endpoint: AwsEndpoint, clients: dict[str, Any]) -> str:
    """A bucket of this test's own."""
    name = f"artifacts-{uuid.uuid4().hex[:10]}"
    where = {"LocationConstraint": endpoint.region}
    clients[endpoint.url].create_bucket(Bucket=name, CreateBucketConfiguration=where)
    return name


@pytest.fixture
def store(endpoint: AwsEndpoint, clients: dict[str, Any], bucket: str, aws: dict[str, str]) -> ObjectStore:  # noqa: ARG001
    """The test's bucket; processes that the test starts find it too."""
    return ObjectStore(bucket, clients[endpoint.url], DEFAULT_CONCURRENCY)


@pytest.fixture
def proxy(front: FaultProxy) -> Iterator[FaultProxy]:
    """A fault proxy in front of the endpoint."""
    front.use()
    front.forget()
    yield front
    front.moment_callback = None
    front.use()


@pytest.fixture
def proxied(
    clients: dict[str, Any], bucket: str, proxy: FaultProxy, aws: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    """The test's bucket through the proxy; processes that the test starts go through it too."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        aws[name] = proxy.url
        monkeypatch.setenv(name, proxy.url)
    return ObjectStore(bucket, clients[proxy.url], DEFAULT_CONCURRENCY)


@pytest.fixture
def module(aws: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `python -m tandem.artifacts ...` as a pod does, with further variables by name."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tandem.artifacts", *arguments], cwd=ROOT, text=True, capture_output=True,
            check=False, timeout=120, env={"PATH": os.environ["PATH"], **aws, **variables},
        )  # fmt: skip

    return run


@pytest.fixture
def blob(tmp_path: Path) -> Callable[..., Path]:
    """Write a file below a folder of the test's own, of so many bytes, which follow from the seed."""

    def write(name: str, size: int, seed: int = 0) -> Path:
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(seed).randbytes(size))  # noqa: S311 - no secret
        return path

    return write
