"""The knee from counted turns: a known curve, a bound where there is no knee, a ratio by rounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tandem.bench.plan.knee_search import RATE_FACTORS, KneeSearch, KneeTurn, KneeTurnCount
from tandem.judge.knee import KneeFinding, find_knees

SLOPE = 12.0


def draw_finding(
    knees: dict[str, float], change_count: Callable[[KneeTurnCount], KneeTurnCount] | None = None
) -> KneeFinding:
    """Search arms whose share of good requests is 95 % at a known rate."""
    generator = np.random.default_rng(7)

    def count_turn(turn: KneeTurn) -> KneeTurnCount:
        logit = math.log(19) - SLOPE * math.log(turn.rate_per_s / knees[turn.arm])
        good = int(generator.binomial(224, 1 / (1 + math.exp(-logit))))
        count = KneeTurnCount(turn, 224, good, 1.0)
        return change_count(count) if change_count else count

    search = KneeSearch(arms=tuple(knees), share=0.95, first_rates={})
    counts: list[KneeTurnCount] = []
    while (turn := search.next_turn(counts)) is not None:
        counts.append(count_turn(turn))
    return find_knees(tuple(knees), counts, 0.95, {"ttft_ms": 500.0})


def test_intervals_hold_known_knees_and_their_ratio():
    finding = draw_finding({"a": 3.0, "b": 4.8})

    assert [arm.word for arm in finding.arms] == ["found", "found"]
    ranges = [finding.arms[0].rate_per_s, finding.arms[1].rate_per_s, finding.ratios[0].ratio]
    for knee, truth in zip(ranges, (3.0, 4.8, 1.6), strict=True):
        assert knee is not None
        assert knee.low is not None
        assert knee.high is not None
        assert knee.low <= truth <= knee.high
        assert knee.value == pytest.approx(truth, rel=0.1)


def test_load_that_cannot_be_sent_is_no_knee():
    finding = draw_finding(
        {"a": 3.0, "b": 40.0},
        lambda count: count._replace(is_late=count.turn.rate_per_s > 10),
    )

    assert finding.arms[1].word == "too fast to send"
    assert finding.arms[1].rate_per_s is None
    assert finding.arms[1].bound_per_s == pytest.approx(8.0, rel=0.25)
    assert finding.ratios == ()


def test_server_that_keeps_no_limit_has_no_knee():
    finding = draw_finding({"a": 3.0}, lambda count: count._replace(good=0))

    assert finding.arms[0].word == "not reached"
    assert finding.arms[0].rate_per_s is None


@pytest.mark.parametrize(("knee", "word"), [(3.6, "found"), (5.0, "above"), (1.5, "below")])
def test_knee_far_outside_the_measured_rates_is_a_bound(knee, word):
    rates = [2.5 * factor for factor in RATE_FACTORS]  # 1.9 to 3.25
    pilot = KneeTurn("a", 2.5, 0, 0, 28)
    counts = [
        KneeTurnCount(pilot._replace(rate_per_s=2.4), 112, 112, 1.0),
        KneeTurnCount(pilot._replace(rate_per_s=2.6, slot=1), 112, 0, 1.0),
    ]
    for round_ in range(1, 7):
        for slot, rate_per_s in enumerate(rates):
            miss = math.exp(SLOPE * math.log(rate_per_s / knee)) / 19
            turn = KneeTurn("a", rate_per_s, round_, slot, 28)
            counts.append(KneeTurnCount(turn, 448, round(448 / (1 + miss)), 1.0))

    assert find_knees(("a",), counts, 0.95, {}).arms[0].word == word
