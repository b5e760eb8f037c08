"""`tandem status` as its user meets it, against the local endpoint."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule
from fleet_world import Fleet, write_environment

from rehearsal.aws import fleet_behavior as knobs
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import POINTER_KEY, lease_key
from tandem.ops.people.rights import list_command_calls

pytestmark = [pytest.mark.endpoint, pytest.mark.proof]
INPUT = (
    '{"ClusterName": "c", "NodegroupName": "n", "ScalingConfig": {"MinSize": 0, "DesiredSize": 0}}'
)
NOW = datetime.now(UTC)


def seen(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    fleet.tandem("status", "--json")
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def lease(fleet: Fleet, *, hours: float, beats: bool = False) -> None:
    fleet.put(POINTER_KEY, {"schema": 1, "run": "r1"})
    fleet.put(
        lease_key("r1"),
        {
            "schema": 2,
            "nodes": 1,
            "former_label": {},
            "unarmed": [],
            "ending": None,
            "run": "r1",
            "who": "arn:aws:iam::111122223333:user/ana",
            "experiment": "post",
            "node_label": {},
            "created": NOW.isoformat(),
            "deadline": (NOW + timedelta(hours=hours)).isoformat(),
            "beats": beats,
            "schedule": "stop-r1",
        },
    )


def fence(fleet: Fleet, state: str = "stopping") -> None:
    fields = {
        "schema": 1,
        "state": state,
        "who": "ana",
        "why": "enough",
        "run": "r1",
        "at": NOW.isoformat(),
    }
    lists = {"instances": [], "terminated": [], "suspended": []}
    fleet.put(
        FENCE_KEY, {**fields, **lists, "passes": 0, "last_look": None, "told": "", "told_at": None}
    )


def schedule(fleet: Fleet, at: datetime) -> None:
    fleet.client("scheduler").create_schedule(
        Name="stop-r1",
        GroupName=fleet.guarded.schedule_group,
        ScheduleExpression=f"at({at:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={
            "Arn": "arn:aws:scheduler:::aws-sdk:eks:updateNodegroupConfig",
            "Input": INPUT,
            "RoleArn": fleet.guarded.scheduler_role_arn,
        },
    )


def test_money_is_hours_since_launch_times_the_declared_price(fleet, capsys):
    fleet.endpoint.set_fleet(
        knobs.FleetBehavior(start_delay_s=0.05, stop_delay_s=0.05, older_s=7200)
    )
    fleet.scale(2)

    document = seen(fleet, capsys)

    assert document["node_hours"] == pytest.approx(4, abs=0.05)
    assert document["usd"] == pytest.approx(4 * 35.76, abs=2)
    assert document["usd_per_hour_date"] == "2026-05-31"


def test_a_live_lease_without_its_schedule_needs_attention(fleet, capsys):
    lease(fleet, hours=2)
    fleet.scale(1)

    document = seen(fleet, capsys)

    assert [stop["state"] for stop in document["stops"]] == ["unarmed", "armed", "armed"]
    assert "schedule stops nothing: stop-r1 is missing" in [
        warning["problem"] for warning in document["attention"]
    ]


def test_after_a_stop_the_bill_stays(fleet, capsys):
    lease(fleet, hours=2)
    fleet.looked(2.98, 2.98)
    fence(fleet, "stopped")

    document = seen(fleet, capsys)

    assert (document["instances"], document["usd"], round(document["bill"]["usd"], 2)) == (
        [],
        0.0,
        5.96,
    )


def test_a_broken_neighbour_keeps_nobody_from_looking(fleet):
    shutil.rmtree(fleet.specs / "experiments")
    (fleet.specs / "environments" / "neighbour.yaml").write_bytes(b"\xff\xfe")
    assert fleet.tandem("status") == 0


def alarm(fleet: Fleet, name: str) -> None:
    client = fleet.client("cloudwatch")
    client.put_metric_alarm(
        AlarmName=name,
        MetricName="m",
        Namespace="n",
        Statistic="Sum",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanThreshold",
    )
    client.set_alarm_state(AlarmName=name, StateValue="ALARM", StateReason="test")


def test_alarms_of_a_longer_name_are_not_shown(fleet):
    file = fleet.specs / "environments" / f"{fleet.name}.yaml"
    file.with_name(f"{fleet.name}-eu.yaml").write_text(file.read_text())
    alarm(fleet, f"{fleet.name}-eu-stop-failed")
    assert fleet.tandem("status") == 0


def test_a_node_group_of_another_tool_is_not_owned(undeployed, capsys):
    undeployed.deploy(tags={"owner": "eksctl"})
    undeployed.looked()
    undeployed.scale(1)

    document = seen(undeployed, capsys)

    assert (document["exit_code"], document["owned"], document["instances"][0]["is_ours"]) == (
        1,
        False,
        False,
    )


STATUS_CALLS = sorted(list_command_calls("status"))
# where there is no node group; where the reaper is silent
SELDOM = {"DescribeCluster", "GetFunctionConfiguration"}
RIGHTS = {
    "GetObject": "s3:GetObject",
    "DescribeBudget": "budgets:ViewBudget",
    "DescribeNotificationsForBudget": "budgets:",
    "DescribeSubscribersForNotification": "budgets:",
}


@pytest.mark.parametrize(
    ("service", "operation"),
    [call for call in STATUS_CALLS if call[1] not in {"GetCallerIdentity", *SELDOM}],
)
def test_what_is_denied_is_unknown_with_its_right(service, operation, fleet, proxy, capsys):
    kind = "capacity-block" if operation == "DescribeCapacityReservations" else "on-demand"
    fleet = Fleet(endpoint=fleet.endpoint, specs=fleet.specs, name=fleet.name)
    if kind == "capacity-block":
        fleet.name = write_environment(fleet.specs, kind, reservation_id="cr-0123456789abcdef0")
        fleet.deploy()
    lease(fleet, hours=2)
    proxy.use(FaultRule(operation=operation, fault=ACCESS_DENIED_FAULT))

    code = fleet.tandem("status")

    text = " ".join(capsys.readouterr().out.split())
    assert (code, "nothing needs attention" in text) == (3, False)
    assert RIGHTS.get(operation, f"{service}:{operation}") in text


def test_a_denied_cluster_leaves_open_what_is_deployed(undeployed, proxy, capsys):
    undeployed.deploy(group=False)
    proxy.use(FaultRule(operation="DescribeCluster", fault=ACCESS_DENIED_FAULT))

    document = seen(undeployed, capsys)

    assert (
        document["exit_code"],
        document["deployed"],
        "eks:DescribeCluster" in document["unknown"]["cluster"],
    ) == (
        3,
        None,
        True,
    )


def test_every_call_is_one_of_the_declared(fleet, proxy):
    lease(fleet, hours=2)

    fleet.tandem("status")

    calls = {(warning.service, warning.operation) for warning in proxy.log}
    assert {operation for _, operation in calls} <= {operation for _, operation in STATUS_CALLS}
    assert {operation for _, operation in STATUS_CALLS} - {operation for _, operation in calls} == {
        *SELDOM,
        "DescribeCapacityReservations",
    }


def test_credentials_of_another_account_give_2_and_ask_nothing_else(
    fleet, proxy, capsys, monkeypatch
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "999988887777")
    proxy.forget()

    code = fleet.tandem("status")

    assert (code, "credentials are of account 999988887777" in capsys.readouterr().err) == (2, True)
    assert {warning.operation for warning in proxy.log} == {"GetCallerIdentity"}
