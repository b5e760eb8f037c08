"""A lease is for so many nodes with such labels; what is no lease or fence of this form is not
understood."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from guard_world import GUARDED

from tandem.declarations.budgets import SPOT_OVERLAP_HOURS
from tandem.guard.apply import run_reaper_pass
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import POINTER_KEY, heartbeat_key, lease_key
from tandem.guard.observe import CAPACITY_KIND_TAG, observe_fleet
from tandem.guard.pass_metrics import FLEET_USD
from tandem.guard.plan import REPLACEMENT_GRACES


def why(world):
    return "; ".join(run_reaper_pass(world.clients, GUARDED, world.now).plan.reasons)


# nodes


def test_more_nodes_than_the_lease_says_are_a_stop(world, start):
    start("r1", nodes=1, hours=8)
    world.want(2)
    assert "the node group wants 2 nodes and has 2, and the lease of run r1 is for 1" in why(world)


def test_both_nodes_of_a_spot_replacement_are_counted_as_cost(world, start):
    start("r1", nodes=1, hours=8)
    alone = run_reaper_pass(world.clients, GUARDED, world.now).metrics[FLEET_USD]
    world.keeps = True
    world.want(2)
    world.want(1)

    assert run_reaper_pass(world.clients, GUARDED, world.now).metrics[FLEET_USD] == pytest.approx(
        2 * alone
    )


def test_the_budgets_overlap_is_the_guards_grace():
    assert timedelta(hours=SPOT_OVERLAP_HOURS) == REPLACEMENT_GRACES * GUARDED.grace_period


@pytest.mark.parametrize("minutes", [19, 20])
def test_a_replacement_beside_its_node_is_no_excess_at_once(world, start, minutes):
    """A spot node's successor comes before it goes."""
    start("r1", nodes=1, hours=8)
    world.keeps = True
    world.want(2)
    world.want(1)
    world.advance(minutes)

    assert ("the lease of run r1 is for 1" in why(world)) == (minutes == 20)


def test_other_labels_than_the_leases_are_a_stop(world, start):
    start("r1", hours=8)
    world.group["labels"]["raise.tandem/slow"] = "second"

    assert (
        "the nodes carry raise.tandem/fast, raise.tandem/slow, which is not what the lease of run"
        " r1 says" in why(world)
    )


def test_labels_that_are_not_ours_are_nobodys_business(world, start):
    start("r1", hours=8)
    world.group["labels"]["team"] = "blue"
    assert why(world) == ""


def test_labels_are_left_alone_while_eks_is_at_work(world, start):
    start("r1", hours=8)
    world.group["labels"].clear()
    world.group["status"] = "UPDATING"
    assert why(world) == ""


def test_a_pass_that_meets_a_start_half_way_reads_the_lease_again(world, start):
    """It read that there was no lease, and then saw the instances of a start that had written
    one."""
    world.interrupt(lambda: start("r1", hours=8), "eks.describe_nodegroup")
    assert why(world) == ""


# hostile objects


@pytest.mark.parametrize("schema", [0, 3, "1", None])
@pytest.mark.parametrize(
    ("key", "own_schema", "meaning"),
    [
        (POINTER_KEY, 1, "counts as no lease"),
        (lease_key("r1"), 2, "counts as no lease"),
        (heartbeat_key("r1"), 1, "counts as no beat"),
        (FENCE_KEY, 1, "counts as a fence"),
    ],
)
def test_another_schema_is_named_and_not_read(world, start, halt, key, own_schema, meaning, schema):
    start("r1", beats=True)
    world.put(heartbeat_key("r1"), {"schema": 1, "at": world.now.isoformat()})
    if key == FENCE_KEY:
        halt()
    world.change(key, schema=schema)
    fault = observe_fleet(world.clients, GUARDED, world.now).faults[0]

    assert f"it has schema {schema}; this version of Tandem reads schema {own_schema}" in fault
    assert meaning in fault


@pytest.mark.parametrize("field", ["nodes", "former_label", "unarmed", "ending"])
def test_a_lease_without_one_of_its_fields_is_none(world, start, field):
    start("r1")
    fields = world.read(lease_key("r1"))
    del fields[field]
    world.put(lease_key("r1"), fields)
    assert observe_fleet(world.clients, GUARDED, world.now).lease is None


@pytest.mark.parametrize("field", ["passes", "nodes"])
@pytest.mark.parametrize(
    "value", [10**4290, -1, 1.5, True, "7"], ids=["4,291 digits", "below 0", "1.5", "true", "7"]
)
def test_a_number_that_is_none_is_not_understood(world, start, halt, field, value):
    start("r1")
    halt()
    key, kind = (FENCE_KEY, "fence") if field == "passes" else (lease_key("r1"), "lease")
    world.change(key, **{field: value})
    seen = observe_fleet(world.clients, GUARDED, world.now)

    assert f"so it counts as {'a fence' if kind == 'fence' else 'no lease'}" in seen.faults[0]


def test_a_fence_with_a_number_of_4300_digits_can_be_written_over(world, halt):
    halt("first")
    body = world.objects[FENCE_KEY][0]
    world.put(FENCE_KEY, body.replace(b'"passes": 1', b'"passes": ' + b"9" * 4300))
    assert halt("again").failures == ()


# what S3 cannot say


def test_replacements_do_not_make_a_fleet_young_while_s3_is_lost(world, start):
    """Spot nodes come and go, the lease cannot be read, and the one-shot stop is lost too."""
    world.fires = False
    start("r1", hours=8)
    world.down = {"s3"}
    reasons = []
    for _ in range(8 * 12 + 2):
        world.advance(5)
        if world.now.minute == 0:
            world._end(world.alive[0])
            world._reconcile()
        reasons += run_reaper_pass(world.clients, GUARDED, world.now).plan.reasons

    assert (
        reasons[0]
        == "instances have lived for 8 hours, one after another, and the lease cannot be read"
    )


def test_people_hear_of_a_blind_guard_once_an_hour(world, start):
    start("r1", hours=8)
    world.down = {"s3"}
    for _ in range(12):
        run_reaper_pass(world.clients, GUARDED, world.now)
        world.advance(5)

    assert [message["subject"] for message in world.messages] == [
        "Tandem home: fleet not seen whole: part of AWS does not answer the guard"
    ]


# capacity kind


def test_the_kind_on_the_node_group_comes_before_the_declared_one(world):
    world.group["tags"][CAPACITY_KIND_TAG] = "spot"

    assert (
        observe_fleet(
            world.clients, replace(GUARDED, capacity_kind="capacity-block"), world.now
        ).capacity_kind
        == "spot"
    )
