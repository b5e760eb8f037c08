"""The median of figures that may be missing."""

from __future__ import annotations

import math

import numpy as np

from tandem.bench.figures.quantiles import compute_median


def test_a_median_leaves_out_what_is_missing():
    assert compute_median(np.array([1.0, math.nan, 3.0, 8.0])) == 3.0


def test_nothing_has_no_median():
    assert math.isnan(compute_median(np.array([math.nan])))
