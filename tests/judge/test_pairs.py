import itertools
import math

import numpy as np
import pytest
from observed import Asked, observed, table, with_figures

from tandem.bench.figures.request_table import UNKNOWN
from tandem.judge.pairs import WAIT_METRIC, RequestPairing

pytestmark = pytest.mark.filterwarnings("error")


def cell(seen, metric="e2e_ms", marked_rounds=()):
    pairing = seen if isinstance(seen, RequestPairing) else RequestPairing(seen, marked_rounds)
    return pairing.pairs(("base", "spec"), 0, metric)


def test_a_rate_points_the_same_way_as_a_time():
    seen = table({"repeat": {"base": [1000.0], "spec": [500.0]}})
    assert cell(seen, "output_tokens_per_s").logs == pytest.approx([math.log(2)])
    assert cell(seen, "e2e_ms").logs == pytest.approx([math.log(2)])


def test_slots_of_a_round_pool_and_rounds_do_not():
    times = {
        ("base", 0): (100, 110),
        ("spec", 0): (50, 60),
        ("base", 1): (200, 200),
        ("spec", 1): (50, 50),
    }
    requests = [
        Asked(arm=arm, round=number, slot=slot, e2e_ms=ms)
        for (arm, number), pair in times.items()
        for slot, ms in enumerate(pair)
    ]
    pairs = cell(observed(requests))
    np.testing.assert_allclose(pairs.by_round, [[math.log(105 / 55), math.log(200 / 50)]])
    assert pairs.logs == pytest.approx([math.log(155 / 50)])
    assert list(pairs.rounds) == [0, 1]


def test_a_round_without_one_arms_answer_does_not_count():
    requests = [Asked(arm=arm, round=0, e2e_ms=ms) for arm, ms in (("base", 100), ("spec", 50))]
    requests += [Asked(arm="base", round=1, e2e_ms=900), Asked(arm="spec", round=1, error="closed")]
    requests += [
        Asked(arm=arm, prompt="p1", round=1, e2e_ms=ms)
        for arm, ms in (("base", 300), ("spec", 100))
    ]
    pairs = cell(observed(requests))
    np.testing.assert_allclose(pairs.logs, [math.log(2), math.log(3)])
    np.testing.assert_allclose(pairs.by_round, [[math.log(2), np.nan], [np.nan, math.log(3)]])


def test_only_prompts_that_both_arms_answered_are_paired():
    seen = table({"repeat": {"base": [100, 200, 300], "spec": [50, np.nan, 100]}})
    pairs = cell(seen)
    assert [seen.prompts[code].prompt_id for code in pairs.prompts] == ["repeat-0", "repeat-2"]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_a_time_not_above_0_is_no_figure(bad):
    seen = table({"repeat": {"base": [100, 200], "spec": [50, 100]}}, rounds=1)
    values = seen.figures["e2e_ms"].copy()
    values[3] = bad
    assert len(cell(with_figures(seen, e2e_ms=values)).logs) == 1


def test_rounds_that_are_left_out_are_in_no_figure():
    requests = [
        Asked(arm=arm, round=number, e2e_ms=ms)
        for number, both in enumerate(((100, 50), (100, 10), (100, 20)))
        for arm, ms in zip(("base", "spec"), both, strict=True)
    ]
    pairs = cell(observed(requests), marked_rounds=(1, 2))
    assert list(pairs.rounds) == [0]
    assert pairs.logs == pytest.approx([math.log(2)])


def started(*starts):
    """A request of each arm in each round, at the starts of base and spec."""
    return cell(
        observed(
            [
                Asked(arm=arm, round=number, start=start)
                for number, both in enumerate(starts)
                for arm, start in zip(("base", "spec"), both, strict=True)
            ]
        )
    ).starts


def test_rounds_that_share_a_start_have_one_code():
    codes = started(("b0", "s0"), ("b0", "s1"), ("b2", "s1"), ("b3", "s3"))
    assert codes[0] == codes[1] == codes[2] != codes[3]


def test_a_record_without_a_start_makes_its_round_unknown():
    codes = started(("b0", "s0"), ("b1", None))
    assert codes[0] != UNKNOWN
    assert codes[1] == UNKNOWN


def test_starts_of_two_classes_do_not_join_each_other():
    requests = [
        Asked(arm=arm, class_=class_, round=number, start=f"{arm}{start}")
        for class_, starts in (("repeat", (0, 1)), ("chat", (0, 0)))
        for number, start in enumerate(starts)
        for arm in ("base", "spec")
    ]
    codes = cell(observed(requests)).starts
    assert codes[0] != codes[1]


def test_a_start_within_a_round_joins_rounds():
    requests = [
        Asked(arm=arm, round=number, start=f"{arm}{number}")
        for number, arm in itertools.product(range(3), ("base", "spec"))
    ]
    requests.append(Asked(arm="spec", round=1, slot=1, start="spec2"))
    codes = cell(observed(requests)).starts
    assert codes[0] != codes[1] == codes[2]


def test_a_failed_request_waits_as_others_at_its_load():
    requests = [
        Asked(arm="base", e2e_ms=1000.0, concurrency=1),
        Asked(arm="spec", e2e_ms=10.0, concurrency=1, error="closed"),
        Asked(arm="base", e2e_ms=9000.0),
        Asked(arm="spec", e2e_ms=9000.0),
    ]
    pairing = RequestPairing(observed(requests))
    pairs = pairing.join_cells(("base", "spec"), pairing.known_cells(), WAIT_METRIC)
    assert pairs.variant_medians.tolist() == [1000.0, 9000.0]
