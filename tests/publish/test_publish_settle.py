"""What a reading of CloudWatch says of a batch in doubt: which sets of batches explain it."""

from __future__ import annotations

import itertools

import pytest

from tandem.publish import Datum, batches
from tandem.publish.batch import Held
from tandem.publish.settle import MOST_AT_ONCE, _explanations, _Place, _sum

A, B, C = (_Place(number, 0) for number in range(3))
HELD = {A: Held(20, 1234.5), B: Held(20, 1250.25), C: Held(7, 99.0)}
LANDED = Held(40, 3000.0)


@pytest.mark.parametrize(
    "chosen", [set(some) for size in range(4) for some in itertools.combinations((A, B, C), size)], ids=str
)
def test_every_set_of_batches_that_landed_is_told_from_all_others(chosen):
    shown = _sum([LANDED, *(HELD[place] for place in chosen)])

    assert _explanations(shown, LANDED, HELD) == [chosen]


def test_less_than_what_cloudwatch_took_explains_nothing():
    assert _explanations(Held(20, 1234.5), LANDED, HELD) == []


def test_the_same_number_of_other_values_explains_nothing():
    assert _explanations(Held(60, 4234.6), LANDED, HELD) == []


def test_two_batches_of_one_sum_are_both_explanations():
    assert len(_explanations(Held(5, 50.0), Held(0, 0.0), {A: Held(5, 50.0), B: Held(5, 50.0)})) == 2


def test_more_batches_than_can_be_tried_are_explained_by_nothing():
    many = {_Place(number, 0): Held(1, 2.0**number) for number in range(MOST_AT_ONCE + 1)}

    assert _explanations(Held(1, 1.0), Held(0, 0.0), many) == []


def test_a_batch_is_told_by_its_cell_of_the_most_different_values():
    cell = (("Experiment", "e"), ("Variant", "v"), ("PromptClass", "c"), ("Concurrency", "1"))
    (batch,) = batches(
        [
            Datum(metric="ttft_ms", dimensions=cell, at_s=0, values=[1.0, 2.0, 3.0]),
            Datum(metric="tpot_ms", dimensions=cell, at_s=0, values=[1.0, 1.0, 1.0, 1.0]),
        ]
    )

    assert batch.probe.metric == "ttft_ms"
