"""Whether requests keep the limits of `--goodput`, for every reader of the limits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tandem.bench.figures.columns import BoolArray
from tandem.bench.figures.quantiles import Values
from tandem.metrics import find_metric

# a single token has no time per token
_TOKEN_TIMES = frozenset({"tpot_ms", "tpot_exact_ms"})


def mask_limits(
    limits: Mapping[str, float], failed: BoolArray, figures: Mapping[str, Values], tokens: Values
) -> tuple[BoolArray, BoolArray]:
    """Return two masks: requests that keep every limit, and good ones without a figure.

    Args:
        limits: of each metric, in its unit.
        failed: whether each request has an error; it keeps no limit.
        figures: of each request, by metric.
        tokens: of each answer, by the server's count.
    """
    good_mask = ~failed
    unknown_mask = np.zeros(len(failed), bool)
    is_short = np.isin(tokens, (0, 1))
    for name, limit in limits.items():
        values = figures[name]
        is_within = values >= limit if find_metric(name).better == "higher" else values <= limit
        has_no_tpot = is_short & np.isnan(values) & (name in _TOKEN_TIMES)
        good_mask &= is_within | has_no_tpot
        unknown_mask |= np.isnan(values) & ~has_no_tpot & ~failed
    return good_mask, unknown_mask
