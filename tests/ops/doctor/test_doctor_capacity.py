"""Whether accelerators can be had, when, and at a price that is no rumour."""

from __future__ import annotations

from datetime import date

import pytest
from doctor_world import RESERVATION, TYPE, World, block, in_hours

from tandem.spec.environment import CapacityBlock


def spot(world: World, **more: object) -> None:
    world.change(capacity={"kind": "spot", "reservation_id": None, "block": None, **more})


def test_a_type_that_the_zone_offers_is_ok(world: World) -> None:
    assert world.levels("offering") == ["ok"]


def test_a_type_that_only_other_zones_offer_fails_and_names_them(world: World) -> None:
    spot(world)
    world.facts.offered[TYPE] = ["use2-az1"]

    line = world.only("offering")

    assert (line.level, line.code) == ("fail", 2)
    assert "only in use2-az1" in line.said


def test_a_type_that_is_hidden_is_a_warning_where_it_was_reserved(world: World) -> None:
    world.facts.offered[TYPE] = []

    assert world.levels("offering") == ["warn"]


def test_a_capacity_block_asks_for_no_quota(world: World) -> None:
    world.lines("quota")

    assert "ListServiceQuotas" not in {one.operation for one in world.proxy.log}


@pytest.mark.parametrize("kind", ["spot", "on-demand"])
def test_a_quota_of_one_node_admits_one(world: World, kind: str) -> None:
    spot(world, kind=kind)

    assert world.levels("quota") == ["ok"]


def test_a_quota_of_one_node_refuses_two(world: World) -> None:
    spot(world, nodes=2)

    line = world.only("quota")

    assert (line.level, line.code) == ("fail", 2)
    assert "--desired-value 384" in line.command


def test_an_account_without_a_quota_of_its_own_has_the_default(world: World) -> None:
    spot(world)
    world.facts.quotas = {}
    world.facts.default_quotas = {"All Trn Spot Instance Requests": 0.0}

    assert world.levels("quota") == ["fail"]


def test_a_quota_that_nobody_lists_is_unknown(world: World) -> None:
    spot(world)
    world.facts.quotas = {}

    assert world.levels("quota") == ["unknown"]


def test_a_block_that_is_as_declared_is_ok(world: World) -> None:
    assert world.levels("reservation") == ["ok"]


def test_a_reservation_of_another_account_or_region_is_not_found(world: World) -> None:
    world.facts.reservations = []

    line = world.only("reservation")

    assert (line.level, line.code) == ("fail", 2)
    assert RESERVATION in line.said


@pytest.mark.parametrize(
    ("found", "write"),
    [
        ({"availabilityZoneId": "use2-az1"}, "capacity.zone: use2-az1"),
        ({"instanceType": "trn2.3xlarge"}, "capacity.instance_type: trn2.3xlarge"),
        ({"reservationType": "default"}, "capacity.kind: reservation"),
    ],
)
def test_what_was_reserved_otherwise_is_printed_to_be_written(world: World, found: dict[str, str], write: str) -> None:
    world.facts.reservations = [block(**found)]

    assert write in {line.command for line in world.lines("reservation") if line.code == 2}


def test_fewer_reserved_than_declared_fails(world: World) -> None:
    world.change(capacity={"nodes": 2})

    assert "capacity.nodes: 1" in {line.command for line in world.lines("reservation") if line.level == "fail"}


def test_more_reserved_than_declared_is_warned_of(world: World) -> None:
    world.facts.reservations = [block(totalInstanceCount=2, availableInstanceCount=2)]

    assert world.levels("reservation") == ["warn", "ok"]


@pytest.mark.parametrize(
    ("state", "level"),
    [("scheduled", "warn"), ("payment-pending", "warn"), ("expired", "fail"), ("payment-failed", "fail")],
)
def test_the_state_of_a_block_decides(world: World, state: str, level: str) -> None:
    world.facts.reservations = [block(state=state)]

    assert level in world.levels("reservation")


def test_a_block_that_somebody_uses_is_warned_of(world: World) -> None:
    world.facts.reservations = [block(availableInstanceCount=0)]

    assert world.levels("reservation") == ["warn", "ok"]


def test_another_window_than_declared_is_printed_to_be_written(world: World) -> None:
    world.facts.reservations = [block(endDate=in_hours(71.5))]

    line = next(line for line in world.lines("reservation") if line.level == "fail")

    assert line.command == "capacity.block: {starts: 2026-11-21T11:30:00Z, ends: 2026-11-24T11:30:00Z}"


def test_a_block_without_a_declared_window_is_warned_of(world: World) -> None:
    world.change(capacity={"block": None})

    assert world.levels("reservation") == ["warn", "ok"]


def test_the_last_minutes_of_a_block_admit_no_raise(world: World) -> None:
    world.facts.reservations = [block(endDate=in_hours(0.5))]

    assert any("no raise is admitted in its last 45 minutes" in line.said for line in world.lines("reservation"))


def test_a_block_that_ends_within_the_longest_run_is_warned_of(world: World) -> None:
    world.facts.reservations = [block(endDate=in_hours(3))]

    assert any("it ends in 3.0 hours" in line.said for line in world.lines("reservation") if line.level == "warn")


def test_a_declared_block_that_is_over_fails_without_reservation(world: World) -> None:
    over = CapacityBlock(starts="2026-11-19T11:30:00Z", ends="2026-11-20T11:30:00Z")  # the world asks on the 21st
    world.change(capacity={"reservation_id": None, "block": over})

    assert world.levels("reservation") == ["fail", "warn"]


def test_no_reservation_yet_is_a_warning(world: World) -> None:
    world.change(capacity={"reservation_id": None, "block": None})

    assert world.levels("reservation") == ["warn"]


def test_a_price_from_before_the_purchase_is_warned_of(world: World) -> None:
    world.change(capacity={"usd_per_hour_date": date(2026, 11, 19)})

    assert world.levels("price") == ["warn"]


def test_a_price_of_the_purchase_does_not_grow_old(world: World) -> None:
    world.facts.reservations = [block(createDate="2026-01-05T09:00:00Z")]
    world.change(capacity={"usd_per_hour_date": date(2026, 1, 5)})

    assert world.levels("price") == ["ok"]


@pytest.mark.parametrize(("days", "level"), [(7, "ok"), (8, "warn")])
def test_a_spot_price_grows_old_in_a_week(world: World, days: int, level: str) -> None:
    spot(world, usd_per_hour_date=date(2026, 11, 21 - days))

    assert world.levels("price") == [level]


def test_a_price_of_tomorrow_is_bad_input(world: World) -> None:
    spot(world, usd_per_hour_date=date(2026, 11, 22))

    assert world.levels("price") == ["fail"]
