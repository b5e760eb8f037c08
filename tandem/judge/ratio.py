"""Log-ratios as the ratios of the verdict's form.

Invariant: every ratio is a finite number above 0, however far a broken clock put two figures apart.
"""

from __future__ import annotations

import math

from tandem.judge.interval import LogRatioEstimate
from tandem.judge.schema import RatioEstimate

_LARGEST = 700.0  # a log-ratio whose exp is still a number


def convert_log_ratio(log: float) -> float:
    """Return the ratio of a log-ratio."""
    return math.exp(min(max(float(log), -_LARGEST), _LARGEST))


def convert_estimate(estimate: LogRatioEstimate) -> RatioEstimate:
    """Return a mean log-ratio as a ratio with its interval."""
    return RatioEstimate(
        value=convert_log_ratio(estimate.log),
        low=convert_log_ratio(estimate.low),
        high=convert_log_ratio(estimate.high),
    )


def convert_optional_estimate(estimate: LogRatioEstimate | None) -> RatioEstimate | None:
    """Return the same; None of None."""
    return None if estimate is None else convert_estimate(estimate)
