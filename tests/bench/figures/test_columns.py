"""Chunks of many records as columns."""

from __future__ import annotations

import numpy as np
from measured import record

from tandem.bench.figures.columns import collect_chunks


def test_a_record_without_a_chunk_has_no_end_times():
    table = collect_chunks([record(chunks=()), record()])
    first, last = table.find_end_times_s(np.ones(6, bool))
    np.testing.assert_equal([first, last], [[np.nan, 0.1], [np.nan, 0.291]])


def test_tokens_are_summed_for_each_record():
    table = collect_chunks([record(), record(chunks=()), record()])
    assert table.sum_by_record(~np.isnan(table.tokens), table.tokens).tolist() == [8, 0, 8]
