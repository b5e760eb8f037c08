"""Whether the budget sees what the environment costs."""

from __future__ import annotations

import json
import shlex

import pytest
from doctor_world import ACCOUNT, REGION, World, known
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule

from tandem.spec import names
from tandem.spec.budgets import budget_cost_filters


def test_an_activated_tag_is_ok(world: World) -> None:
    assert world.levels("cost-tag") == ["ok"]


@pytest.mark.parametrize(("known", "said"), [({}, "does not know"), ({names.OWNER_TAG: "Inactive"}, "not activated")])
def test_a_tag_that_is_not_activated_is_told_with_the_command_that_activates_it(
    world: World, known: dict[str, str], said: str
) -> None:
    world.facts.cost_tags = known

    line = world.only("cost-tag")

    assert (line.level, line.code) == ("warn", 0)
    assert said in line.said
    assert "stops nothing" in line.said
    assert f"TagKey={names.OWNER_TAG},Status=Active" in line.command


def test_another_tag_that_is_activated_is_not_ours(world: World) -> None:
    world.facts.cost_tags = {"team": "Active"}

    assert world.levels("cost-tag") == ["warn"]


def test_an_environment_without_tags_needs_none(world: World) -> None:
    world.change(tags={})
    world.facts.cost_tags = {}

    assert "the whole account" in world.only("cost-tag").said
    assert world.proxy.requests("ListCostAllocationTags") == ()


def test_a_member_of_an_organization_is_sent_to_the_management_account_and_no_policy(world: World) -> None:
    world.facts.member = True

    line = world.only("cost-tag")

    assert (line.level, line.code) == ("unknown", 0)
    assert "management account" in line.said
    assert "policy" not in line.do


def test_another_denial_names_the_right(world: World) -> None:
    world.proxy.use(FaultRule(operation="ListCostAllocationTags", fault=ACCESS_DENIED_FAULT))

    line = world.only("cost-tag")

    assert line.level == "unknown"
    assert "add ce:ListCostAllocationTags on *" in line.do


def make(world: World, **changes: object) -> None:
    """Make the environment's budget, as Guard does or after `changes`."""
    budget = {
        "BudgetName": names.budget_name(world.environment),
        "BudgetType": "COST",
        "TimeUnit": "MONTHLY",
        "BudgetLimit": {"Amount": "2000", "Unit": "USD"},
        "CostFilters": budget_cost_filters(world.environment, known()),
    }
    world.endpoint.client("budgets").create_budget(AccountId=ACCOUNT, Budget={**budget, **changes})


def test_a_budget_that_guard_will_make_is_ok(world: World) -> None:
    line = world.only("budget")

    assert (line.level, line.code) == ("ok", 0)
    assert "Guard makes it" in line.said


def test_a_budget_of_the_fleets_instances_is_ok(world: World) -> None:
    make(world)

    assert "counts the fleet's instances" in world.only("budget").said


def test_a_budget_that_counts_more_is_warned_of(world: World) -> None:
    make(world, CostFilters={"TagKeyValue": [f"user:{names.OWNER_TAG}${world.environment.name}"]})

    line = world.only("budget")

    assert (line.level, line.do) == ("warn", "deploy the stack Guard")
    assert "USE2-BoxUsage:trn2.48xlarge" in line.said


def test_a_region_without_budgets_gets_the_command_that_makes_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tandem.spec.budgets.REGIONS_WITHOUT_BUDGETS", frozenset({REGION}))

    line = world.only("budget")
    words = shlex.split(line.command)
    budget, notifications = (json.loads(words[words.index(flag) + 1]) for flag in (
        "--budget", "--notifications-with-subscribers",
    ))  # fmt: skip
    world.endpoint.client("budgets").create_budget(
        AccountId=ACCOUNT, Budget=budget, NotificationsWithSubscribers=notifications
    )

    assert line.level == "warn"
    assert words[:3] == ["aws", "budgets", "create-budget"]
    assert world.levels("budget") == ["ok"]
    assert len(notifications) == 6
