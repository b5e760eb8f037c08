"""The figure over all classes: what it is of, what it calls, and what takes its word away."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from observed import MARGIN, Truth, drawn, headline, table

from tandem.judge.cells import judge_speed_ups
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import NoiseFloor, RatioEstimate, RunControls

CLASSES = [f"class-{number}" for number in range(6)]
SLIGHT = Truth(ratio={"spec": dict.fromkeys(CLASSES, 1.2)}, prompts=8, spread=0.2)


def judge_overall(seen, controls=RunControls()):  # noqa: B008 - frozen
    (load,) = judge_speed_ups(RequestPairing(seen), controls, margin=MARGIN).overall
    return load


def test_it_is_the_mean_over_all_prompts():
    times = {
        "a": {"base": [1000.0] * 4, "spec": [500.0] * 4},
        "b": {"base": [1000.0] * 2, "spec": [1000.0] * 2},
    }
    overall = judge_overall(table(times)).deciding
    assert (overall.prompts, overall.speed_up.value) == (6, pytest.approx(2 ** (4 / 6)))


def test_it_is_faster_where_no_class_alone_is():
    speed_ups = judge_speed_ups(RequestPairing(drawn(SLIGHT, 1)), RunControls(), margin=MARGIN)
    assert speed_ups.overall[0].deciding.verdict == "faster"
    assert {cell.verdict for cell in speed_ups.cells if cell.metric == "e2e_ms"} == {"no evidence"}


def test_a_floor_hides_it():
    seen = drawn(SLIGHT, 1)
    floor = NoiseFloor(
        class_="all",
        load=seen.loads[0],
        metric="e2e_ms",
        speed_up=RatioEstimate(value=1.0),
        ratio=1.5,
    )
    overall = judge_overall(seen, RunControls(overall_floors=(floor,))).deciding
    assert (overall.noise_floor, overall.verdict) == (1.5, "no evidence")


def test_slow_requests_of_a_few_prompts_take_its_word_away():
    seen = drawn(dataclasses.replace(SLIGHT, spread=0.02), 1)
    e2e_ms = seen.figures["e2e_ms"].copy()
    is_slow = (seen.arm == 1) & (np.random.default_rng(1).random(len(seen)) < 0.05)
    e2e_ms[is_slow] *= 8
    overall = judge_overall(
        dataclasses.replace(seen, figures={**seen.figures, "e2e_ms": e2e_ms})
    ).deciding
    assert overall.verdict in {"mixed", "no evidence"}
    assert overall.opposition.startswith("over all requests the mean is 0.")


def test_a_load_of_one_class_has_its_word():
    truth = Truth(ratio={"spec": {"only": 1.2}}, prompts=12, spread=0.2)
    speed_ups = judge_speed_ups(RequestPairing(drawn(truth, 1)), RunControls(), margin=MARGIN)
    overall = speed_ups.overall[0].deciding
    (cell,) = [cell for cell in speed_ups.cells if cell.metric == "e2e_ms"]
    assert (cell.adjusted_p, cell.verdict) == (overall.adjusted_p, overall.verdict)


def draw_survivors():
    """Requests of a faster variant, of which the first four in a class failed."""
    seen = drawn(FASTER, 1)
    rows = np.flatnonzero((seen.arm == 1) & (seen.class_ == 0))[:4]
    is_lost = np.isin(np.arange(len(seen)), rows)
    figures = {name: np.where(is_lost, np.nan, values) for name, values in seen.figures.items()}
    return dataclasses.replace(seen, failed=seen.failed | is_lost, figures=figures)


FASTER = dataclasses.replace(SLIGHT, ratio={"spec": dict.fromkeys(CLASSES, 1.5)}, spread=0.02)


def test_a_class_of_survivors_is_named_where_it_bars_all_classes():
    overall = judge_overall(draw_survivors()).deciding
    assert overall.why.endswith(" of base (class class-0)")


def test_faster_beside_a_class_of_survivors_is_not_comparable():
    """Four of 64 requests of one class fail: too few for the run, too many for the class."""
    verdict = headline(draw_survivors())
    assert (verdict.finding, "of class class-0" in verdict.sentence) == ("not comparable", True)
