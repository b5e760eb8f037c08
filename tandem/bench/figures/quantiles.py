"""Quantiles, with one definition everywhere.

Invariant: linear interpolation between order statistics (numpy's default, Hyndman and Fan's type 7,
also used by pandas and so by llmperf): p50 of an even number is the mean of the middle two, and a
p99 of fewer than 100 values is between the two largest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


class ValueSpread(NamedTuple):
    """Number, quantiles and mean of some values."""

    n: int
    p50: float
    p90: float
    p99: float
    mean: float


def compute_spread(values: Values) -> ValueSpread | None:
    """Return the spread of `values`, and possibly reorder them; None if there are no values.

    Raises:
        ValueError: a value is not a finite number; no metric may have one.
    """
    if not len(values):
        return None
    mean = float(np.mean(values))
    if not np.isfinite(mean):
        raise ValueError("a figure is not a finite number")
    p50, p90, p99 = np.quantile(values, (0.5, 0.9, 0.99), overwrite_input=True)
    return ValueSpread(len(values), float(p50), float(p90), float(p99), mean)


def compute_median(values: Values) -> float:
    """Return the median of the finite values; NaN if there is none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else float("nan")
