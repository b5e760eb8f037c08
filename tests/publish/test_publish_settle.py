"""What a reading of CloudWatch says of a batch in doubt: which sets of batches explain it."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from tandem.publish import Datum, Delays, Round, Slice, batches
from tandem.publish.batch import Held
from tandem.publish.settle import MOST_AT_ONCE, Settling, _explanations, _Place, _sum

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


CELL = (("Experiment", "e"), ("Variant", "v"), ("PromptClass", "c"), ("Concurrency", "1"))


def verdict(state: str, shown: list[float]) -> str:
    """Judge the second of two rounds of one minute by what is shown; the first one's batch ended in a state."""
    made = [
        Round(
            number=number, complete=True, records=(Slice(path=Path("records.jsonl"), first=0, end=0),),
            data=(Datum(metric="ttft_ms", dimensions=CELL, at_s=0, values=values),),
        )
        for number, values in enumerate([[1.0, 2.0], [30.0, 40.0]])
    ]  # fmt: skip
    told = dict(enumerate([state, "intent"]))
    lines = {
        number: SimpleNamespace(
            round=number, batch=0, digest=batches(made[number].data)[0].digest, state=said, at_s=0.0
        )
        for number, said in told.items()
    }
    journal = SimpleNamespace(in_doubt=lambda: [lines[1]], last=lambda round_, _: lines[round_])
    cloudwatch = SimpleNamespace(held=lambda cells: dict.fromkeys(cells, Held(len(shown), sum(shown))))
    (doubt,) = Settling(journal, cloudwatch, Delays(), lambda _: made).look(now_s=1e6)
    return doubt.verdict


@pytest.mark.parametrize("state", ["refused", "skipped", "unsent"])
def test_what_cloudwatch_never_took_explains_nothing_that_it_shows(state):
    assert (verdict(state, [30.0, 40.0]), verdict(state, [])) == ("sent", "absent")


def test_what_cloudwatch_took_explains_its_own_part():
    assert (verdict("sent", [1.0, 2.0, 30.0, 40.0]), verdict("sent", [1.0, 2.0])) == ("sent", "absent")
