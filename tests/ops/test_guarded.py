"""What a stop knows of an environment is what its file says and its stacks are named."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from fleet_seen import BLOCK, SPOT

from tandem.declarations import names
from tandem.declarations.environment import CapacityBlock, Environment
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import POINTER_KEY
from tandem.ops.guard_config import build_guard_config
from tandem.ops.people.policy_targets import build_targets

PREFIX = "guard/111122223333/us-east-2/one/"  # in a bucket of others
STARTS = datetime(2026, 12, 1, 11, 30, tzinfo=UTC)
ENDS = datetime(2026, 12, 2, 11, 30, tzinfo=UTC)


def with_capacity(**changes: object) -> object:
    return BLOCK.model_copy(update={"capacity": BLOCK.capacity.model_copy(update=changes)})


def in_a_shared_bucket(name: str) -> Environment:
    artifacts = SPOT.artifacts.model_copy(update={"existing_bucket": "shared"})
    return SPOT.model_copy(update={"name": name, "artifacts": artifacts})


def test_environments_of_one_bucket_share_no_fence():
    first, second = (build_guard_config(in_a_shared_bucket(name)) for name in ("one", "other"))

    assert first.bucket == second.bucket
    assert (first.url(FENCE_KEY), first.url(POINTER_KEY)) == (
        f"s3://shared/{PREFIX}stop.json",
        f"s3://shared/{PREFIX}lease.json",
    )
    assert first.url(FENCE_KEY) != second.url(FENCE_KEY)


@pytest.mark.parametrize("elsewhere", [{"account": "444455556666"}, {"region": "eu-north-1"}])
def test_one_name_in_two_accounts_or_regions_has_two_places(elsewhere):
    environment = in_a_shared_bucket("one")
    assert (
        build_guard_config(environment).prefix
        != build_guard_config(environment.model_copy(update=elsewhere)).prefix
    )


def test_in_our_own_bucket_the_guards_objects_have_no_prefix():
    assert build_guard_config(SPOT).url(FENCE_KEY) == f"s3://{names.bucket_name(SPOT)}/stop.json"


def test_people_have_rights_where_the_guard_keeps_its_objects():
    shared = in_a_shared_bucket("one")
    places = ("guard's objects", "fence", "leases")
    arns = [arn for where in places for arn in build_targets(shared)[where].arns]
    assert all(f"shared/{PREFIX}" in arn for arn in arns)


def test_a_blocks_hours_are_those_of_the_file():
    config = build_guard_config(with_capacity(block=CapacityBlock(starts=STARTS, ends=ENDS)))  # type: ignore[arg-type]
    assert (config.block_starts, config.block_ends) == (STARTS, ENDS)


@pytest.mark.parametrize(
    ("region", "partition"),
    [("us-east-2", "aws"), ("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")],
)
def test_an_arn_has_its_regions_partition(region, partition):
    assert names.aws_partition(region) == partition
