"""Whether the budget sees what the environment costs."""

from __future__ import annotations

import pytest
from doctor_world import World

from tandem.spec import names
from tandem.twin.faults.rules import ACCESS_DENIED, Rule


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
    world.proxy.use(Rule(operation="ListCostAllocationTags", fault=ACCESS_DENIED))

    line = world.only("cost-tag")

    assert line.level == "unknown"
    assert "add ce:ListCostAllocationTags on *" in line.do
