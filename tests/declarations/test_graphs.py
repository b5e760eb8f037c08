"""How many graphs an artifact is made of, by NxD Inference's own rule for buckets."""

from __future__ import annotations

from typing import Any

import pytest

from tandem.declarations.graph_count import count_graphs


def fields(longest: int = 1024, **tuning: list[int]) -> dict[str, Any]:
    return {"nxdi": "0.6", "max_model_len": longest, "tuning": tuning}


@pytest.mark.parametrize(
    ("longest", "buckets"),
    [(64, 1), (128, 1), (129, 1), (256, 2), (513, 3), (1024, 4), (1100, 4), (2048, 5), (6400, 7)],
)
def test_prefill_and_decode_have_powers_of_two_from_128(longest, buckets):
    assert count_graphs(fields(longest)) == 2 * buckets


def test_declared_buckets_are_counted_as_they_are():
    assert (
        count_graphs(fields(context_encoding_buckets=[512, 1024], token_generation_buckets=[1024]))
        == 3
    )


def test_an_empty_list_of_buckets_leaves_them_to_the_library():
    assert count_graphs(fields(context_encoding_buckets=[])) == 8


def test_of_a_runtime_without_nxdi_the_number_is_not_known():
    assert count_graphs({"nxdi": None, "max_model_len": 1024, "tuning": {}}) is None
