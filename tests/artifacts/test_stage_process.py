"""`stage` as a process, as a pod runs it: what it shows, what it holds, what it speaks to."""

from __future__ import annotations

import json

import pytest
from doubles.fault_proxy.rules import AnswerCutFault, FaultRule, StatusFault
from doubles.hub.server import LocalHub
from own_memory import peak_mib
from staging_inputs import COMMIT, MODEL, OTHER, TOKEN, snapshot

from rehearsal.checkpoint import MIB, RandomCheckpoint
from rehearsal.hub.connection import HubAccess
from tandem.artifacts.hub_secret import SECRET_NAME_VARIABLE

pytestmark = pytest.mark.endpoint
GATED_MODEL = "acme/gated"
SECRET_TEXT = json.dumps({"token": TOKEN})


@pytest.fixture
def hub(tmp_path):
    for model in (MODEL, GATED_MODEL):
        snapshot(tmp_path / "hub" / model / COMMIT)
    with LocalHub(
        tmp_path / "hub",
        access=HubAccess(tokens=frozenset({TOKEN}), gated_repositories=frozenset({GATED_MODEL})),
    ) as running:
        yield running


@pytest.fixture
def stage(store, hub, tmp_path, module):
    """Run `stage` as a process for a model."""

    def act(model=MODEL, **more):
        words = ("stage", "--bucket", store.bucket, "--model", model, "--revision", COMMIT)
        return module(*words, "--work", str(tmp_path / "work"), HF_ENDPOINT=hub.url, **more)

    return act


def test_gated_model_is_staged_and_the_token_is_shown_nowhere(stage, secret, store, hub, tmp_path):
    cut = AnswerCutFault(after=100)
    busy = StatusFault(status=503, code="x")
    hub.use(FaultRule(path="/cdn/*", fault=cut, times=2), FaultRule(fault=busy, times=1))

    done = stage(
        GATED_MODEL,
        **{
            SECRET_NAME_VARIABLE: secret(SecretString=SECRET_TEXT),
            "HF_DEBUG": "1",
            "AI_AGENT": "any",
            "HF_HUB_VERBOSITY": "debug",
            "HF_HOME": str(tmp_path / "home"),
        },
    )

    bodies = [
        store.client.get_object(Bucket=store.bucket, Key=row.key)["Body"].read()
        for row in store.list("")
    ]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stdout
    assert all({"at", "level", "event"} <= set(line) for line in lines)
    assert {"trying again", "staged"} <= {line["event"] for line in lines}
    assert any("authorization" in request.headers for request in hub.log)
    assert not any(
        TOKEN.encode() in body for body in [(done.stdout + done.stderr).encode(), *bodies]
    )
    pages = (
        f"/api/models/{GATED_MODEL}/revision/{COMMIT}",
        f"/{GATED_MODEL}/resolve/{COMMIT}/",
        "/cdn/",
    )
    assert [request.path for request in hub.log if not request.path.startswith(pages)] == []
    assert not (tmp_path / "home").exists()


def test_an_offline_setting_of_the_library_is_named(stage):
    done = stage(HF_HUB_OFFLINE="1")
    event = json.loads(done.stdout.splitlines()[-1])["event"]
    assert (done.returncode, event, done.stderr) == (2, "HF_HUB_OFFLINE is set", "")


@pytest.mark.proof
def test_memory_does_not_grow_with_the_files(hub, store, aws, tmp_path):
    RandomCheckpoint.from_size(240 * MIB, shards=1).write(tmp_path / "hub/acme/large" / OTHER)

    def peak(model, revision):
        command = ["stage", "--bucket", store.bucket, "--model", model, "--revision", revision]
        return peak_mib(
            [*command, "--work", str(tmp_path / "work")], {**aws, "HF_ENDPOINT": hub.url}
        )

    small = peak(MODEL, COMMIT)
    large = peak("acme/large", OTHER)

    assert large < 400
    assert large - small < 160  # the file has 240, and up to 15 parts of 8 wait to be sent
