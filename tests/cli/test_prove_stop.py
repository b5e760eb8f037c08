"""`tandem doctor --prove-stop` as it is typed: the one-shot stop fired at the local endpoint, and
what may go wrong."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from doubles.fault_proxy.proxy import FaultProxy
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, AnswerLossFault, FaultRule
from fleet_seen import lease_objects
from fleet_world import Fleet

from rehearsal.aws import fleet_behavior as knobs
from tandem.declarations import names
from tandem.guard.fleet_start import build_stop_schedule
from tandem.guard.lease import Lease
from tandem.ops.doctor import stop_proof

PROVE = ("doctor", "--prove-stop")
BROKEN = knobs.FleetBehavior(start_delay_s=0.05, stop_delay_s=0.05, retry_delay_s=0.05)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Let the schedule be due at once, and nobody wait for minutes."""
    for name, value in {
        "START_DELAY_S": 0.0,
        "RESULT_TIMEOUT_S": 60.0,
        "POLL_INTERVAL_S": 0.05,
    }.items():
        monkeypatch.setattr(stop_proof, name, value)


@pytest.fixture
def saying(monkeypatch):
    """Spell the payload otherwise than a start does."""

    def act(said: dict[str, Any]) -> None:
        def spelt(*of: Any) -> dict[str, Any]:
            schedule = build_stop_schedule(*of)
            return {**schedule, "Target": {**schedule["Target"], "Input": json.dumps(said)}}

        monkeypatch.setattr(stop_proof, "build_stop_schedule", spelt)

    return act


class Clock:
    """The module `time` as the proof sees it: something is done where it sleeps."""

    def __init__(
        self, sleep: Callable[[float], None], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.sleep = sleep
        self.monotonic = monotonic


@pytest.fixture
def waiting(monkeypatch):
    """Do something while the proof waits for a schedule that is not due yet."""

    def act(doing: Callable[[float], None], *, ahead_s: float = 60.0, **more: Any) -> None:
        monkeypatch.setattr(stop_proof, "START_DELAY_S", ahead_s)
        monkeypatch.setattr(stop_proof, "time", Clock(doing, **more))

    return act


def letters(fleet: Fleet) -> list[Any]:
    sqs = fleet.client("sqs")
    url = sqs.get_queue_url(QueueName=names.dead_letter_queue_name(fleet.environment))["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return [
        attributes["ApproximateNumberOfMessages"],
        attributes["ApproximateNumberOfMessagesNotVisible"],
    ]


# it is proven


def test_eks_takes_the_call_and_nothing_is_left_behind(fleet, capsys):
    assert fleet.tandem(*PROVE) == 0

    out = capsys.readouterr().out
    eks = fleet.client("eks")
    (update,) = eks.list_updates(
        name=fleet.guarded.cluster, nodegroupName=fleet.guarded.node_group
    )["updateIds"]
    assert f"(its update {update})" in " ".join(out.split())
    assert "1 ok; exit code 0" in out
    assert (fleet.schedules(), letters(fleet), fleet.states()) == ([], ["0", "0"], [])


def test_the_proof_sends_the_target_of_a_start(fleet, waiting):
    group = fleet.guarded.schedule_group
    bodies = []

    def read(_: float) -> None:
        (name,) = fleet.schedules()
        bodies.append(fleet.client("scheduler").get_schedule(GroupName=group, Name=name))
        raise KeyboardInterrupt

    waiting(read)
    fleet.tandem(*PROVE)

    now = datetime.now(UTC)
    lease = Lease(
        run="r",
        who="anna",
        experiment=None,
        node_label={},
        created=now,
        deadline=now,
        beats=True,
        schedule="stop-r",
        nodes=1,
    )
    start = build_stop_schedule(fleet.guarded, lease)
    for name in ("Arn", "RoleArn", "Input", "DeadLetterConfig"):
        assert bodies[0]["Target"][name] == start["Target"][name]
    for name in (
        "ActionAfterCompletion",
        "FlexibleTimeWindow",
        "ScheduleExpressionTimezone",
        "State",
    ):
        assert bodies[0][name] == start[name]


# it is refused


def refused(fleet: Fleet, proxy: FaultProxy) -> int:
    proxy.forget()
    code = fleet.tandem(*PROVE)
    assert proxy.requests("CreateSchedule") == ()
    return code


def test_a_live_lease_is_left_alone(fleet, proxy, capsys):
    for key, document in lease_objects(who="anna").items():
        fleet.put(key, document)
    assert refused(fleet, proxy) == 2
    assert "run r1 of anna has the fleet until" in capsys.readouterr().err


def test_another_tools_node_group_is_left_alone(bare_fleet, proxy):
    bare_fleet.deploy(tags={"owner": "somebody"})
    assert refused(bare_fleet, proxy) == 2


@pytest.mark.parametrize("operation", ["DescribeNodegroup", "DescribeInstances"])
def test_what_cannot_be_seen_before_keeps_it_from_being_fired(fleet, proxy, operation):
    proxy.use(FaultRule(operation=operation, fault=ACCESS_DENIED_FAULT))
    assert refused(fleet, proxy) == 3


# it fails, or is not known


def test_a_throttled_target_proves_nothing(fleet, capsys):
    fleet.endpoint.set_fleet(knobs.FleetBehavior(throttles=True, retry_delay_s=0.05))

    assert fleet.tandem(*PROVE) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "unknown prove-stop" in text
    assert "ThrottlingException: Rate exceeded" in text
    assert (fleet.schedules(), letters(fleet)) == ([], ["0", "0"])


def test_a_payload_that_eks_refuses_fails(fleet, saying, capsys):
    fleet.endpoint.set_fleet(BROKEN)
    saying(
        {
            "ClusterName": fleet.guarded.cluster,
            "NodegroupName": fleet.guarded.node_group,
            "ScalingConfig": {"minSize": 0, "desiredSize": 0},
        }
    )

    assert fleet.tandem(*PROVE) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "fail prove-stop" in text
    assert "unknown member ScalingConfig.minSize" in text
    assert letters(fleet) == ["0", "0"]


def test_a_letter_of_somebody_elses_is_left_in_the_queue(fleet):
    sqs = fleet.client("sqs")
    url = sqs.get_queue_url(QueueName=names.dead_letter_queue_name(fleet.environment))["QueueUrl"]
    arn = {"DataType": "String", "StringValue": "arn:aws:scheduler:us-east-2:1:schedule/g/stop-r1"}
    sqs.send_message(QueueUrl=url, MessageBody="{}", MessageAttributes={"SCHEDULE_ARN": arn})

    assert fleet.tandem(*PROVE) == 0
    assert sum(map(int, letters(fleet))) == 1


def test_an_update_that_never_ends_is_no_proof(fleet, proxy, waiting, capsys):
    fleet.endpoint.set_fleet(knobs.FleetBehavior(ignores_request=True))
    proxy.forget()
    waiting(
        time.sleep,
        ahead_s=0.0,
        monotonic=lambda: 1000.0 if proxy.requests("DescribeUpdate") else 0.0,
    )

    assert fleet.tandem(*PROVE) == 3
    assert "not done it yet" in " ".join(capsys.readouterr().out.split())


def test_a_stop_in_the_same_minute_leaves_it_unknown(fleet, waiting, capsys):
    calls: list[int] = []

    def stops(for_s: float) -> None:
        if not calls:
            calls.append(fleet.tandem("stop"))
        time.sleep(for_s)

    waiting(stops, ahead_s=2.0)

    assert fleet.tandem(*PROVE) == 3
    assert "it is not clear whose update this was" in " ".join(capsys.readouterr().out.split())
    assert calls == [0]


# it is interrupted


@pytest.mark.parametrize("how", [signal.SIGTERM])
def test_an_interrupted_proof_leaves_no_schedule(fleet, waiting, how):
    there: list[str] = []

    def interrupted(_: float) -> None:
        there.extend(fleet.schedules())
        os.kill(os.getpid(), how)

    waiting(interrupted)
    # the background job of a shell ignores it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert fleet.tandem(*PROVE) == 130
    finally:
        signal.signal(signal.SIGINT, before)

    assert len(there) == 1
    assert fleet.schedules() == []


def test_what_a_lost_answer_left_is_deleted_too(fleet, proxy):
    proxy.use(FaultRule(operation="CreateSchedule", fault=AnswerLossFault()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stop_proof, "START_DELAY_S", 60.0)
        assert fleet.tandem(*PROVE) == 3

    assert fleet.schedules() == []
