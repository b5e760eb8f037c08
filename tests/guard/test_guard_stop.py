"""A stop fences, sets the group to 0, and goes on until EC2 lists no instance, whatever fails on
the way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from guard_world import GUARDED

from tandem.errors import ExternalError, InputError
from tandem.guard.apply import run_reaper_pass
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import POINTER_KEY
from tandem.guard.observe import observe_fleet

READS = ["s3.get_object", "eks.describe_nodegroup", "ec2.describe_instances"]
WRITES = [
    "s3.put_object",
    "eks.update_nodegroup_config",
    "sns.publish",
    "cloudwatch.put_metric_data",
]


def test_a_stop_says_who_why_when_and_of_which_run(world, start, halt):
    start("r1")
    world.advance(10)
    halt("the benchmark died")

    fence = world.read(FENCE_KEY)
    assert {name: fence[name] for name in ("state", "who", "why", "run", "at")} == {
        "state": "stopping",
        "who": "anna",
        "why": "the benchmark died",
        "run": "r1",
        "at": "2026-11-21T08:10:00Z",
    }


def test_a_stop_sets_minimum_and_desired_to_0(world, halt):
    world.size({"minSize": 1, "desiredSize": 2})
    halt()
    assert world.group["scalingConfig"] == {"minSize": 0, "maxSize": 2, "desiredSize": 0}


def test_a_stop_is_over_when_ec2_lists_no_instance(world, start, halt, passes):
    world.stop_s = 420
    start()
    halt()
    world.advance(5)
    report = run_reaper_pass(world.clients, GUARDED, world.now)
    assert (report.fleet.fence.state, len(world.alive)) == ("stopping", 1)

    passes(10)
    assert (world.read(FENCE_KEY)["state"], world.alive) == ("stopped", [])


def test_what_eks_does_not_end_within_the_grace_is_terminated_by_id(world, start, halt, passes):
    world.keeps = True
    start()
    halt()
    world.advance(5)
    assert passes(0).actions == ()

    world.advance(5)
    assert passes(0).actions[-1] == f"terminated by id: {world.machines[0].id}"

    passes(10)
    assert world.alive == []
    assert world.read(FENCE_KEY)["terminated"] == [world.machines[0].id]


def test_ec2_that_does_not_answer_is_asked_to_terminate_once_a_pass(world, start, halt, passes):
    world.keeps = True
    start(nodes=2)
    halt()
    world.advance(10)
    world.down = {"ec2.terminate_instances"}
    failures = passes(0).failures

    assert world.calls["ec2.terminate_instances"] == 1
    assert (
        failures[-1]
        == f"terminating {world.machines[1].id} was not tried: EC2 gave the call before no answer"
    )


@pytest.mark.parametrize("knob", ["ignores", "immortal"])
def test_a_fleet_that_does_not_go_is_a_failure(world, start, halt, passes, knob):
    start()
    setattr(world, knob, True)
    halt()
    assert passes(20).failures == ()

    late = passes(15)
    assert late.failures != ()
    assert late.metrics["stop_failures"] == 1
    assert "NOT stopped" in world.messages[-1]["subject"]


def test_a_failure_is_told_every_hour_again(world, start, halt, passes):
    start()
    world.immortal = True
    halt()
    passes(240)

    assert sum("NOT stopped" in item["subject"] for item in world.messages) == 4


def test_a_functions_stop_counts_nothing_that_a_pass_of_the_reaper_counts(world, start, halt):
    """Else a silent reaper would look alive after it, and money and idle minutes be counted
    twice."""
    start()
    halt(publishes_metrics=True)
    assert world.metrics == [{"stop_failures": 0.0}]


def test_a_persons_stop_publishes_nothing(world, start, halt):
    """The functions alone may publish there, so that nobody feigns that the guard lives."""
    start()
    halt()
    assert world.metrics == []


def test_a_change_is_told_once(world, start, halt, passes):
    start()
    halt()
    passes(60)
    assert [item["subject"] for item in world.messages] == [
        "Tandem home: fleet being stopped",
        "Tandem home: fleet gone",
    ]


def test_a_change_that_could_not_be_told_is_told_by_the_next_pass(world, start, halt, passes):
    start()
    world.down = {"sns"}
    assert halt().messages == ()

    world.down = set()
    passes(0)
    assert len(world.messages) == 1


def test_a_stopped_fence_is_not_written_for_ever(world, start, halt, passes):
    start()
    halt()
    passes(30)
    before = world.objects[FENCE_KEY]
    passes(30)

    assert world.objects[FENCE_KEY] == before


@pytest.mark.parametrize("call", range(1, 9))
def test_two_stops_at_once_agree_on_one(world, start, halt, call):
    start()
    world.interrupt(lambda: halt("second", who="budget"), skip=call - 1)
    report = halt("first")

    assert report.failures == ()
    assert world.read(FENCE_KEY)["who"] in {"anna", "budget"}
    assert report.fleet.fence.who == world.read(FENCE_KEY)["who"]
    assert world.desired_size == 0


def test_s3_out_of_reach_does_not_keep_the_fleet_up(world, start, halt):
    start()
    world.down = {"s3"}
    report = halt()
    world.advance(3)

    assert (world.desired_size, world.alive) == (0, [])
    assert any("stop.json" in failure for failure in report.failures)
    assert report.metrics["stop_failures"] == 1


def test_a_fence_that_s3_did_not_take_is_written_by_a_next_pass(world, start, halt, passes):
    start()
    world.down = {"s3"}
    halt()
    world.down = set()
    passes(15)

    assert (world.read(FENCE_KEY)["state"], world.read(FENCE_KEY)["run"]) == ("stopped", "r1")


def test_a_fence_that_can_be_written_though_not_read_is_written(world, start, halt):
    start()
    world.refuses = {"s3.get_object": ["InternalError"]}
    assert (halt().failures, world.read(FENCE_KEY)["state"]) == ((), "stopping")


@pytest.mark.parametrize("operation", [*READS[1:], *WRITES])
@pytest.mark.parametrize(
    "code", ["ThrottlingException", "InternalFailure", "AccessDeniedException"]
)
def test_a_call_that_fails_once_is_made_good_by_the_next_pass(
    world, start, halt, passes, operation, code
):
    start()
    world.refuses = {operation: [code]}
    failed_failures = halt(publishes_metrics=True).failures
    passes(30)

    # asked again by the stop
    at_once = (operation, code) == ("eks.update_nodegroup_config", "ThrottlingException")
    assert (failed_failures == ()) == at_once
    assert (world.alive, world.read(FENCE_KEY)["state"], world.desired_size) == ([], "stopped", 0)


@pytest.mark.parametrize("operation", [*READS, *WRITES])
def test_a_call_that_always_fails_leaves_an_alarm(world, start, halt, passes, operation):
    start()
    world.down = {operation}
    halt()
    assert passes(60).failures != ()


def test_an_eks_that_does_not_describe_is_asked_for_0_all_the_same(world, start, halt):
    """The instances' own tag says whose they are."""
    start()
    world.down = {"eks.describe_nodegroup"}
    halt()
    assert world.desired_size == 0


def test_instances_that_cannot_be_listed_are_not_gone(world, start, halt, passes):
    start()
    world.down = {"ec2"}
    halt()
    report = passes(30)

    assert world.read(FENCE_KEY)["state"] == "stopping"
    assert report.failures[0].startswith(
        "instances unknown while a stop is due: EndpointConnectionError"
    )
    assert "instances_alive" not in report.metrics


def test_a_fleet_raised_behind_the_fence_is_ended_and_cried_about(world, start, halt, passes):
    start()
    halt()
    passes(60)
    world.size({"minSize": 1, "desiredSize": 1})
    report = passes(0)
    passes(15)

    assert "raised again behind the stop" in report.failures[0]
    assert (world.alive, world.desired_size) == ([], 0)


SPOILT = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"schema": 1, "state": "lifted"}',
    b'{"schema": 1, "state": "open"}',
    b"\xff",
    b"[" * 100_000,
]


@pytest.mark.parametrize("body", SPOILT, ids=lambda body: repr(body[:12]))
def test_a_fence_that_cannot_be_understood_is_a_fence(world, passes, body):
    world.want(1)
    world.put(FENCE_KEY, body)
    passes(5)
    assert (world.desired_size, world.read(FENCE_KEY)["state"]) == (0, "stopped")


@pytest.mark.parametrize(
    "text", ["x" * 500_000, "caf\udce9", "\x1b[2J\x00", "a\nb"], ids=lambda text: ascii(text[:9])
)
@pytest.mark.parametrize("field", ["who", "why", "run"])
def test_a_fence_says_nothing_that_people_cannot_be_told(world, halt, passes, field, text):
    world.want(1)
    halt()
    world.change(FENCE_KEY, **{field: text})
    report = passes(5)

    assert (report.failures, world.messages[-1]["subject"], world.desired_size) == (
        (),
        "Tandem home: fleet gone",
        0,
    )


def test_an_instance_that_ec2_will_not_end_keeps_no_other(world, start, halt, passes):
    world.keeps = True
    start(nodes=2)
    world.machines[0].protected = True
    halt()
    report = passes(20)

    assert [machine.id for machine in world.alive] == [world.machines[0].id]
    assert f"terminating {world.machines[0].id} failed: OperationNotPermitted" in "; ".join(
        report.failures
    )


@pytest.mark.parametrize(
    "at", ["2036-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"]
)
def test_a_fence_from_another_time_does_not_keep_what_eks_keeps(world, start, halt, passes, at):
    world.keeps = True
    start()
    halt()
    world.change(FENCE_KEY, at=at)
    passes(20)

    assert (world.alive, world.read(FENCE_KEY)["state"]) == ([], "stopped")


# another environment's objects in the same bucket


SHARED = replace(GUARDED, prefix="guard/home/")


def test_what_another_environment_keeps_in_the_same_bucket_is_none_of_ours(
    world, start, halt, passes
):
    start(config=SHARED)
    world.put(
        f"guard/other/{FENCE_KEY}",
        {"state": "stopping", "who": "a", "why": "b", "run": None, "at": "2026"},
    )
    world.put(f"guard/other/{POINTER_KEY}", {"run": "r9"})
    report = passes(20, SHARED)

    assert (report.plan.reasons, world.desired_size) == ((), 1)
    assert {key for key in world.objects if not key.startswith("guard/other/")} == {
        "guard/home/lease.json",
        "guard/home/runs/r1/lease.json",
    }
    halt(config=SHARED)
    assert world.read("guard/home/stop.json")["state"] == "stopping"


# another's node group


@pytest.fixture
def strange(world):
    world.group["tags"] = {"made-by": "another"}
    world.size({"minSize": 1, "desiredSize": 1})
    return world


def test_a_node_group_of_another_is_not_touched(strange, halt, passes):
    halt()
    passes(120)
    assert (strange.desired_size, [machine.state for machine in strange.machines]) == (
        1,
        ["running"],
    )
    assert (
        strange.calls["eks.update_nodegroup_config"]
        == strange.calls["ec2.terminate_instances"]
        == 0
    )


def test_a_node_group_nobody_knows_the_owner_of_is_not_touched(strange, halt):
    strange.down = {"eks.describe_nodegroup"}
    halt()
    assert strange.desired_size == 1


def test_an_environment_without_a_fleet_is_stopped_at_once(world, halt):
    world.group = None
    assert (halt().failures, world.read(FENCE_KEY)["state"]) == ((), "stopped")


# lifting


def test_lifting_ends_the_lease_too(world, start, halt, lift, passes):
    start()
    halt()
    passes(10)
    lift()

    assert (world.read(FENCE_KEY)["state"], world.read(POINTER_KEY)["run"]) == ("lifted", None)
    assert observe_fleet(world.clients, GUARDED, world.now).live_lease is None


def test_lifting_is_refused_while_an_instance_lives(world, start, halt, lift):
    world.stop_s = 3600
    start()
    halt()

    with pytest.raises(InputError, match=f"instances {world.machines[0].id}"):
        lift()


def test_lifting_is_refused_while_the_group_wants_nodes(world, halt, lift):
    halt()
    world.no_capacity = True
    world.want(1)

    with pytest.raises(InputError, match="desired 1"):
        lift()


@pytest.mark.parametrize("operation", READS)
def test_lifting_is_refused_while_anything_is_unknown(world, halt, lift, operation):
    halt()
    world.down = {operation}

    with pytest.raises(ExternalError, match="unknown"):
        lift()
    assert world.read(FENCE_KEY)["state"] == "stopped"


def test_lifting_is_refused_where_somebody_writes_the_fence_at_that_moment(world, halt, lift):
    halt()
    world.interrupt(lambda: world.put(FENCE_KEY, world.read(FENCE_KEY)), "s3.put_object")
    with pytest.raises(ExternalError, match="somebody wrote it"):
        lift()
