"""Runs by real processes on a Capacity Block whose end moves, at the local endpoint; nothing is
deployed in between."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from hand_made_account import TAINT, make_account

from rehearsal.aws.capacity_block import BlockExtension
from rehearsal.cluster.store import format_time
from rehearsal.run.settings import RehearsalSettings
from rehearsal.run.world import RehearsalAccount, RunWorld
from stacks.fleet import USER_DATA
from tandem.declarations import names
from tandem.guard.capacity_block import BLOCK_ENDS_TAG, BLOCK_STARTS_TAG, RESERVATION_TAG
from tandem.guard.observe import CAPACITY_KIND_TAG
from tandem.ops.guard_config import build_guard_config
from tandem.run.run_keys import run_record_key

pytestmark = [pytest.mark.endpoint, pytest.mark.proof, pytest.mark.xdist_group("block-life")]
ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = "post-us-east-2"
RUN = ("run", "post", "--env", ENVIRONMENT, "--yes", "--accept-unarmed")
MEASURE = ("--quick", "--rounds", "1")
TIME_SCALE = 6  # servers slow enough for a client on busy cores
# a lease of the second kind ends beyond the old end
BLOCK_HOURS = 7
LONG_HOURS = 7.5


def shorten_block(document):
    """Let the block that was declared end soon."""
    begin = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    ends = begin + timedelta(hours=1 + BLOCK_HOURS)
    document["capacity"]["block"] = {"starts": format_time(begin), "ends": format_time(ends)}


def build_template_data(capacity):
    """Return what Fleet's launch template says of a block."""
    target = {"CapacityReservationTarget": {"CapacityReservationId": capacity.reservation_id}}
    return {
        "InstanceType": capacity.instance_type,
        "InstanceMarketOptions": {"MarketType": "capacity-block"},
        "CapacityReservationSpecification": target,
        "UserData": base64.b64encode(USER_DATA.encode()).decode(),
    }


def build_plan_tags(capacity):
    """Return the tags of the node group that Fleet writes of a block."""
    return {
        CAPACITY_KIND_TAG: capacity.kind,
        RESERVATION_TAG: capacity.reservation_id,
        BLOCK_STARTS_TAG: capacity.block.starts.isoformat(),
        BLOCK_ENDS_TAG: capacity.block.ends.isoformat(),
    }


def deploy_block(account):
    """Make the node group as Fleet does: of the block that its launch template and tags name."""
    environment = account.sandbox.environment
    template = account.endpoint.client("ec2").create_launch_template(
        LaunchTemplateName="fleet", LaunchTemplateData=build_template_data(environment.capacity)
    )
    guard = build_guard_config(environment)
    account.endpoint.client("eks").create_nodegroup(
        clusterName=guard.cluster,
        nodegroupName=guard.node_group,
        subnets=["subnet-1"],
        labels={},
        taints=[TAINT],
        nodeRole=f"arn:aws:iam::{environment.account}:role/any",
        capacityType="CAPACITY_BLOCK",
        launchTemplate={"id": template["LaunchTemplate"]["LaunchTemplateId"]},
        scalingConfig={"minSize": 0, "desiredSize": 0, "maxSize": 1},
        tags=names.resource_tags(environment) | build_plan_tags(environment.capacity),
    )


def read_tags(account):
    guard = build_guard_config(account.sandbox.environment)
    answer = account.endpoint.client("eks").describe_nodegroup(
        clusterName=guard.cluster, nodegroupName=guard.node_group
    )
    return answer["nodegroup"]["tags"]


def read_object(account, key):
    s3 = account.endpoint.client("s3")
    guard = build_guard_config(account.sandbox.environment)
    return json.loads(s3.get_object(Bucket=guard.bucket, Key=key)["Body"].read())


@pytest.fixture(scope="module")
def first_lease(tmp_path_factory):
    """A world on a block, in which a run compiled under a first lease."""
    folder = tmp_path_factory.mktemp("block")
    account = RehearsalAccount.create(
        ENVIRONMENT, ROOT / "environments", ROOT / "experiments", folder
    )
    try:
        account.sandbox.edit(shorten_block)
        account.buy_block()
        make_account(account.endpoint.client, account.sandbox.environment, has_fleet=False)
        deploy_block(account)
        settings = RehearsalSettings(
            environment=ENVIRONMENT, experiment="post", time_scale=TIME_SCALE
        )
        world = RunWorld(account, settings, tmp_path_factory.mktemp("world"))
        world.write_inputs()
        with world:
            world.wait_for_runner()
            first = account.run_tandem(
                *RUN, "--until", "compile", "--hours", "6", "--run", "first", capture_output=True
            )
            yield SimpleNamespace(account=account, result=first)
    finally:
        account.endpoint.stop()


@pytest.fixture(scope="module")
def second_lease(first_lease):
    """The same, whose block was extended, and noted so, after a longer run was refused because the
    payment of a first extension failed; that run, asked again."""
    account = first_lease.account
    block = first_lease.account.sandbox.environment.capacity.block
    tags = read_tags(account)
    words = (*RUN, *MEASURE, "--hours", str(LONG_HOURS), "--run", "second")
    unpaid = BlockExtension(
        ends=block.ends + timedelta(days=1), purchased=block.starts, status="payment-failed"
    )
    account.buy_block(extensions=(unpaid,))
    refusal = account.run_tandem(*words, capture_output=True)
    extension = replace(unpaid, status="payment-succeeded")
    account.buy_block(extensions=(unpaid, extension))
    account.sandbox.edit(
        lambda document: document["capacity"]["block"].update(ends=format_time(extension.ends))
    )
    result = account.run_tandem(*words, capture_output=True)
    return SimpleNamespace(
        refused=refusal, result=result, is_as_deployed=read_tags(account) == tags, ends=block.ends
    )


def test_first_lease_ends_within_the_block(first_lease):
    assert first_lease.result.returncode == 0, first_lease.result.stdout + first_lease.result.stderr
    record = read_object(first_lease.account, run_record_key("first"))
    assert (record["state"], len(record["leases"])) == ("compiled", 1)


def test_longer_run_is_refused_while_its_extension_is_not_paid(second_lease):
    output = " ".join((second_lease.refused.stdout + second_lease.refused.stderr).split())
    assert (second_lease.refused.returncode, "the Capacity Block lasts from" in output) == (
        2,
        True,
    ), output


def test_second_lease_beyond_the_old_end_is_judged_without_a_deploy(first_lease, second_lease):
    assert second_lease.result.returncode == 0, (
        second_lease.result.stdout + second_lease.result.stderr
    )
    record = read_object(first_lease.account, run_record_key("second"))
    assert (record["state"], second_lease.is_as_deployed) == ("judged", True)
    assert datetime.fromisoformat(record["leases"][0]["deadline"]) > second_lease.ends
