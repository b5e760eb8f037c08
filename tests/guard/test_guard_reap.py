"""When a stop is due, and when it is not: the reaper's reasons, one by one, by the clock of its
caller."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from guard_world import EC2_TAKES, GUARDED, START

from tandem.guard.apply import run_reaper_pass
from tandem.guard.capacity_block import BLOCK_ENDS_TAG, BLOCK_STARTS_TAG
from tandem.guard.config import GuardConfig
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import POINTER_KEY, heartbeat_key, lease_key
from tandem.guard.observe import observe_fleet
from tandem.guard.pass_metrics import METRIC_UNITS
from tandem.guard.plan import plan_stop

BLOCK = replace(
    GUARDED,
    capacity_kind="capacity-block",
    block_starts=START,
    block_ends=START + timedelta(hours=24),
    max_hours=24,
)
BEATS = {"beats": True, "hours": 8}
DEEP = b"[" * 100_000  # deeper than Python reads


def why(world, config: GuardConfig = GUARDED) -> str:
    return "; ".join(plan_stop(observe_fleet(world.clients, config, world.now), config).reasons)


def whys_around(world, minutes, config: GuardConfig = GUARDED):
    """Return the reasons a minute before a moment, and at it."""
    world.advance(minutes - 1)
    before = why(world, config)
    world.advance(1)
    return before, why(world, config)


def beat(world, minutes):
    world.put(
        heartbeat_key("r1"),
        {"schema": 1, "at": (world.now + timedelta(minutes=minutes)).isoformat()},
    )


# none


def test_nothing_is_due_under_a_live_lease(start, passes):
    start(hours=8)
    assert passes(7 * 60).plan.reasons == ()


# the lease


def test_a_stop_is_due_at_the_deadline(world, start):
    start(hours=2)
    world.fires = False
    assert whys_around(world, 120) == ("", "the lease of run r1 ends at 2026-11-21T10:00:00Z")


def test_the_reaper_writes_the_fence_that_the_one_shot_stop_could_not(world, start, passes):
    start(hours=2)
    world.advance(125)
    assert (world.alive, world.fired_names) == ([], ["stop-r1"])

    passes(0)
    assert world.read(FENCE_KEY)["state"] == "stopped"


def test_the_first_pass_stops_a_size_without_a_lease_that_has_no_instance_yet(world):
    world.no_capacity = True
    world.want(2)
    assert why(world) == "the node group wants 2 nodes without a lease"


def test_a_lease_whose_fleet_is_at_0_is_over_after_the_grace(world, start):
    start(hours=8)
    world.want(0)
    assert whys_around(world, 10) == ("", "run r1 has a lease and its fleet is at 0")


def test_a_raise_that_waits_for_capacity_keeps_its_lease(world, start, passes):
    world.no_capacity = True
    start(hours=8)
    assert passes(120).plan.reasons == ()


# heartbeats


@pytest.mark.parametrize("minutes", [-29, 5])
def test_a_run_that_beats_goes_on(world, start, minutes):
    start(**BEATS)
    world.advance(120)
    beat(world, minutes=minutes)
    assert why(world) == ""


@pytest.mark.parametrize("minutes", [-60, -30, 5.1, 1e6])
def test_a_beat_that_is_stale_or_that_no_clock_explains_is_a_stop(world, start, minutes):
    start(**BEATS)
    world.advance(120)
    beat(world, minutes=minutes)
    assert why(world).startswith("run r1 has not beaten since")


def test_a_missing_beat_is_a_stop_after_the_idle_minutes(world, start):
    start(**BEATS)
    assert whys_around(world, 30) == ("", "run r1 has not beaten since 2026-11-21T08:00:00Z")


DATELESS_BODIES = [b"{", b"[]", b'{"schema": 1, "at": "soon"}', DEEP]
DATELESS_BODIES += [b'{"schema": 1, "at": "2026-11-21T09:00:00"}']


@pytest.mark.parametrize("body", DATELESS_BODIES, ids=lambda body: repr(body[:32]))
def test_a_beat_that_cannot_be_understood_is_none_and_said(world, start, body):
    start(**BEATS)
    world.advance(60)
    world.put(heartbeat_key("r1"), body)

    assert "has not beaten" in why(world)
    assert (
        "runs/r1/heartbeat.json: not understood"
        in observe_fleet(world.clients, GUARDED, world.now).faults[0]
    )


def test_a_beat_that_cannot_be_read_is_unknown_and_no_reason(world, start):
    start(**BEATS)
    world.advance(60)
    world.refuses = {"s3.get_object": ["", "", "", "InternalError"]}
    seen = observe_fleet(world.clients, GUARDED, world.now)

    assert (list(seen.unknown), plan_stop(seen, GUARDED).reasons) == (["heartbeat"], ())


# age and block


def test_an_old_instance_is_a_stop_whatever_its_lease(world, start):
    start(hours=8)
    lease = world.read(lease_key("r1"))
    later = {"created": "2026-11-21T12:00:00Z", "deadline": "2999-01-01T00:00:00Z"}
    world.put(lease_key("r1"), {**lease, **later})
    world.schedules.clear()
    assert whys_around(world, 8 * 60) == ("", "an instance is older than 8 hours")


def test_a_stop_is_due_45_minutes_before_the_blocks_end(world, start):
    world.deploy_block(BLOCK.block_starts, BLOCK.block_ends)
    start(config=BLOCK, hours=23)
    world.advance(23 * 60 - 1)
    world.schedules.clear()
    lease = world.read(lease_key("r1"))
    world.put(lease_key("r1"), {**lease, "deadline": "2999-01-01T00:00:00Z"})
    reasons = whys_around(world, 16, BLOCK)
    assert reasons == ("", "the Capacity Block ends at 2026-11-22T08:00:00Z")


def test_a_clock_past_the_blocks_end_stops_what_still_runs(world):
    world.want(1)
    world.advance(25 * 60)
    assert "the Capacity Block ends" in why(world, BLOCK)


def test_a_clock_past_the_blocks_end_stops_nothing_where_nothing_runs(world):
    world.advance(25 * 60)
    assert why(world, BLOCK) == ""


def test_a_renewed_block_is_known_by_the_node_groups_tags(world, start, passes):
    """Deploying Fleet sets them; what the guard was told at its own deploy is of the block
    before."""
    old = replace(
        BLOCK, block_starts=START - timedelta(hours=48), block_ends=START - timedelta(hours=24)
    )
    world.deploy_block(START - timedelta(hours=1), START + timedelta(hours=9))
    start(config=old, hours=8)
    assert passes(7 * 60, old).plan.reasons == ()

    world.advance(75)
    world.want(1)
    assert "the Capacity Block ends at 2026-11-21T17:00:00Z" in why(world, old)


def test_an_extended_block_keeps_its_fleet_over_the_old_end(world, start, passes):
    world.deploy_block(START, START + timedelta(hours=3))
    world.block.ends += timedelta(hours=24)
    world.block.scale_down_at = None  # EKS moved its action, of which nobody knows whether it does
    start(hours=8)
    report = passes(7 * 60)
    assert (report.plan.reasons, len(world.alive)) == ((), 1)


def test_without_ec2s_answer_a_block_ends_as_planned(world, start, passes):
    world.deploy_block(START, START + timedelta(hours=3))
    world.block.ends += timedelta(hours=24)
    start(hours=8)
    passes(130)
    world.down = {"ec2.describe_capacity_reservations"}
    report = passes(5)

    assert "the Capacity Block ends at 2026-11-21T11:00:00Z" in report.plan.reasons
    assert "https://ec2.example.com" in report.fleet.unknown["reservation"]


def test_a_pass_that_cannot_read_the_block_ends_as_a_failure(world, passes):
    world.deploy_block(START, START + timedelta(hours=3))
    world.down = {"ec2.describe_capacity_reservations"}
    assert [text.partition(":")[0] for text in passes(0).failures] == ["reservation unknown"]


def test_a_block_that_ends_early_is_left_before_ec2_takes_its_nodes(world, start, passes):
    world.deploy_block(START, START + timedelta(hours=24))
    start(hours=8)
    passes(60)
    world.block.ends = world.now + timedelta(hours=2)
    passes(85)
    [machine] = world.machines

    assert "the Capacity Block ends at" in world.read(FENCE_KEY)["why"]
    assert machine.ended < world.block.ends - EC2_TAKES


@pytest.mark.parametrize(
    ("state", "is_due"), [("cancelled", True), ("expired", True), ("unavailable", False)]
)
def test_a_block_that_is_over_by_its_state_is_left_at_once(world, start, state, is_due):
    world.deploy_block(START, START + timedelta(hours=24))
    start(hours=8)
    world.block.state = state
    assert why(world) == (f"the Capacity Block {world.block.id} is {state}" if is_due else "")


def test_a_parked_fleet_whose_block_ec2_has_forgotten_is_no_fault(world, passes):
    world.deploy_block(START - timedelta(hours=30), START - timedelta(hours=6))
    world.block = None
    report = passes(0)
    assert (report.plan.reasons, report.failures, report.fleet.reservation.state) == ((), (), "")


def test_tags_of_a_block_that_cannot_be_understood_are_said(world):
    world.group["tags"] |= {BLOCK_STARTS_TAG: "soon", BLOCK_ENDS_TAG: "later"}
    seen = observe_fleet(world.clients, BLOCK, world.now)
    assert (seen.block_ends, len(seen.faults)) == (BLOCK.block_ends, 1)


# objects that cannot be understood


@pytest.mark.parametrize("key", [POINTER_KEY, lease_key("r1")])
@pytest.mark.parametrize(
    "body",
    [b"{", b"null", b'{"schema": 1, "run": 7}', b"\xff", DEEP],
    ids=lambda body: repr(body[:9]),
)
def test_a_lease_that_cannot_be_understood_is_none_and_said(world, start, key, body):
    start(hours=8)
    world.put(key, body)
    world.advance(30)
    seen = observe_fleet(world.clients, GUARDED, world.now)

    assert (seen.lease, plan_stop(seen, GUARDED).reasons) == (
        None,
        ("instances live without a lease",),
    )
    assert f"{key}: not understood" in seen.faults[0]


@pytest.mark.parametrize(
    "created", ["2026-11-21T09:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"]
)
def test_a_lease_from_another_time_is_none(world, start, created):
    start(**BEATS)
    world.change(lease_key("r1"), created=created)
    world.advance(30)
    seen = observe_fleet(world.clients, GUARDED, world.now)

    assert (seen.lease, len(seen.faults)) == (None, 1)
    assert plan_stop(seen, GUARDED).reasons == ("instances live without a lease",)


@pytest.mark.parametrize(
    "run", ["caf\udce9", "x" * 2000, "../r1", "r1/", "-"], ids=lambda run: ascii(run[:9])
)
def test_a_pointer_to_what_is_no_runs_name_leads_to_no_lease(world, start, run):
    start(hours=8)
    world.put(POINTER_KEY, {"schema": 1, "run": run})
    world.advance(30)
    seen = observe_fleet(world.clients, GUARDED, world.now)

    assert plan_stop(seen, GUARDED).reasons == ("instances live without a lease",)
    assert "names no run" in seen.faults[0]


def test_a_lease_that_says_it_never_ends_is_over_after_max_hours_whatever_replaces_its_nodes(
    world, start, passes
):
    start(hours=8)
    world.change(lease_key("r1"), deadline="2999-01-01T00:00:00Z")
    world.fires = False
    world.advance(7 * 60)
    # as EC2 ends spot; the group starts another
    world.machines[0].state = "terminated"
    world.machines[0].due = None
    assert passes(30).plan.reasons == ()
    assert passes(30).plan.reasons == ("fenced by reap: the lease of run r1 is older than 8 hours",)
    assert world.desired_size == 0


def test_a_lease_of_another_run_under_its_name_is_none(world, start):
    start(hours=8)
    world.change(lease_key("r1"), run="r2")
    assert observe_fleet(world.clients, GUARDED, world.now).lease is None


def test_a_lease_that_is_not_there_is_none_and_said(world, start):
    start(hours=8)
    del world.objects[lease_key("r1")]
    assert (
        "runs/r1/lease.json: not there"
        in observe_fleet(world.clients, GUARDED, world.now).faults[0]
    )


# unknown


def test_an_answer_that_is_none_of_the_services_is_unknown(world):
    world.want(1)
    odd = replace(
        world.clients, eks=SimpleNamespace(describe_nodegroup=lambda **_: {"ResponseMetadata": {}})
    )
    seen = observe_fleet(odd, GUARDED, world.now)

    assert (seen.has_node_group, len(seen.instances)) == (None, 1)
    assert seen.unknown["node group"].startswith(
        "an answer that is none of the service's: KeyError"
    )


def test_an_old_instance_leaves_eks_its_grace_where_the_lease_is_unknown(world):
    world.want(1)
    world.down = {"s3"}
    world.advance(8 * 60)
    seen = replace(
        observe_fleet(world.clients, GUARDED, world.now), alive_since=START - timedelta(hours=1)
    )
    plan = plan_stop(seen, GUARDED)

    assert (plan.reasons, plan.terminate_ids) == (("an instance is older than 8 hours",), ())


def test_an_unknown_lease_is_no_missing_one(world):
    world.want(1)
    world.down = {"s3"}
    world.advance(60)
    assert why(world) == ""


def test_what_is_unknown_fails_the_pass(world):
    world.down = {"s3"}

    assert (
        run_reaper_pass(world.clients, GUARDED, world.now)
        .failures[0]
        .startswith("fence unknown: EndpointConnectionError")
    )


@pytest.mark.parametrize("down", ["s3", "s3.put_object"])
def test_max_hours_hold_without_s3(world, start, passes, down):
    start(hours=8)
    world.fires = False
    world.keeps = True
    world.down = {down}
    passes(9 * 60)

    assert world.alive == []


# metrics


def test_a_pass_publishes_each_metric_once(world, start):
    start(nodes=2)
    world.advance(60)
    run_reaper_pass(world.clients, GUARDED, world.now)

    assert world.metrics == [
        {
            "instances_alive": 2,
            "oldest_instance_hours": 1,
            "fleet_usd": 2 * 36 / 12,
            "excess_nodes": 0,
            "idle_block_minutes": 0,
            "stop_failures": 0,
        }
    ]
    assert world.metrics[0].keys() == METRIC_UNITS.keys()


def test_a_paid_block_without_a_run_is_idle(world, start, passes):
    world.deploy_block(BLOCK.block_starts, BLOCK.block_ends)
    idle = passes(0, BLOCK).metrics["idle_block_minutes"]
    start(config=BLOCK, hours=8)
    busy = passes(5, BLOCK).metrics["idle_block_minutes"]
    assert (idle, busy) == (5, 0)


def test_a_block_that_is_not_paid_is_never_idle(world, passes):
    world.deploy_block(BLOCK.block_starts, BLOCK.block_ends)
    world.block.state = "payment-failed"
    assert passes(0).metrics["idle_block_minutes"] == 0


def test_a_fleet_without_a_lease_does_not_use_its_block(world, passes):
    world.want(1)
    assert passes(5, BLOCK).metrics["idle_block_minutes"] == 5


def test_nothing_is_published_of_what_is_unknown(world, passes):
    world.down = {"ec2"}
    assert passes(0).metrics == {"stop_failures": 0}


# purity and variables


@pytest.mark.parametrize("config", [GUARDED, BLOCK, replace(GUARDED, topic_arn=None)])
def test_a_guarded_fleet_is_read_back_from_its_variables(config):
    assert GuardConfig.from_variables(config.to_variables()) == config
