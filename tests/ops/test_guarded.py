"""What a stop knows of an environment is what its file says and its stacks are named."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from fleet_seen import BLOCK, SPOT

from tandem.ops.guarded import guarded, partition_of
from tandem.spec import names
from tandem.spec.environment import PLACEHOLDER_RESERVATION_ID, Block

HOURS = Block(starts="2026-12-01T11:30:00Z", ends="2026-12-02T11:30:00Z")  # type: ignore[arg-type]  # as YAML has it


def with_capacity(**changes: object) -> object:
    return BLOCK.model_copy(update={"capacity": BLOCK.capacity.model_copy(update=changes)})


def test_the_limits_are_the_declared_ones() -> None:
    found = guarded(SPOT)

    assert (found.max_hours, found.idle_minutes, found.usd_per_hour) == (8, 30, 35.76)


def test_names_are_the_computed_ones() -> None:
    found = guarded(SPOT)

    assert (found.cluster, found.node_group, found.bucket, found.schedule_group) == (
        names.cluster(SPOT), names.node_group(SPOT), names.bucket(SPOT), names.schedule_group(SPOT),
    )  # fmt: skip
    assert found.scheduler_role_arn == f"arn:aws:iam::111122223333:role/{names.scheduler_role(SPOT)}"
    assert found.dead_letter_arn == f"arn:aws:sqs:us-east-2:111122223333:{names.dead_letter_queue(SPOT)}"


def test_a_blocks_hours_are_those_of_the_file() -> None:
    found = guarded(with_capacity(block=HOURS))  # type: ignore[arg-type]

    assert (found.block_starts, found.block_ends) == (
        datetime(2026, 12, 1, 11, 30, tzinfo=UTC), datetime(2026, 12, 2, 11, 30, tzinfo=UTC),
    )  # fmt: skip


@pytest.mark.parametrize("given", [None, PLACEHOLDER_RESERVATION_ID])
def test_a_placeholder_is_no_reservation(given: str | None) -> None:
    assert guarded(with_capacity(reservation_id=given)).reservation_id is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("region", "partition"), [("us-east-2", "aws"), ("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")]
)
def test_an_arn_has_its_regions_partition(region: str, partition: str) -> None:
    assert partition_of(region) == partition
