"""For how many requests a variant keeps the goodput limits: words, failures, floors and headlines."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest
from observed import MARGIN, Truth, drawn, headline

from tandem.judge.attainment import judge_attainment
from tandem.judge.cells import judge_speed_ups
from tandem.judge.decision import ATTAINMENT_SHARE
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import RunControls

CLASSES = [f"class-{number}" for number in range(6)]
PROMPTS = 12
LIMIT_MS = 100.0


def keep_limits(baseline, variant, *, seed=1, ratio=1.0, control=None, **truth):
    """Draw a run whose arms keep a limit of TTFT for these shares of their requests."""
    ratios = {"spec": dict.fromkeys(CLASSES, ratio)}
    shares = [baseline, variant]
    if control is not None:
        ratios["base#2"] = dict.fromkeys(CLASSES, 1.0)
        shares.append(control)
    seen = drawn(Truth(ratio=ratios, prompts=PROMPTS, spread=0.02, **truth), seed)
    is_kept = np.random.default_rng(seed).random(len(seen)) < np.array(shares)[seen.arm]
    ttft_ms = np.where(is_kept, LIMIT_MS / 2, LIMIT_MS * 2)
    run = msgspec.structs.replace(seen.run, goodput={"ttft_ms": LIMIT_MS})
    return dataclasses.replace(seen, run=run, figures={**seen.figures, "ttft_ms": ttft_ms})


def judge(seen, controls=RunControls()):  # noqa: B008 - frozen
    (verdict,) = judge_attainment(RequestPairing(seen), controls, margin=MARGIN)
    return verdict


@pytest.mark.parametrize(
    ("baseline", "variant", "word"),
    [(0.7, 0.9, "more"), (0.9, 0.7, "fewer"), (1.0, 1.0, "same"), (0.8, 0.8, "no evidence")],
)
def test_shares_get_their_word(baseline, variant, word):
    assert judge(keep_limits(baseline, variant)).verdict == word


def test_the_interval_holds_the_true_difference():
    verdicts = [judge(keep_limits(0.75, 0.85, seed=seed)) for seed in range(40)]
    assert sum(verdict.low <= 0.1 <= verdict.high for verdict in verdicts) >= 35


def test_equal_shares_are_rarely_told_apart():
    verdicts = [judge(keep_limits(0.8, 0.8, seed=seed)) for seed in range(24)]
    assert sum(verdict.verdict in {"more", "fewer"} for verdict in verdicts) <= 1


def test_a_failed_request_keeps_no_limit():
    seen = keep_limits(1.0, 1.0)
    is_failed = (seen.arm == 1) & (np.random.default_rng(2).random(len(seen)) < 0.3)
    verdict = judge(dataclasses.replace(seen, failed=is_failed))
    assert (verdict.verdict, verdict.measured) == ("fewer", pytest.approx(0.7, abs=0.05))


def test_what_the_baseline_differs_from_itself_by_is_not_called():
    verdict = judge(keep_limits(0.7, 0.85, control=0.98))
    assert (verdict.verdict, verdict.why.split(" by ")[0]) == (
        "no evidence",
        "the baseline differs from itself",
    )


def test_answers_without_a_limited_figure_leave_no_word():
    seen = keep_limits(0.7, 0.9)
    ttft_ms = seen.figures["ttft_ms"].copy()
    ttft_ms[0] = np.nan
    verdict = judge(dataclasses.replace(seen, figures={**seen.figures, "ttft_ms": ttft_ms}))
    assert (verdict.verdict, verdict.why) == (
        "no evidence",
        "1 answer of base lack a figure that a limit needs",
    )


def test_a_void_run_has_no_word():
    verdict = judge(keep_limits(0.7, 0.9), RunControls(void=("the client was the bottleneck",)))
    assert (verdict.verdict, verdict.why) == (
        "no evidence",
        "void: the client was the bottleneck",
    )


def test_fewer_rounds_than_four_leave_no_word():
    assert judge(keep_limits(0.7, 0.9, rounds=3)).verdict == "no evidence"


def test_a_run_without_limits_has_none():
    seen = keep_limits(0.7, 0.9)
    run = msgspec.structs.replace(seen.run, goodput=None)
    pairing = RequestPairing(dataclasses.replace(seen, run=run))
    assert judge_attainment(pairing, RunControls(), margin=MARGIN) == ()


def test_limits_take_their_level_from_other_metrics_than_e2e():
    seen = keep_limits(0.8, 0.8, ratio=1.03, seed=3)
    run = msgspec.structs.replace(seen.run, goodput=None)
    with_limits, without = (
        judge_speed_ups(RequestPairing(table), RunControls(), margin=MARGIN).cells
        for table in (seen, dataclasses.replace(seen, run=run))
    )
    ratios = {
        (cell.class_, cell.metric): cell.adjusted_p / before.adjusted_p
        for cell, before in zip(with_limits, without, strict=True)
        if cell.adjusted_p < 1
    }
    e2e_ratios = [ratio for (_, metric), ratio in ratios.items() if metric == "e2e_ms"]
    whole_level_growth = 1 / (1 - ATTAINMENT_SHARE)
    assert max(ratios.values()) > whole_level_growth > max(e2e_ratios)


def test_faster_with_fewer_requests_in_the_limits_is_mixed():
    result = headline(keep_limits(0.95, 0.75, ratio=1.5))
    assert result.finding == "mixed"
    assert "points fewer" in result.sentence


def test_slower_with_more_requests_in_the_limits_is_mixed():
    assert headline(keep_limits(0.75, 0.95, ratio=1 / 1.5)).finding == "mixed"


def test_faster_that_may_miss_more_limits_says_so():
    result = headline(keep_limits(0.9, 0.87, ratio=1.5, seed=5))
    assert result.verdict.startswith("faster, but may miss more limits")


def test_limits_alone_make_no_variant_faster():
    assert headline(keep_limits(0.75, 0.95)).finding != "faster"
