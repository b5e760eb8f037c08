"""A start raises behind a lease and an armed stop, or not at all; whatever ends it, a stop is
armed."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from guard_world import GUARDED, START, Crash

from tandem.declarations import names
from tandem.errors import ExternalError, InputError
from tandem.guard.fence import FENCE_KEY
from tandem.guard.fleet_start import RaiseRequest, raise_fleet
from tandem.guard.lease import POINTER_KEY, lease_key
from tandem.guard.observe import LABEL_PREFIXES

BLOCK = replace(
    GUARDED,
    capacity_kind="capacity-block",
    block_starts=START,
    block_ends=START + timedelta(hours=4),
)
CALLS = 22  # of a start that nothing disturbs; a test counts them


def test_the_lease_says_who_may_have_the_fleet_until_when(world, start):
    start("r1", hours=2)

    assert world.read(lease_key("r1")) == {
        "schema": 2,
        "run": "r1",
        "who": "anna",
        "experiment": "first",
        "nodes": 1,
        "node_label": {"raise.tandem/fast": "first"},
        "former_label": {},
        "created": "2026-11-21T08:00:00Z",
        "deadline": "2026-11-21T10:00:00Z",
        "beats": False,
        "schedule": "stop-r1",
        "unarmed": [],
        "ending": None,
    }
    assert world.read(POINTER_KEY) == {"schema": 1, "run": "r1"}


def test_the_one_shot_stop_fires_at_the_deadline_and_needs_no_lambda(world, start):
    start("r1", hours=2)
    stop_r1 = world.schedules["stop-r1"]

    assert (stop_r1["ScheduleExpression"], stop_r1["ScheduleExpressionTimezone"]) == (
        "at(2026-11-21T10:00:00)",
        "UTC",
    )
    assert (stop_r1["ActionAfterCompletion"], stop_r1["FlexibleTimeWindow"]) == (
        "DELETE",
        {"Mode": "OFF"},
    )
    assert stop_r1["Target"]["Arn"] == "arn:aws:scheduler:::aws-sdk:eks:updateNodegroupConfig"
    assert stop_r1["Target"]["RoleArn"] == GUARDED.scheduler_role_arn
    assert stop_r1["Target"]["DeadLetterConfig"] == {"Arn": GUARDED.dead_letter_arn}
    assert json.loads(stop_r1["Target"]["Input"]) == {
        "ClusterName": "tandem-home",
        "NodegroupName": "home-trn2",
        "ScalingConfig": {"MinSize": 0, "DesiredSize": 0},
    }


def test_the_one_shot_stop_ends_the_fleet_with_everything_else_removed(world, start):
    start(hours=2)
    world.advance(123)
    assert (world.fired_names, world.alive, world.desired_size) == (["stop-r1"], [], 0)


def test_nothing_is_raised_before_lease_and_stop_are_there(world, start):
    seen = []
    world.between = lambda operation: seen.append(
        (operation, lease_key("r1") in world.objects, bool(world.schedules))
    )
    start()

    assert [item for item in seen if item[0] == "eks.update_nodegroup_config"] == [
        ("eks.update_nodegroup_config", True, True)
    ]


def test_nodes_carry_the_labels_of_this_run_alone(world, start):
    world.group["labels"] |= {"raise.tandem/old": "x", "compile.tandem/experiment": "x"}
    start(node_labels={"raise.tandem/fast": "first"})
    assert world.group["labels"] == {"workload": "neuron-inference", "raise.tandem/fast": "first"}


def test_the_labels_that_a_start_takes_off_are_those_of_the_charts():
    assert (
        f"{names.RAISE_LABEL_PREFIX}/",
        f"{names.COMPILE_LABEL.partition('/')[0]}/",
    ) == LABEL_PREFIXES


# refused


def refusal(start, words, error=InputError, **more):
    with pytest.raises(error, match=words) as result:
        start(**more)
    assert result.value.change
    return result.value


def test_a_start_behind_a_fence_is_refused(world, start, halt):
    halt("enough")
    result = refusal(start, "fenced by anna at 2026-11-21 08:00 UTC: enough")
    assert (world.desired_size, world.schedules, result.exit_code) == (0, {}, 2)
    assert "tandem stop --release --env home" in result.change


@pytest.mark.parametrize("body", [b"", b"{", b'{"state": 1}'])
def test_a_start_behind_a_fence_that_cannot_be_understood_is_refused(world, start, body):
    world.put(FENCE_KEY, body)
    refusal(start, "could not be understood")


def test_a_start_beside_another_runs_lease_is_refused(world, start):
    start("r1")
    refusal(start, "run r1 of anna has the fleet until 2026-11-21 10:00 UTC", run="r2")
    assert "stop-r2" not in world.schedules


def test_a_start_beside_a_runners_lease_names_the_run_to_cancel(start):
    start("r1.2", beats=True)
    assert "runs cancel r1 --env home" in refusal(start, "has the fleet until", run="r2").change


def test_a_start_at_a_leases_deadline_is_refused(world, start):
    start("r1", hours=2)
    world.advance(120)
    for run in ("r1", "r2"):
        refusal(start, "the lease of run r1 ended at 2026-11-21 10:00 UTC", run=run)


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (8.1, "8.1 hours are asked for"),
        (0.1, "0.1 hours"),
        (-1, "-1 hours"),
        (float("nan"), "nan hours"),
        (float("inf"), "inf hours"),
    ],
)
def test_hours_outside_of_the_limits_are_refused(world, start, hours, words):
    refusal(start, words, hours=hours)
    assert not world.calls


@pytest.mark.parametrize("run", ["", "a/b", "../x", "-", "a" * 60, "a b", "ä"])
def test_a_name_that_makes_no_key_or_schedule_is_refused(world, start, run):
    refusal(start, "names no run", run=run)
    assert not world.calls


@pytest.mark.parametrize("nodes", [0, -1, 3])
def test_a_number_of_nodes_outside_of_the_limits_is_refused(world, start, nodes):
    refusal(start, f"{nodes}", nodes=nodes)
    assert (world.schedules, world.desired_size) == ({}, 0)


@pytest.mark.parametrize(
    ("starts", "ends", "hours"),
    [(0, 4, 3.3), (0.1, 9, 1), (-9, -1, 1)],
    ids=["ends too soon", "not begun", "over"],
)
def test_a_run_outside_of_the_block_is_refused(world, start, starts, ends, hours):
    world.deploy_block(START + timedelta(hours=starts), START + timedelta(hours=ends))
    refusal(start, "the Capacity Block lasts from", hours=hours)
    assert world.desired_size == 0


def test_ec2_alone_says_until_when_a_block_lasts(world, start):
    world.deploy_block(START, START + timedelta(hours=4))
    world.block.ends += timedelta(hours=24)  # extended, and paid
    start(
        config=replace(GUARDED, block_starts=START, block_ends=START + timedelta(hours=4)), hours=8
    )
    assert world.desired_size == 1


def test_a_block_whose_end_ec2_does_not_say_now_raises_nothing(world, start):
    world.deploy_block(START, START + timedelta(hours=24))
    world.refuses["ec2.describe_capacity_reservations"] = ["UnauthorizedOperation"]
    with pytest.raises(ExternalError, match=r"reservation unknown \(UnauthorizedOperation"):
        start(hours=1)
    assert (world.desired_size, world.schedules) == (0, {})


@pytest.mark.parametrize("state", ["scheduled", "payment-failed", "expired", ""])
def test_a_block_from_which_nothing_can_be_launched_is_refused(world, start, state):
    world.deploy_block(START, START + timedelta(hours=24))
    world.block.state = state
    # replaced, and Fleet is not deployed
    world.block.id = world.block.id if state else "cr-fedcba98765432100"
    refusal(start, state or "is not in this account and region", hours=1)
    assert world.desired_size == 0


def test_a_node_group_that_names_no_block_is_refused(start):
    refusal(start, "names no Capacity Block", config=BLOCK)


def test_a_node_group_of_another_is_refused_and_not_touched(world, start):
    world.group["tags"] = {}
    refusal(start, "another's: without the tag tandem:environment=home")
    assert world.calls["eks.update_nodegroup_config"] == 0


@pytest.mark.parametrize("status", ["CREATING", "UPDATING", "CREATE_FAILED", "DELETING"])
def test_a_node_group_that_is_not_active_is_refused(world, start, status):
    world.group["status"] = status
    refusal(start, status)


def test_a_node_group_that_lacked_capacity_before_may_be_raised_again(world, start):
    world.group["status"] = "DEGRADED"
    start(nodes=2)
    assert world.desired_size == 2


def test_a_fleet_that_somebody_raised_is_refused(world, start):
    world.want(1)
    refusal(start, "already at 1, without a lease")


def test_a_fleet_that_still_goes_down_is_refused(world, start):
    world.want(1)
    world.want(0)
    refusal(start, r"without a lease: i-\w+ \(shutting-down\)")


@pytest.mark.parametrize(
    "operation", ["s3.get_object", "eks.describe_nodegroup", "ec2.describe_instances"]
)
def test_a_start_that_cannot_see_raises_nothing(world, start, operation):
    world.down = {operation}
    assert refusal(start, "unknown", ExternalError).exit_code == 3
    assert (world.desired_size, world.objects) == (0, {})


@pytest.mark.parametrize(
    "operation",
    [
        "s3.put_object",
        "scheduler.create_schedule",
        "scheduler.get_schedule",
        "scheduler.list_schedules",
    ],
)
def test_a_start_that_cannot_arm_raises_nothing_and_gives_its_lease_back(world, start, operation):
    world.down = {operation}
    refusal(start, "failed", ExternalError)
    assert world.desired_size == 0

    world.down = set()
    start("r2")
    assert world.desired_size == 1


def test_a_schedule_that_is_not_as_it_was_asked_for_raises_nothing(world, start):
    later = {"ScheduleExpression": "at(2036-11-21T10:00:00)"}
    world.interrupt(lambda: world.schedules["stop-r1"].update(later), "scheduler.get_schedule")
    refusal(start, "differs from the request", ExternalError)
    assert world.desired_size == 0


def test_a_raise_that_fails_is_taken_back(world, start):
    world.refuses = {"eks.update_nodegroup_config": ["InternalFailure"]}
    refusal(start, "the node group was set to 0 again", ExternalError)
    assert world.desired_size == 0


# again, at once, and cut short


def test_the_same_run_gets_what_it_has_with_its_first_deadline(world, start):
    first = start("r1", hours=2)
    world.advance(30)
    again = start("r1", hours=2)

    assert again.was_present
    assert (again.lease.deadline, world.desired_size) == (first.lease.deadline, 1)
    assert world.calls["eks.update_nodegroup_config"] == 1


@pytest.mark.parametrize(
    "fields", [{"experiment": "second"}, {"nodes": 2}, {"node_labels": {}}], ids=str
)
def test_the_same_run_for_something_else_is_refused(start, fields):
    start("r1")
    refusal(start, "run r1 was started for 1 nodes and first", **fields)


def test_a_name_that_was_used_before_is_refused(start, halt, passes, lift):
    start("r1", hours=0.25)
    halt()
    passes(20)
    lift()

    refusal(start, "run r1 was started before")


def test_a_start_makes_as_many_calls_as_the_cuts_below_assume(world, start):
    start()
    assert sum(world.calls.values()) == CALLS


@pytest.mark.parametrize("calls", range(1, CALLS + 1))
def test_a_start_that_dies_leaves_nothing_that_no_stop_ends(world, start, calls):
    world.dies_after = calls
    with pytest.raises(Crash):
        start(hours=2)
    world.dies_after = None
    if world.desired_size:
        assert lease_key("r1") in world.objects
        assert "stop-r1" in world.schedules

    world.advance(125)
    assert world.alive == []


@pytest.mark.parametrize("calls", range(1, CALLS + 1))
def test_a_start_that_died_is_finished_by_the_same_run(world, start, calls):
    world.dies_after = calls
    with pytest.raises(Crash):
        start(hours=2)
    world.dies_after = None
    world.advance(5)
    again = start(hours=2)

    assert world.desired_size == 1
    assert again.lease.deadline in {START + timedelta(hours=2), START + timedelta(minutes=125)}
    assert (
        world.schedules["stop-r1"]["ScheduleExpression"]
        == f"at({again.lease.deadline:%Y-%m-%dT%H:%M:%S})"
    )


@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_a_stop_while_a_raise_is_under_way_has_the_last_word(world, start, halt, call):
    world.interrupt(lambda: halt("enough", who="budget"), skip=call - 1)
    try:
        start()
    except InputError as told:
        assert "enough" in str(told) or "came first" in str(told)  # noqa: PT017 - some come after the raise
    world.advance(3)

    assert (world.desired_size, world.alive) == (0, [])


@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_of_two_starts_at_once_one_has_the_fleet(world, start, call):
    winners = []

    def begin(run):
        with contextlib.suppress(InputError):
            winners.append(start(run, nodes=1))

    world.interrupt(lambda: begin("r2"), skip=call - 1)
    begin("r1")

    assert [item.lease.run for item in winners] == [world.read(POINTER_KEY)["run"]]
    assert list(world.schedules) == [f"stop-{winners[0].lease.run}"]
    assert world.desired_size == 1


def test_a_stop_that_was_lifted_while_a_raise_was_under_way_has_the_last_word(
    world, start, halt, lift
):
    world.interrupt(lambda: (halt(), lift()), "scheduler.create_schedule")
    refusal(start, "the lease of run r1 was ended")
    assert world.desired_size == 0


@pytest.mark.parametrize(
    "operation", ["s3.put_object", "scheduler.list_schedules", "eks.update_nodegroup_config"]
)
def test_a_start_that_sleeps_past_its_deadline_leaves_the_fleet_at_0(world, start, operation):
    """The one-shot stop has fired by then, and no reaper looks here."""
    world.interrupt(lambda: world.advance(121), operation)
    refusal(start, "deadline")
    world.advance(3)
    assert (world.desired_size, world.alive) == (0, [])


def test_a_schedule_that_scheduler_does_not_describe_arms_nothing_and_gives_the_lease_back(world):
    scheduler = SimpleNamespace(**{**vars(world.clients.scheduler), "get_schedule": lambda **_: {}})
    odd = replace(world.clients, scheduler=scheduler)

    request = RaiseRequest(run="r1", hours=2, experiment=None, nodes=1, node_labels={}, who="anna")
    with pytest.raises(ExternalError, match="arming the one-shot stop failed"):
        raise_fleet(odd, GUARDED, request, world.now)
    assert (world.desired_size, world.read(POINTER_KEY)["run"]) == (0, None)
