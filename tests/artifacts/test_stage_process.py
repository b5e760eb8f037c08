"""`stage` as a process, as a pod runs it: what it shows, what it holds, what it speaks to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from doubles.checkpoint import MIB, RandomCheckpoint
from doubles.fault_proxy.rules import AnswerCutFault, FaultRule, SlowAnswerFault, StatusFault
from doubles.hub.connection import HubAccess
from doubles.hub.server import LocalHub
from own_memory import peak_mib
from staging_inputs import COMMIT, MODEL, OTHER, TOKEN, snapshot

from tandem.artifacts.hub import SECRET_NAME_VARIABLE

pytestmark = pytest.mark.endpoint
ROOT = Path(__file__).resolve().parents[2]
GATED = "acme/gated"


@pytest.fixture
def hub(tmp_path):
    for model in (MODEL, GATED):
        snapshot(tmp_path / "hub" / model / COMMIT)
    with LocalHub(
        tmp_path / "hub", access=HubAccess(tokens=frozenset({TOKEN}), gated_repositories=frozenset({GATED}))
    ) as running:
        yield running


@pytest.fixture
def secret(endpoint):
    """The name of a secret that holds the token."""
    name = f"tandem/hub-{uuid.uuid4().hex[:8]}"
    endpoint.client("secretsmanager").create_secret(Name=name, SecretString=json.dumps({"token": TOKEN}))
    return name


@pytest.fixture
def stage(module, store, hub, tmp_path):
    def run(model=MODEL, **variables):
        return module("stage", "--bucket", store.bucket, "--model", model, "--revision", COMMIT, "--work",
                      str(tmp_path / "work"), HF_ENDPOINT=hub.url, **variables)  # fmt: skip

    return run


def test_a_gated_model_is_staged_and_the_token_is_shown_nowhere(stage, secret, endpoint, store, hub):
    hub.use(
        FaultRule(path="/cdn/*", fault=AnswerCutFault(after=100), times=2),
        FaultRule(fault=StatusFault(status=503, code="x"), times=1),
    )

    done = stage(GATED, **{SECRET_NAME_VARIABLE: secret, "HF_DEBUG": "1", "HF_HUB_VERBOSITY": "debug"})

    s3 = endpoint.client("s3")
    keys = [row["Key"] for row in s3.list_objects_v2(Bucket=store.bucket)["Contents"]]
    stored = [s3.get_object(Bucket=store.bucket, Key=key)["Body"].read() for key in keys]
    assert (done.returncode, "staged" in done.stdout) == (0, True)
    assert any("authorization" in one.headers for one in hub.log)
    assert TOKEN not in done.stdout + done.stderr
    assert not any(TOKEN.encode() in body for body in stored)


def test_a_token_that_is_not_accepted_is_shown_nowhere(stage, endpoint):
    wrong = "hf_" + "X1" * 17
    name = f"tandem/wrong-{uuid.uuid4().hex[:8]}"
    endpoint.client("secretsmanager").create_secret(Name=name, SecretString=wrong)

    done = stage(GATED, **{SECRET_NAME_VARIABLE: name, "HF_DEBUG": "1"})

    last = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, last["exit_code"], name in last["event"]) == (2, 2, True)
    assert wrong not in done.stdout + done.stderr


def test_the_token_is_in_no_argument_environment_or_file_of_the_running_process(hub, secret, store, aws, tmp_path):
    hub.use(FaultRule(path="/cdn/*", fault=SlowAnswerFault(bytes_per_s=100_000)))
    process = subprocess.Popen(
        [sys.executable, "-m", "tandem.artifacts", "stage", "--bucket", store.bucket, "--model", GATED, "--revision",
         COMMIT, "--work", str(tmp_path / "work")],
        cwd=ROOT, stdout=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], **aws, "HF_ENDPOINT": hub.url, SECRET_NAME_VARIABLE: secret},
    )  # fmt: skip
    while not any(one.path.startswith("/cdn/") for one in hub.log) and process.poll() is None:
        time.sleep(0.005)
    shown = [Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("environ", "cmdline")]
    files = [path.read_bytes() for path in (tmp_path / "work").rglob("*") if path.is_file()]
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()

    assert process.wait(60) == 0
    assert len(files) > 0
    assert not any(TOKEN.encode() in one for one in [*shown, *files])
    assert children == ""


def test_nothing_but_the_listing_and_the_files_is_asked_of_the_hub(stage, hub, tmp_path):
    stage(AI_AGENT="any", HF_HOME=str(tmp_path / "home"))

    asked = {
        one.path.split("/")[1] if one.path.startswith(("/api", "/cdn")) else one.path.split("/")[3] for one in hub.log
    }
    assert asked == {"api", "resolve", "cdn"}
    assert {one.path for one in hub.log if one.path.startswith("/api")} == {f"/api/models/{MODEL}/revision/{COMMIT}"}
    assert not (tmp_path / "home").exists()


def test_every_line_is_json_with_time_level_and_event(stage, hub):
    hub.use(FaultRule(path="/api/*", fault=StatusFault(status=503, code="x"), times=1))

    done = stage()

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert all({"at", "level", "event"} <= set(line) for line in lines)
    assert ("trying again" in {line["event"] for line in lines}, done.stderr) == (True, "")


def test_an_offline_setting_of_the_library_is_named(stage):
    done = stage(HF_HUB_OFFLINE="1")
    assert (done.returncode, json.loads(done.stdout.splitlines()[-1])["event"]) == (2, "HF_HUB_OFFLINE is set")


def test_memory_does_not_grow_with_the_files(hub, store, aws, tmp_path):
    RandomCheckpoint.from_size(240 * MIB, shards=1).write(tmp_path / "hub/acme/large" / OTHER)

    def peak(model, revision):
        command = ["stage", "--bucket", store.bucket, "--model", model, "--revision", revision]
        return peak_mib([*command, "--work", str(tmp_path / "work")], {**aws, "HF_ENDPOINT": hub.url})

    small, large = peak(MODEL, COMMIT), peak("acme/large", OTHER)

    assert large < 400
    assert large - small < 160  # the file has 240, and up to 15 parts of 8 wait to be sent


def test_an_interrupted_run_releases_its_lease(hub, store, aws, tmp_path):
    hub.use(FaultRule(path="/cdn/*", fault=SlowAnswerFault(bytes_per_s=50_000)))
    process = subprocess.Popen(
        [sys.executable, "-m", "tandem.artifacts", "stage", "--bucket", store.bucket, "--model", MODEL, "--revision",
         COMMIT, "--work", str(tmp_path / "work")],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], **aws, "HF_ENDPOINT": hub.url},
    )  # fmt: skip
    while not any(one.path.startswith("/cdn/") for one in hub.log) and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(2)

    assert process.wait(30) == 130
    lease = store.read(f"models/{MODEL}/{COMMIT}/tandem-lease.json")
    assert lease is not None
    assert json.loads(lease.body)["state"] == "released"
