"""How a process ends when its pod is told to stop, and when nobody reads what it says."""

from __future__ import annotations

import json
import signal
import time

import pytest
from doubles.fault_proxy.rules import DelayFault, FaultRule
from staging_inputs import COMMIT, MODEL, snapshot
from stored_sets import put_set

from tandem.artifacts.lease import parse_lease

pytestmark = pytest.mark.endpoint
LEASE = f"models/{MODEL}/{COMMIT}/tandem-lease.json"


@pytest.fixture
def told_to_stop(start, proxy_store, proxy, tmp_path):
    """A stage that got SIGTERM while it sent a file."""
    proxy.use(FaultRule(operation="PutObject", path="*.safetensors", fault=DelayFault(delay_s=0.3)))
    process = start(
        "stage",
        "--bucket",
        proxy_store.bucket,
        "--model",
        MODEL,
        "--revision",
        COMMIT,
        "--from",
        str(snapshot(tmp_path / "snapshot", extras=False)),
    )
    until = time.monotonic() + 60
    while (
        not proxy.requests("HeadObject", "*.safetensors")
        and process.poll() is None
        and time.monotonic() < until
    ):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    return process.returncode, json.loads(out.splitlines()[-1]), err


def test_sigterm_is_logged_and_releases_the_lease(told_to_stop, proxy_store):
    code, last, error = told_to_stop
    assert (code, last["event"], last["exit_code"], error) == (
        143,
        "told to stop (SIGTERM)",
        143,
        "",
    )
    assert not parse_lease(proxy_store.read(LEASE), LEASE).is_active


def test_a_reader_that_goes_away_leaves_no_traceback(start, store):
    put_set(store, "artifacts/tiny-000000000000", "run")
    process = start("verify", "--bucket", store.bucket, "--artifact", "tiny-000000000000")
    process.stdout.close()

    assert (process.wait(60), process.stderr.read()) == (141, "")
