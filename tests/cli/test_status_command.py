"""`tandem status` as its user meets it, against the local endpoint."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule
from fleet_seen import fence_objects, lease_objects
from fleet_world import Fleet, write_environment

from tandem.guard.fence import FENCE_KEY
from tandem.ops.people.rights import list_command_calls

pytestmark = [pytest.mark.endpoint, pytest.mark.proof]


def seen(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    fleet.tandem("status", "--json")
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def lease(fleet: Fleet) -> None:
    for key, document in lease_objects().items():
        fleet.put(key, document)


def test_a_live_lease_without_its_schedule_needs_attention(fleet, capsys):
    lease(fleet)
    fleet.scale(1)

    document = seen(fleet, capsys)

    assert [stop["state"] for stop in document["stops"]] == ["unarmed", "armed", "armed"]
    assert "schedule stops nothing: stop-r1 is missing" in [
        warning["problem"] for warning in document["attention"]
    ]


def test_after_a_stop_the_bill_stays(fleet, capsys):
    lease(fleet)
    fleet.looked(2.98, 2.98)
    fleet.put(FENCE_KEY, fence_objects(state="stopped")[FENCE_KEY])

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
    lease(fleet)
    proxy.use(FaultRule(operation=operation, fault=ACCESS_DENIED_FAULT))

    code = fleet.tandem("status")

    text = " ".join(capsys.readouterr().out.split())
    assert (code, "nothing needs attention" in text) == (3, False)
    assert RIGHTS.get(operation, f"{service}:{operation}") in text


def test_a_denied_cluster_leaves_open_what_is_deployed(bare_fleet, proxy, capsys):
    bare_fleet.deploy(group=False)
    proxy.use(FaultRule(operation="DescribeCluster", fault=ACCESS_DENIED_FAULT))

    document = seen(bare_fleet, capsys)

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
    lease(fleet)

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
