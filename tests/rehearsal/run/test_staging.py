"""`tandem run --until stage` by real processes, in an account whose Capacity Block has not begun
and has no fleet."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hand_made_account import make_account

from rehearsal.cluster.store import format_time
from rehearsal.run.settings import RehearsalSettings
from rehearsal.run.world import RehearsalAccount, RunWorld
from tandem.ops.guard_config import build_guard_config
from tandem.run.run_keys import run_record_key

pytestmark = [pytest.mark.endpoint, pytest.mark.proof, pytest.mark.xdist_group("staging-life")]
ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = "post-us-east-2"
SETTINGS = RehearsalSettings(environment=ENVIRONMENT, experiment="post", time_scale=25)
STAGE = ("run", "post", "--env", ENVIRONMENT, "--until", "stage", "--yes", "--run", "models")


def await_block(document):
    """Let the environment wait for a Capacity Block of tomorrow that nobody has reserved."""
    begin = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    block = {"starts": format_time(begin), "ends": format_time(begin + timedelta(days=1))}
    document["capacity"].update(kind="capacity-block", reservation_id=None, block=block)


@pytest.fixture(scope="module")
def unreserved(tmp_path_factory):
    """An account as before its block: bucket, cluster and runner, and no Fleet stack."""
    folder = tmp_path_factory.mktemp("unreserved")
    account = RehearsalAccount.create(
        ENVIRONMENT, ROOT / "environments", ROOT / "experiments", folder
    )
    account.sandbox.edit(await_block)
    try:
        make_account(account.endpoint.client, account.sandbox.environment, has_fleet=False)
        yield account
    finally:
        account.endpoint.stop()


@pytest.fixture(scope="module")
def staged(unreserved, tmp_path_factory):
    """What a staging from an empty bucket leaves: the command's result and the counted
    node-minutes."""
    world = RunWorld(unreserved, SETTINGS, tmp_path_factory.mktemp("world"))
    world.write_inputs()
    with world:
        world.wait_for_runner()
        result = unreserved.run_tandem(*STAGE, capture_output=True)
        return result, world.count_node_minutes()


def read_object(account, key):
    s3 = account.endpoint.client("s3")
    guard = build_guard_config(account.sandbox.environment)
    return json.loads(s3.get_object(Bucket=guard.bucket, Key=key)["Body"].read())


def test_staging_ends_well(unreserved, staged):
    result, _ = staged
    assert result.returncode == 0, result.stdout + result.stderr
    assert read_object(unreserved, run_record_key("models"))["state"] == "staged"


def test_staging_takes_no_node(unreserved, staged):
    _, node_minutes = staged
    record = read_object(unreserved, run_record_key("models"))
    assert (node_minutes, record["node_s"], record["leases"]) == (0, 0, [])
