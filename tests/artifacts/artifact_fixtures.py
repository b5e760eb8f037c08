"""One endpoint for all tests of a worker, and a fresh bucket for each test; proofs/ take the
same."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from doubles.fault_proxy.proxy import FaultProxy

from tandem.artifacts.__main__ import main
from tandem.artifacts.store import ObjectStore, open_store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def front(endpoint):
    """The one fault proxy; tests take `proxy`, which is it without rules and log."""
    with FaultProxy(endpoint.url) as running:
        yield running


@pytest.fixture(scope="session")
def clients(endpoint, front, tmp_path_factory):
    """boto3's clients by URL, made once as a pod makes them: a second each on a busy machine."""
    clients_by_url = {}
    for url in (endpoint.url, front.url):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables(endpoint, url, tmp_path_factory.mktemp("home")).items():
                patch.setenv(name, value)
            clients_by_url[url] = open_store("any-bucket").client
    return clients_by_url


def variables(endpoint, url, home):
    there = {"AWS_ENDPOINT_URL": url, "AWS_ENDPOINT_URL_S3": url}
    return {**endpoint.client_environment(home), **there, "AWS_MAX_ATTEMPTS": "4"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Let the SDK try again at once."""
    monkeypatch.setattr(
        "botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.01
    )


@pytest.fixture
def aws(endpoint, tmp_path, monkeypatch):
    """The variables that lead boto3 to the endpoint, set for this test and handed on to its
    processes."""
    settings = variables(endpoint, endpoint.url, tmp_path)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.fixture
def bucket(endpoint, clients):
    """A bucket of this test's own."""
    name = f"artifacts-{uuid.uuid4().hex[:10]}"
    where = {"LocationConstraint": endpoint.region}
    clients[endpoint.url].create_bucket(Bucket=name, CreateBucketConfiguration=where)
    return name


@pytest.fixture
def store(endpoint, clients, bucket, aws):  # noqa: ARG001
    """The test's bucket; processes that the test starts find it too."""
    return ObjectStore(bucket, clients[endpoint.url])


@pytest.fixture
def proxy(front):
    """A fault proxy in front of the endpoint."""
    front.use()
    front.forget()
    yield front
    front.moment_callback = None
    front.use()


@pytest.fixture
def proxy_store(clients, bucket, proxy, aws, monkeypatch):
    """The test's bucket through the proxy; processes that the test starts go through it too."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        aws[name] = proxy.url
        monkeypatch.setenv(name, proxy.url)
    return ObjectStore(bucket, clients[proxy.url])


@pytest.fixture
def module(aws):
    """Run `python -m tandem.artifacts ...` as a pod does, with further variables by name."""

    def run(*arguments, **variables):
        return subprocess.run(
            [sys.executable, "-m", "tandem.artifacts", *arguments],
            cwd=ROOT,
            text=True,
            capture_output=True,
            check=False,
            timeout=120,
            env={"PATH": os.environ["PATH"], **aws, **variables},
        )

    return run


@pytest.fixture
def start(aws):
    """Start `python -m tandem.artifacts ...`, with further variables by name; what runs at the end
    is killed."""
    processes = []

    def act(*arguments, preexec_fn=None, **variables):
        command = [sys.executable, "-m", "tandem.artifacts", *arguments]
        processes.append(
            subprocess.Popen(
                command,
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], **aws, **variables},
                text=True,
                stdout=-1,
                stderr=-1,
                preexec_fn=preexec_fn,  # noqa: PLW1509
            )
        )
        return processes[-1]

    yield act
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def log_lines(capsys):
    """Read the lines of the log since the last look."""
    return lambda: [
        json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")
    ]


@pytest.fixture
def command(log_lines):
    """Run a command in this process; its code, its log lines."""
    return lambda *arguments: (main([str(argument) for argument in arguments]), log_lines())


@pytest.fixture
def secret(endpoint, aws):  # noqa: ARG001 - aws sets the variables
    """Store a secret under a name of its own; the name."""

    def store(**content):
        name = f"tandem/hub-{uuid.uuid4().hex[:8]}"
        endpoint.client("secretsmanager").create_secret(Name=name, **content)
        return name

    return store


@pytest.fixture
def blob(tmp_path):
    """Write a file below a folder of the test's own, of so many bytes, which follow from the
    seed."""

    def write(name, size, seed=0):
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(seed).randbytes(size))  # noqa: S311 - no secret
        return path

    return write
