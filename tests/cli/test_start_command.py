"""`tandem start` as its user meets it, judged by what EC2 lists at the local endpoint."""

from __future__ import annotations

import json
import re

import pytest
from fleet_world import Fleet

from tandem.declarations import names
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import lease_key

pytestmark = [pytest.mark.endpoint, pytest.mark.proof]
POST = ("--experiment", "post")
YES = ("--hours", "2", "--yes")


def test_compile_admits_compile_jobs_and_no_server(fleet, capsys):
    assert fleet.tandem("start", *YES, *POST, "--compile", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    labels = {"compile.tandem/experiment": "post"}
    assert document["labels"] == fleet.read_node_group()["labels"] == labels


def test_a_plan_is_shown_before_anything_is_raised(fleet, proxy, capsys):
    code = fleet.tandem("start", "--hours", "2", *POST)

    document = capsys.readouterr()
    assert (code, "pass --yes" in document.err, fleet.states()) == (2, True, [])
    for word in ("schedule", "reaper", "budget", "71.52 USD at most"):
        assert word in document.out
    assert "UpdateNodegroupConfig" not in {call.operation for call in proxy.log}


def make_unarmed(fleet: Fleet, *, budget: str) -> None:
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
def test_an_unarmed_stop_refuses_with_both_ways_out(budget, words, bare_fleet, capsys):
    make_unarmed(bare_fleet, budget=budget)

    code = bare_fleet.tandem("start", *YES)

    out, err = capsys.readouterr()
    assert (code, out, bare_fleet.states(), bare_fleet.schedules()) == (2, "", [], [])
    assert [
        word
        for word in (*words, "fix it: deploy the stack Guard", "--accept-unarmed")
        if word not in err
    ] == []


def test_an_accepted_unarmed_stop_is_in_the_lease(bare_fleet, capsys):
    make_unarmed(bare_fleet, budget="missing")

    code = bare_fleet.tandem("start", *YES, "--accept-unarmed", "--run", "mine")

    out = " ".join(capsys.readouterr().out.split())
    assert (code, bare_fleet.get(lease_key("mine"))["unarmed"]) == (0, ["reaper", "budget"])
    assert "reaper NOT ARMED: silent" in out
    assert "unarmed accepted, and written into the lease: reaper, budget" in out
    bare_fleet.until(["running"])
    bare_fleet.tandem("status")
    assert "unarmed accepted: reaper, budget" in " ".join(capsys.readouterr().out.split())


class Somebody:
    """Who sits there and types this."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.answer


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


def test_a_fence_refuses_before_any_plan_is_shown(fleet, capsys):
    fleet.tandem("stop", "--why", "maintenance")
    capsys.readouterr()

    assert fleet.tandem("start", *YES) == 2
    out, err = capsys.readouterr()
    assert (out, f"tandem stop --release --env {fleet.name}" in err) == ("", True)
    assert ("maintenance" in err, f"s3://{fleet.guarded.bucket}/{FENCE_KEY}" in err) == (True, True)


@pytest.mark.parametrize("group", [None, False], ids=["never deployed", "half deployed"])
def test_what_is_not_deployed_is_not_raised(group, bare_fleet, capsys):
    if group is not None:
        bare_fleet.deploy(group=group)

    code = bare_fleet.tandem("start", *YES)

    err = capsys.readouterr().err
    assert (code, "Traceback" in err) == (2, False)
    assert re.search(r"not there|it is not deployed", err)
