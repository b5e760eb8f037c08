"""Log-ratios as the ratios of the verdict's form.

Invariant: every ratio is a finite number above 0, however far a broken clock put two figures apart.
"""

from __future__ import annotations

import math

from tandem.bench.judge.form import Ratio
from tandem.bench.judge.interval import Estimate

_LARGEST = 700.0  # a log-ratio whose exp is still a number


def exp(log: float) -> float:
    """Return the ratio of a log-ratio."""
    return math.exp(min(max(float(log), -_LARGEST), _LARGEST))


def make_ratio(estimate: Estimate) -> Ratio:
    """Return a mean log-ratio as a ratio with its interval."""
    return Ratio(value=exp(estimate.log), low=exp(estimate.low), high=exp(estimate.high))


def ratio_of(made: Estimate | None) -> Ratio | None:
    """Return the same; None of None."""
    return None if made is None else make_ratio(made)
