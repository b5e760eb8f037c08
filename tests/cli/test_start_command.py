"""`tandem start` as its user meets it, judged by what EC2 lists at the local endpoint."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule
from fleet_world import Fleet

from rehearsal.aws.capacity_block import BlockExtension, CapacityBlock
from tandem.declarations import names
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import POINTER_KEY, lease_key

pytestmark = [pytest.mark.endpoint, pytest.mark.proof]
POST = ("--experiment", "post")
YES = ("--hours", "2", "--yes")


def edit(fleet: Fleet, **capacity: Any) -> None:
    file = fleet.specs / "environments" / f"{fleet.name}.yaml"
    document = yaml.safe_load(file.read_text())
    document["capacity"] |= capacity
    file.write_text(yaml.safe_dump(document, sort_keys=False))


def labels(fleet: Fleet) -> dict[str, str]:
    mine = fleet.guarded
    answer = fleet.client("eks").describe_nodegroup(
        clusterName=mine.cluster, nodegroupName=mine.node_group
    )
    own_labels: dict[str, str] = answer["nodegroup"].get("labels", {})
    return own_labels


def started(fleet: Fleet, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert fleet.tandem("start", *YES, "--json", *more) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def schedules(fleet: Fleet) -> list[str]:
    group = fleet.guarded.schedule_group
    return [
        schedule["Name"]
        for schedule in fleet.client("scheduler").list_schedules(GroupName=group)["Schedules"]
    ]


def test_a_start_leaves_a_lease_and_a_one_shot_stop(fleet, capsys):
    document = started(fleet, capsys, *POST)

    lease = fleet.get(lease_key(document["run"]))
    assert (fleet.get(POINTER_KEY)["run"], lease["experiment"], lease["beats"]) == (
        document["run"],
        "post",
        False,
    )
    assert schedules(fleet) == [lease["schedule"]]
    deadline = datetime.fromisoformat(document["deadline"])
    assert abs(deadline - datetime.now(UTC) - timedelta(hours=2)) < timedelta(minutes=1)


def test_an_experiments_variants_are_admitted_as_far_as_devices_go(fleet, capsys):
    started(fleet, capsys, *POST)
    assert labels(fleet) == {"raise.tandem/qwen-vllm": "post", "raise.tandem/qwen-sd-vllm": "post"}


def test_variants_without_room_are_named(fleet, capsys):
    file = fleet.specs / "environments" / f"{fleet.name}.yaml"
    file.write_text(file.read_text().replace("- post\n", "- post-drafts-windows\n"))
    document = started(fleet, capsys, "--experiment", "post-drafts-windows")
    assert (len(document["labels"]), bool(document["waiting"])) == (2, True)


def test_compile_admits_compile_jobs_and_no_server(fleet, capsys):
    document = started(fleet, capsys, *POST, "--compile")
    assert document["labels"] == labels(fleet) == {"compile.tandem/experiment": "post"}


def test_a_plan_is_shown_before_anything_is_raised(fleet, proxy, capsys):
    code = fleet.tandem("start", "--hours", "2", *POST)

    document = capsys.readouterr()
    assert (code, "pass --yes" in document.err, fleet.states()) == (2, True, [])
    for word in ("schedule", "reaper", "budget", "71.52 USD at most"):
        assert word in document.out
    assert "UpdateNodegroupConfig" not in {call.operation for call in proxy.log}


def make_unarmed(fleet: Fleet, *, budget: str = "armed") -> None:
    """Deploy with a reaper that never looked, and with a budget that would not stop the fleet."""
    fleet.deploy()
    if budget == "missing":
        fleet.client("budgets").delete_budget(
            AccountId=fleet.environment.account, BudgetName=names.budget_name(fleet.environment)
        )
    if budget == "spent":
        fleet.forget_alert(100)
        fleet.alert(100, state="ALARM")


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("armed", ["1 stop of the fleet not armed", "reaper: silent: no pass in the last 20 min"]),
        (
            "spent",
            [
                "2 stops of the fleet not armed",
                "budget: 0.00 of 2,000.00 USD this month, spent: no further alert",
            ],
        ),
    ],
)
def test_an_unarmed_stop_refuses_with_both_ways_out(budget, words, undeployed, capsys):
    make_unarmed(undeployed, budget=budget)

    code = undeployed.tandem("start", *YES)

    out, err = capsys.readouterr()
    assert (code, out, undeployed.states(), schedules(undeployed)) == (2, "", [], [])
    assert [
        word
        for word in (*words, "fix it: deploy the stack Guard", "--accept-unarmed")
        if word not in err
    ] == []


def test_an_accepted_unarmed_stop_is_in_the_lease(undeployed, capsys):
    make_unarmed(undeployed, budget="missing")

    code = undeployed.tandem("start", *YES, "--accept-unarmed", "--run", "mine")

    out = " ".join(capsys.readouterr().out.split())
    assert (code, undeployed.get(lease_key("mine"))["unarmed"]) == (0, ["reaper", "budget"])
    assert "reaper NOT ARMED: silent" in out
    assert "unarmed accepted, and written into the lease: reaper, budget" in out
    undeployed.until(["running"])
    undeployed.tandem("status")
    assert "unarmed accepted: reaper, budget" in " ".join(capsys.readouterr().out.split())


class Somebody:
    """Who sits there and types this."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.answer


def test_json_of_a_declined_start_is_a_document(fleet, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", Somebody("n\n"))
    code = fleet.tandem("start", "--hours", "2", "--json")
    out, err = capsys.readouterr()
    assert (code, json.loads(out)["raised"], "USD at most" in err.partition("start it?")[0]) == (
        1,
        False,
        True,
    )


@pytest.mark.parametrize(("answer", "code", "states"), [("y\n", 0, ["running"]), ("\n", 1, [])])
def test_a_question_is_asked_of_whoever_is_there(answer, code, states, fleet, monkeypatch):
    monkeypatch.setattr("sys.stdin", Somebody(answer))
    assert fleet.tandem("start", "--hours", "2") == code
    fleet.until(states)


def test_an_interrupted_start_says_how_to_end_the_fleet(fleet, capsys, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tandem.guard.fleet_start._FleetStart.require_no_late_stop", interrupted)

    code = fleet.tandem("start", *YES, "--run", "mine")

    err = capsys.readouterr().err
    fleet.until(["running"])
    assert (code, f"tandem stop --env {fleet.name}" in err, "--run mine" in err) == (
        130,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (("--hours", "9"), "guard.max_hours"),
        (("--nodes", "3"), "capacity.nodes"),
        (("--variants", "qwen-vllm"), "add --experiment NAME"),
        ((*POST, "--variants", "fast"), "name some of: qwen-vllm, qwen-sd-vllm"),
    ],
)
def test_bad_flags_give_2_and_what_to_write(flags, word, fleet, capsys):
    code = fleet.tandem("start", *YES, *flags)
    assert (code, word in " ".join(capsys.readouterr().err.split()), fleet.states()) == (
        2,
        True,
        [],
    )


def block(fleet: Fleet, begins: timedelta, ends: timedelta) -> None:
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    window = {
        word: f"{now + at:%Y-%m-%dT%H:%M:%SZ}" for word, at in (("starts", begins), ("ends", ends))
    }
    edit(fleet, kind="capacity-block", reservation_id="cr-0123456789abcdef0", block=window)


def test_an_extended_block_takes_a_lease_beyond_its_end(undeployed, capsys):
    block(undeployed, timedelta(hours=-20), timedelta(hours=1))
    undeployed.deploy()
    undeployed.looked()
    own_block = undeployed.environment.capacity.block
    extension = BlockExtension(
        ends=own_block.ends + timedelta(days=1),
        purchased=own_block.starts,
        status="payment-succeeded",
    )
    sold_block = CapacityBlock(
        starts=own_block.starts, ends=own_block.ends, extensions=(extension,)
    )
    undeployed.endpoint.set_blocks({"cr-0123456789abcdef0": sold_block})

    code = undeployed.tandem("start", *YES)

    out = " ".join(capsys.readouterr().out.split())
    assert (code, "is active, by EC2 from" in out) == (0, True)
    assert (
        f"capacity.block says {own_block.starts:%Y-%m-%dT%H:%M:%SZ} to"
        f" {own_block.ends:%Y-%m-%dT%H:%M:%SZ}, EC2" in out
    )


@pytest.mark.parametrize(
    ("service", "operation"),
    [
        ("s3", "GetObject"),
        ("scheduler", "CreateSchedule"),
        ("eks", "UpdateNodegroupConfig"),
    ],
)
def test_what_is_denied_gives_3_and_raises_nothing(service, operation, fleet, proxy, capsys):
    proxy.use(FaultRule(operation=operation, fault=ACCESS_DENIED_FAULT))

    code = fleet.tandem("start", *YES)

    err = capsys.readouterr().err
    assert (code, "AccessDenied" in err, "Traceback" in err, fleet.states()) == (3, True, False, [])
    assert service


def test_a_fence_refuses_before_any_plan_is_shown(fleet, capsys):
    fleet.tandem("stop", "--why", "maintenance")
    capsys.readouterr()

    assert fleet.tandem("start", *YES) == 2
    out, err = capsys.readouterr()
    assert (out, f"tandem stop --release --env {fleet.name}" in err) == ("", True)
    assert ("maintenance" in err, f"s3://{fleet.guarded.bucket}/{FENCE_KEY}" in err) == (True, True)


@pytest.mark.parametrize("group", [None, False], ids=["never deployed", "half deployed"])
def test_what_is_not_deployed_is_not_raised(group, undeployed, capsys):
    if group is not None:
        undeployed.deploy(group=group)

    code = undeployed.tandem("start", *YES)

    err = capsys.readouterr().err
    assert (code, "Traceback" in err) == (2, False)
    assert re.search(r"not there|it is not deployed", err)
