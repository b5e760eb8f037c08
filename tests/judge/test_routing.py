"""Routing: a class goes to the arm that is faster for it, and a choice that is chance saves
nothing."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from observed import MARGIN, Truth, drawn, table

from tandem.judge.cells import judge_speed_ups
from tandem.judge.pairs import RequestPairing
from tandem.judge.routing import choose_by_other_rounds, route_classes
from tandem.judge.schema import NoiseFloor, RatioEstimate, RunControls

MIXED = Truth(
    ratio={"spec": {"repeat": 2.0, "json": 1.6, "open": 0.5, "creative": 0.6}}, prompts=16
)


def routed(seen, *, usd_per_hour=None, controls=RunControls()):  # noqa: B008 - frozen
    pairing = RequestPairing(seen, controls.marked_rounds)
    speed_ups = judge_speed_ups(pairing, controls, margin=MARGIN)
    return route_classes(
        pairing, speed_ups, usd_per_hour=usd_per_hour, controls=controls, margin=MARGIN
    )[0]


def permuted(truth, seed):
    """The same requests with their prompts' classes permuted."""
    seen = drawn(truth, seed)
    classes = np.zeros(len(seen.prompts), np.intp)
    classes[seen.prompt] = seen.class_
    return dataclasses.replace(
        seen, class_=np.random.default_rng(seed).permutation(classes)[seen.prompt]
    )


def test_each_class_goes_to_its_faster_arm():
    routes = {route.class_: route.arm for route in routed(drawn(MIXED)).routes}
    assert routes == {"repeat": "spec", "json": "spec", "open": "base", "creative": "base"}


@pytest.mark.parametrize("against", ["base", "spec"])
def test_routing_saves_where_classes_differ(against):
    saving = next(row for row in routed(drawn(MIXED)).savings if row.against == against)
    assert (saving.word, saving.mean.low > 1) == ("saves", True)


def test_permuted_labels_save_nothing_against_the_better_arm():
    words = []
    for seed in range(8):
        savings = routed(permuted(MIXED, seed)).savings
        words.append(min(savings, key=lambda row: row.mean.value).word)
    assert words.count("saves") <= 1


def test_an_arm_better_everywhere_is_the_route():
    seen = drawn(Truth(ratio={"spec": {"repeat": 2.0, "open": 1.5}}))
    saving = next(row for row in routed(seen).savings if row.against == "spec")
    assert (saving.word, saving.mean.value) == ("same", 1.0)


def test_a_saving_within_the_floor_is_no_evidence():
    seen = drawn(MIXED)
    floor = NoiseFloor(
        class_="all",
        load=seen.loads[0],
        metric="e2e_ms",
        speed_up=RatioEstimate(value=1.0),
        ratio=3.0,
    )
    savings = routed(seen, controls=RunControls(overall_floors=(floor,))).savings
    assert {saving.word for saving in savings} == {"no evidence"}


def test_equal_servers_get_no_word_of_routing():
    route = routed(drawn(Truth(ratio={"spec": {"repeat": 1.0, "open": 1.0}})))
    assert {saving.word for saving in route.savings} == {"no evidence"}
    assert route.why == "no class is called faster or slower, so no route is shown to differ"


def test_three_rounds_say_nothing_of_routing():
    route = routed(drawn(dataclasses.replace(MIXED, rounds=3)))
    assert (route.why, {saving.word for saving in route.savings}) == (
        "fewer than 4 rounds",
        {"no evidence"},
    )


def test_six_starts_make_a_saving_hold_across_starts():
    truth = dataclasses.replace(MIXED, rounds=6, start=0.01)
    assert {saving.evidence for saving in routed(drawn(truth)).savings} == {"across-starts"}


def test_a_class_of_few_prompts_goes_with_all_others():
    fields = {
        "repeat": {"base": [1000.0] * 8, "spec": [500.0] * 8},
        "open": {"base": [1000.0, 1100.0], "spec": [1500.0, 1600.0]},
    }
    assert {route.class_: route.arm for route in routed(table(fields)).routes} == {
        "repeat": "spec",
        "open": "spec",
    }


def test_money_is_busy_time_by_the_share_of_price():
    seen = table({"repeat": {"base": [2000.0] * 12, "spec": [1000.0] * 12}})
    saving = routed(seen, usd_per_hour=36.0).savings[0]
    assert saving.usd_per_1000_requests == pytest.approx(1000 * 18 / 3600 / 4 * 1.0)


def test_a_round_never_chooses_its_own_route():
    classes = np.zeros(4, np.intp)
    by_round = np.tile([1.0, -0.4, -0.4, -0.4], (4, 1))  # the first round alone wants the variant
    routes = choose_by_other_rounds(classes, by_round)
    assert routes[0].tolist() == [0, 1, 1, 1]
