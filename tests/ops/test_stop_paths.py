"""When the reaper will act, as far as a look can tell."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import boto3
import pytest
from botocore.stub import Stubber
from fleet_seen import BLOCK, NOW, SPOT, fence, instance, lease, seen

from tandem.ops.fault import OpsError
from tandem.ops.guarded import guarded
from tandem.ops.paths import budget, reasons
from tandem.ops.reservation import Reservation, reservation
from tandem.stop import Seen

LIMITS = guarded(SPOT)


def first(look: Seen) -> tuple[timedelta, str]:
    at, why = min(reasons(look, LIMITS))
    return at - NOW, why


def test_a_parked_fleet_is_stopped_for_nothing() -> None:
    assert list(reasons(seen(), LIMITS)) == []


def test_nothing_is_foretold_of_what_is_anothers() -> None:
    assert list(reasons(seen(instance(minutes=600, ours=False), fence=fence()), LIMITS)) == []


def test_a_lease_ends_at_its_deadline() -> None:
    assert first(seen(instance(), lease=lease(minutes=60))) == (timedelta(minutes=60), "the lease's deadline")


def test_an_old_instance_ends_before_a_long_lease() -> None:
    assert first(seen(instance(minutes=7.5 * 60), lease=lease(minutes=60))) == (
        timedelta(minutes=30), "the age of i-1",
    )  # fmt: skip


def test_an_instance_without_a_lease_ends_idle_minutes_after_its_launch() -> None:
    assert first(seen(instance(minutes=10))) == (timedelta(minutes=20), "i-1, which no lease covers")


@pytest.mark.parametrize(("beat", "left"), [(None, 0), (NOW - timedelta(minutes=10), 20)])
def test_a_lease_that_beats_ends_idle_minutes_after_the_last_beat(beat: object, left: int) -> None:
    look = replace(seen(instance(), lease=lease(beats=True)), heartbeat=beat)

    assert first(look) == (timedelta(minutes=left), "the missing heartbeat")


def test_a_block_ends_the_fleet_45_minutes_before_its_end() -> None:
    look = seen(instance(), lease=lease(minutes=60), block_ends=NOW + timedelta(minutes=90))

    assert first(look) == (timedelta(minutes=45), "the block's end")


@pytest.mark.parametrize(("fenced", "left"), [(2, 8), (30, 0)])
def test_what_a_stop_leaves_is_ended_by_id_after_the_grace(fenced: float, left: int) -> None:
    assert first(seen(instance(minutes=60), fence=fence(minutes=fenced))) == (
        timedelta(minutes=left), "what is left, by id",
    )  # fmt: skip


# the reservation: answers have the form of botocore's own model; nobody has recorded one


@pytest.fixture
def ec2() -> object:
    return boto3.client("ec2", region_name="us-east-2", aws_access_key_id="x", aws_secret_access_key="y")  # noqa: S106


def test_a_reservation_is_read_as_ec2_says_it(ec2: object) -> None:
    said = {
        "CapacityReservationId": "cr-0123456789abcdef0", "State": "active", "StartDate": NOW, "TotalInstanceCount": 2,
        "AvailableInstanceCount": 1,
    }  # fmt: skip
    with Stubber(ec2) as stub:
        stub.add_response(
            "describe_capacity_reservations", {"CapacityReservations": [said]},
            {"CapacityReservationIds": ["cr-0123456789abcdef0"]},
        )  # fmt: skip

        found = reservation(ec2, BLOCK)

    assert found == Reservation(
        id="cr-0123456789abcdef0", state="active", starts=NOW, ends=None, total=2, available=1
    )  # fmt: skip


def test_a_reservation_that_ec2_does_not_know_is_none(ec2: object) -> None:
    with Stubber(ec2) as stub:
        stub.add_client_error("describe_capacity_reservations", "InvalidCapacityReservationId.NotFound")

        assert reservation(ec2, BLOCK) is None


def test_a_reservation_that_may_not_be_read_is_a_fault_with_its_right(ec2: object) -> None:
    with Stubber(ec2) as stub:
        stub.add_client_error("describe_capacity_reservations", "UnauthorizedOperation")

        with pytest.raises(OpsError, match="allow ec2:DescribeCapacityReservations"):
            reservation(ec2, BLOCK)


def test_what_is_bought_by_the_hour_has_no_reservation(ec2: object) -> None:
    with Stubber(ec2):
        assert reservation(ec2, SPOT) is None


@pytest.mark.parametrize(("region", "said"), [("us-east-2", "is missing"), ("eu-north-1", "CloudFormation makes none")])
def test_a_missing_budget_says_where_no_deploy_makes_one(region: str, said: str) -> None:
    budgets = boto3.client("budgets", region_name=region, aws_access_key_id="x", aws_secret_access_key="y")  # noqa: S106
    with Stubber(budgets) as stub:
        stub.add_client_error("describe_budget", "NotFoundException")

        path = budget(budgets, SPOT.model_copy(update={"region": region}))

    assert path.armed is False
    assert said in path.said
