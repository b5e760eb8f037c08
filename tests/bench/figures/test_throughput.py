"""The time in which a turn had a request."""

from __future__ import annotations

import numpy as np

from tandem.bench.figures.throughput import compute_busy_s


def test_overlaps_count_once_and_pauses_do_not():
    start_s = np.array([5.0, 0.0, 2.0, 1.0])
    end_s = np.array([6.0, 2.0, 4.0, 3.0])
    assert compute_busy_s(np.array([0, 0, 1, 0]), start_s, end_s, 2).tolist() == [4.0, 2.0]
