"""The estimates of cells, from requests that a test states."""

import pytest
from observed import Asked, observed, table

from tandem.judge.cell_estimates import SpeedUpEstimator
from tandem.judge.pairs import DECIDING_METRIC, RequestPairing
from tandem.judge.schema import RatioEstimate, RunControls


def estimate_deciding(seen):
    """The cell of the deciding metric, of a run with one class."""
    estimator = SpeedUpEstimator(RequestPairing(seen), "spec", RunControls())
    return next(
        cell
        for cell in estimator.estimate_cells()
        if getattr(cell, "draft", cell).metric == DECIDING_METRIC
    )


def test_figures_of_a_cell_are_medians_over_prompts():
    # the medians of base are 200, 1000 and 400 ms, and spec takes half of each
    times_ms = {"p0": (100, 200, 900, 200), "p1": (1000,) * 4, "p2": (400,) * 4}
    requests = [
        Asked(arm=arm, prompt=prompt, round=number, e2e_ms=ms * share)
        for arm, share in (("base", 1.0), ("spec", 0.5))
        for prompt, by_round in times_ms.items()
        for number, ms in enumerate(by_round)
    ]
    draft = estimate_deciding(observed(requests)).draft
    assert (draft.baseline, draft.measured) == (400.0, 200.0)


def test_two_prompts_have_a_ratio_and_no_interval():
    # speed-ups of 1 and 4, whose geometric mean is 2
    seen = table({"repeat": {"base": [800.0, 800.0], "spec": [800.0, 200.0]}})
    verdict = estimate_deciding(seen)
    assert verdict.speed_up == RatioEstimate(value=pytest.approx(2.0))
    assert verdict.p is None
