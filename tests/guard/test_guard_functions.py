"""What the two functions make of what they are sent, in memory; test_guard_paths_deployed.py calls
them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from guard_handler import load_handler
from guard_world import GUARDED

from tandem.guard.fence import FENCE_KEY

BUDGET = {
    "Records": [
        {"Sns": {"Subject": "AWS Budgets: home\nhas exceeded", "Message": "Budget: 2000 USD"}}
    ]
}


@pytest.fixture
def function(world, monkeypatch):
    """A handler in the account, at its time."""

    def load(name, config=GUARDED):
        return load_handler(name, world, monkeypatch, config)

    return load


def fence(world):
    read = world.read(FENCE_KEY)
    return read["who"], read["why"], read["run"]


@pytest.mark.parametrize("kind", ["on-demand", "spot", "reservation"])
def test_a_budget_stops_what_costs_by_the_hour(world, function, start, kind):
    start()
    function("stop", replace(GUARDED, capacity_kind=kind)).handler(BUDGET, None)
    world.advance(3)
    assert (world.alive, fence(world)) == (
        [],
        ("budget", "budget notification: AWS Budgets: home has exceeded", "r1"),
    )


def test_a_budget_only_tells_where_a_capacity_block_is_paid(world, function, start):
    start()
    function("stop", replace(GUARDED, capacity_kind="capacity-block")).handler(BUDGET, None)
    assert (len(world.alive), world.read(FENCE_KEY)) == (1, None)
    assert [item["subject"] for item in world.messages] == [
        "Tandem home: budget notified, nothing is stopped"
    ]


def test_whoever_invokes_it_stops_a_capacity_block_too(world, function, start):
    start()
    block = replace(GUARDED, capacity_kind="capacity-block")
    function("stop", block).handler({"who": "anna", "why": "enough", "run": "r9"}, None)
    assert fence(world) == ("anna", "enough", "r9")


@pytest.mark.parametrize(
    "event",
    [
        None,
        "x",
        {},
        {"Records": 3},
        {"Records": [{"Sns": 3}]},
        {"run": 7, "who": None},
        {"run": "../x", "who": "x" * 300_000, "why": "caf\udce9"},
    ],
    ids=lambda event: ascii(event)[:30],
)
def test_no_event_is_too_odd_to_stop(world, function, start, event):
    start()
    function("stop").handler(event, None)
    world.advance(3)
    assert world.alive == []


def test_a_stop_that_left_something_undone_ends_as_an_error(world, function, start):
    start()
    world.down = {"eks.update_nodegroup_config"}
    module = function("stop")

    with pytest.raises(
        module.IncompleteStopError,
        match="setting node group home-trn2 of cluster tandem-home to 0 failed",
    ):
        module.handler(BUDGET, None)


def test_a_budget_that_nobody_could_be_told_of_ends_as_an_error(world, function):
    world.down = {"sns"}
    module = function("stop", replace(GUARDED, capacity_kind="capacity-block"))
    with pytest.raises(module.IncompleteStopError, match="telling arn:aws:sns"):
        module.handler(BUDGET, None)


def test_a_pass_says_in_its_log_what_it_did(world, function, capsys):
    world.want(1)
    world.advance(30)
    handler = function("reap").handler({}, None)

    assert handler["why"] == ["fenced by reap: instances live without a lease"]
    assert '"desired": 1' in capsys.readouterr().out


def test_a_pass_that_could_not_see_all_ends_as_an_error(world, function):
    world.down = {"ec2"}
    module = function("reap")
    with pytest.raises(
        module.IncompletePassError, match="instances unknown: EndpointConnectionError"
    ):
        module.handler({}, None)
