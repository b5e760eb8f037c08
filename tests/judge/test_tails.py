"""Mean and 90th percentile of E2E beside the median: what they are, and what they do to a word."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from observed import MARGIN, Asked, Truth, drawn, headline, judge_cells, observed, table

from tandem.bench.plan.schedule import LoadLevel
from tandem.judge.comparability import FailureCounts
from tandem.judge.interval import LogRatioEstimate
from tandem.judge.schema import NoiseFloor, RatioEstimate, RunControls
from tandem.judge.tails import TailEstimate, weigh_tails

STEADY = (1000.0, 900.0, 800.0, 1100.0, 950.0, 700.0, 1050.0, 850.0)
SLOW_SHARE = 0.15
SLOW_BY = 4.0


def judge_e2e(seen, controls=RunControls()):  # noqa: B008 - frozen
    return [cell for cell in judge_cells(seen, controls, margin=MARGIN) if cell.metric == "e2e_ms"]


def tail(cell, statistic):
    return next(tail for tail in cell.tails if tail.statistic == statistic)


def slow_sometimes(*, classes, share=SLOW_SHARE, seed, by=SLOW_BY):
    """A variant that is 1.25 times as fast but for a share of its requests, which take `by`
    times as long."""
    rng = np.random.default_rng(seed)
    return observed(
        [
            Asked(
                arm=arm,
                class_=f"c{class_}",
                prompt=f"c{class_}-{prompt}",
                round=number,
                e2e_ms=ms
                * math.exp(rng.normal(0, 0.02))
                / (1.25 if arm == "spec" else 1.0)
                * (by if arm == "spec" and rng.random() < share else 1.0),
            )
            for number, class_, (prompt, ms), arm in itertools.product(
                range(4), range(classes), enumerate(STEADY), ("base", "spec")
            )
        ]
    )


def slow_every_fourth(*, faster, by=6.0):
    """Eight prompts in eight rounds; each fourth request of a prompt takes the variant `by` times
    as long."""
    return observed(
        [
            Asked(
                arm=arm,
                prompt=f"p{prompt}",
                round=number,
                e2e_ms=ms
                / (faster if arm == "spec" else 1.0)
                * (by if arm == "spec" and (number + prompt) % 4 == 3 else 1.0),
            )
            for arm, (prompt, ms), number in itertools.product(
                ("base", "spec"), enumerate(STEADY), range(8)
            )
        ]
    )


def test_the_mean_is_of_requests_every_prompt_alike():
    seen = observed(
        [
            Asked(arm=arm, prompt=f"p{prompt}", round=number, e2e_ms=ms)
            for arm, times in (
                ("base", ((100.0, 300.0), (200.0, 200.0), (400.0, 0.0))),
                ("spec", ((100.0, 100.0), (100.0, 300.0), (200.0, 0.0))),
            )
            for prompt, by_round in enumerate(times)
            for number, ms in enumerate(by_round)
            if ms
        ]
    )

    (cell,) = judge_e2e(seen)

    assert tail(cell, "mean").baseline == pytest.approx((200 + 200 + 400) / 3)
    assert tail(cell, "mean").measured == pytest.approx((100 + 200 + 200) / 3)
    assert tail(cell, "mean").speed_up.value == pytest.approx(800 / 500)


def test_the_percentile_is_the_ninth_of_ten_requests():
    base = [float(number) for number in range(1, 11)]
    (cell,) = judge_e2e(table({"repeat": {"base": base, "spec": [ms / 2 for ms in base]}}))
    assert (tail(cell, "p90").baseline, tail(cell, "p90").measured) == (9.0, 4.5)
    assert tail(cell, "p90").speed_up.value == pytest.approx(2.0)


def test_intervals_of_tails_hold_the_truth_of_most_runs():
    truth = Truth(ratio={"spec": {"a": 1.5}}, prompts=16, spread=0.15)
    counts = {"mean": 0, "p90": 0}
    for seed in range(24):
        for entry in judge_e2e(drawn(truth, seed))[0].tails:
            counts[entry.statistic] += entry.speed_up.low < 1.5 < entry.speed_up.high
    assert counts["mean"] >= 21
    assert counts["p90"] >= 20


@pytest.mark.parametrize("seed", range(2))
def test_a_median_beside_some_slow_requests_is_never_called_faster(seed):
    seen = slow_sometimes(seed=seed, classes=8)
    verdict_line = headline(seen, equal=())
    assert verdict_line.finding in {"mixed", "no evidence"}
    assert not verdict_line.faster


def test_the_sentence_of_a_mixed_class_has_its_figures():
    seen = slow_every_fourth(faster=2.0)
    (cell,) = judge_e2e(seen)
    verdict_line = headline(seen, equal=())

    # no number mends a tail
    assert (cell.verdict, cell.more_prompts, cell.more_rounds) == ("mixed", None, None)
    assert verdict_line.sentence.startswith(
        "End to end, by the median spec is 2.00 times as fast as base over all prompts ("
    )
    assert f"), but {cell.opposition}. " in verdict_line.sentence


def test_a_tail_that_may_be_slower_takes_the_word_away():
    seen = slow_sometimes(classes=1, share=0.07, seed=3, by=6.0)
    (cell,) = judge_e2e(seen)
    assert tail(cell, "mean").speed_up.low < 1 < tail(cell, "mean").speed_up.high
    assert (cell.verdict, "but the mean is" in cell.why) == ("no evidence", True)


def test_a_slower_tail_beside_the_same_median_is_mixed():
    (cell,) = judge_e2e(slow_every_fourth(faster=1.0))
    assert (cell.verdict, cell.why.startswith("the median is the same, and the ")) == (
        "mixed",
        True,
    )


@pytest.mark.parametrize(("ratio", "word"), [(1.01, "mixed"), (1.7, "no evidence")])
def test_a_tail_within_the_noise_floor_makes_nothing_mixed(ratio, word):
    floor = NoiseFloor(
        class_="repeat",
        load=LoadLevel(concurrency=4),
        metric="e2e_ms",
        speed_up=RatioEstimate(value=1.0),
        ratio=ratio,
    )
    (cell,) = judge_e2e(slow_every_fourth(faster=1.95, by=3.0), RunControls(floors=(floor,)))
    assert cell.verdict == word


def weigh(word, log, se, failures):
    """The word of all classes beside a mean of 20 degrees of freedom."""
    reach = 2.086 * se
    estimate = LogRatioEstimate(log, se, 20.0, low=log - reach, high=log + reach, p=0.0)
    return weigh_tails(
        word,
        {},
        TailEstimate("mean", 1.0, 1.0, estimate),
        is_overall=True,
        floor=0.0,
        margin=math.log1p(MARGIN),
        failures=FailureCounts(*failures),
    ).word


@pytest.mark.parametrize(("failure_count", "word"), [(0, "faster"), (1, "no evidence")])
def test_a_doubtful_mean_takes_the_word_beside_failures(failure_count, word):
    assert weigh("faster", 0.1, 0.06, (1000, 0, 1000, failure_count)) == word


@pytest.mark.parametrize(
    ("failures", "word"),
    [
        ((72, 0, 72, 0), "faster"),
        ((72, 0, 72, 1), "no evidence"),
        ((72, 1, 72, 2), "faster"),
        ((448, 0, 448, 1), "faster"),
    ],
)
def test_an_arm_that_may_fail_far_more_has_no_word(failures, word):
    """1 of 72 may be 6.4 % of all requests, 1 of 448 at most 1.1 %."""
    assert weigh("faster", 0.7, 0.06, failures) == word


def test_a_mean_beside_the_same_median_needs_its_level():
    assert weigh("same", -0.1, 0.045, (72, 0, 72, 0)) == "no evidence"


def test_only_e2e_has_tails():
    cells = judge_cells(drawn(Truth(ratio={"spec": {"a": 1.0}})), RunControls(), margin=MARGIN)
    assert {cell.metric for cell in cells if cell.tails} == {"e2e_ms"}
