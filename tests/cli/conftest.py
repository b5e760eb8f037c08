"""The endpoint of the artifacts' tests, for the commands that speak to a bucket; a fleet at it for
those that raise."""

from __future__ import annotations

from datetime import timedelta

import pytest
from artifact_fixtures import aws, bucket, clients, front, proxy, proxy_store, store
from bench_cli import Pair, however_busy, without_page
from fleet_world import ROLE, Fleet, write_environment
from independent_server import Schedule

from rehearsal.aws import fleet_behavior as knobs

__all__ = ["aws", "bucket", "clients", "front", "proxy", "proxy_store", "store"]


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    """Print as into a pipe, whatever terminal the tests run in."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def bare_fleet(specs, endpoint, aws, proxy, monkeypatch):
    """An environment of a new name of which nothing exists; commands reach the endpoint through the
    fault proxy."""
    assert aws
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, proxy.url)
    monkeypatch.setattr(
        "botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.01
    )
    monkeypatch.setattr("tandem.guard.fleet_changes.POLL_INTERVAL", timedelta(seconds=0.05))
    monkeypatch.setattr("tandem.guard.fleet_changes.BLIND_LIMIT", timedelta(seconds=0.5))
    endpoint.set_fleet(knobs.FleetBehavior(start_delay_s=0.05, stop_delay_s=0.05))
    yield Fleet(endpoint=endpoint, specs=specs, name=write_environment(specs))
    endpoint.set_fleet()


@pytest.fixture
def fleet(bare_fleet):
    """The same with its stacks' resources, and a reaper that looked a moment ago."""
    bare_fleet.deploy()
    bare_fleet.looked()
    return bare_fleet


@pytest.fixture(scope="session")
def enforcing_account(enforcing):
    """The endpoint where policies bind, with the role of the schedules; instances come and go at
    once."""
    enforcing.set_fleet(
        knobs.FleetBehavior(start_delay_s=0.05, stop_delay_s=0.05, retry_delay_s=0.05)
    )
    enforcing.client("iam").create_role(
        RoleName=ROLE.rpartition("/")[2], AssumeRolePolicyDocument="{}"
    )
    return enforcing


@pytest.fixture
def quick(monkeypatch):
    """Look for answers and steps of a run without a pause."""
    monkeypatch.setattr("tandem.cli.run.ANSWER_POLL_S", 0.01)
    monkeypatch.setattr("tandem.cli.run_timeline.POLL_S", 0.01)


@pytest.fixture
def no_page():
    """Leave the page of a run out, in what this test measures."""
    with without_page():
        yield


@pytest.fixture
def busy():
    """Void no run of this test because of the tests beside it."""
    with however_busy():
        yield


@pytest.fixture(scope="module")
def servers():
    """Two servers that answer as fast as they can."""
    pair = Pair(Schedule(ttft_ms=1, step_ms=1, tokens=4))
    yield pair
    pair.end()
