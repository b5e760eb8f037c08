"""What one request holds: CloudWatch's limits, and the same batches for the same data."""

from __future__ import annotations

import dataclasses
import random

import boto3
import numpy as np
import pytest
from botocore.config import Config
from publishing import Made

from tandem.publish import Datum, batches
from tandem.publish.batch import MOST_BYTES, rounded

CELL = (("Experiment", "post"), ("Variant", "a"), ("PromptClass", "chat"), ("Concurrency", "8"))


def data(values, metric="chunk_gap_ms", at_s=60, cell=CELL):
    return Datum(metric=metric, dimensions=cell, at_s=at_s, values=values)


def everywhere(number):
    """So many values that no two round to one."""
    return [digits * 10.0**power for power in range(-3, 100) for digits in range(100, 1000)][:number]


def class_named(name, **others):
    given = {"PromptClass": name, **others}
    return data([1.0], cell=tuple((key, given.get(key, value)) for key, value in CELL))


@pytest.mark.parametrize(
    ("value", "sent"),
    [(123.456, 123.0), (0.0123456, 0.0123), (999.6, 1000.0), (0.1, 0.1), (-45.678, -45.7), (0.0, 0.0),
     (1e-200, 0.0), (98765.0, 98800.0)],
)  # fmt: skip
def test_a_value_is_sent_at_three_digits(value, sent):
    assert rounded(np.array([value])).tolist() == [sent]


def test_rounding_changes_no_value_by_more_than_half_a_percent():
    values = np.random.default_rng(5).lognormal(3, 4, 20_000)

    assert np.max(np.abs(rounded(values) / values - 1)) <= 0.005


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 2.0**360, -(2.0**361)])
def test_what_is_no_number_for_cloudwatch_is_not_sent(value):
    (batch,) = batches([data([value, 5.0])])

    assert [part.values for part in batch.parts] == [(5.0,)]


def test_a_cell_without_any_number_is_absent():
    assert batches([data([float("nan")])]) == ()


def test_equal_values_are_sent_once_with_their_count():
    (batch,) = batches([data([5.001, 7.0, 5.002]), data([7.0])])

    assert [(part.values, part.counts) for part in batch.parts] == [((5.0, 7.0), (2, 2))]


def test_a_datum_has_at_most_150_unique_values():
    (batch,) = batches([data(everywhere(400))])

    assert [len(part.values) for part in batch.parts] == [150, 150, 100]


def test_the_same_data_in_another_order_give_the_same_batches(tmp_path):
    one = list(Made(folder=tmp_path, first_s=0, gaps=500).data(0))
    other = random.Random(1).sample(one, len(one))  # noqa: S311 - no secret

    assert [batch.digest for batch in batches(one)] == [batch.digest for batch in batches(other)]


def test_a_batch_holds_one_class():
    assert [batch.class_ for batch in batches([class_named("b"), class_named("a"), class_named("b")])] == ["a", "b"]


def test_all_variants_of_a_class_are_sent_together():
    made = batches([class_named(name, Variant=variant) for variant in "xy" for name in "ab"])

    assert [(batch.class_, len(batch.parts)) for batch in made] == [("a", 2), ("b", 2)]


def many():
    """A round larger than one request."""
    return [data(everywhere(1_500), at_s=60 * minute) for minute in range(40)]


def test_no_batch_has_more_than_1000_data():
    made = batches([data([float(n)], at_s=60 * n) for n in range(2500)])

    assert [len(batch.parts) for batch in made] == [1000, 1000, 500]


def test_a_minute_of_a_series_lies_in_one_batch():
    cells = [cell for batch in batches(many()) for cell in batch.held]

    assert len(cells) == len(set(cells)) == 40


def test_a_minute_of_several_data_begins_a_batch_rather_than_lie_in_two():
    made = batches([*(data([1.0], at_s=60 * minute) for minute in range(999)), data(everywhere(300), at_s=60 * 999)])

    assert [len(batch.parts) for batch in made] == [999, 2]


def test_a_minute_that_no_batch_can_hold_is_split_and_whole():
    made = batches([data(everywhere(60_000))])

    assert len(made) > 1
    assert sum(batch.held[batch.probe].samples for batch in made) == 60_000


@pytest.mark.parametrize("counted", [1, 1_000_000])
def test_no_request_is_larger_than_it_was_taken_for(counted, aws):  # noqa: ARG001 - credentials to sign with
    client = boto3.client("cloudwatch", region_name="us-east-2", config=Config(disable_request_compression=True))
    sizes = []

    def answer(request, **_):
        sizes.append(len(request.body))
        raise ConnectionAbortedError

    client.meta.events.register("before-send", answer)
    made = [
        dataclasses.replace(batch, parts=tuple(dataclasses.replace(part, counts=(counted,) * len(part.counts))
                                               for part in batch.parts))
        for batch in batches(many())
    ]  # fmt: skip
    for batch in made:
        with pytest.raises(ConnectionAbortedError):
            client.put_metric_data(Namespace="Tandem/e", MetricData=[part.as_datum() for part in batch.parts])

    taken_for = [sum(part.size for part in batch.parts) for batch in made]
    assert len(made) > 1
    assert all(size <= taken <= MOST_BYTES for size, taken in zip(sizes, taken_for, strict=True))


@pytest.mark.parametrize("name", ["größe", "", "   ", "tab\there", "x" * 1025, "emoji 🦆"])
def test_a_class_that_cloudwatch_refuses_is_refused_here(name):
    (batch,) = batches([class_named(name)])

    assert f"PromptClass {name!r}" in (batch.refusal() or "")


@pytest.mark.parametrize("name", ["chat", "a b", ":colon", "x" * 1024])
def test_a_class_that_cloudwatch_takes_is_not_refused(name):
    (batch,) = batches([class_named(name)])

    assert batch.refusal() is None
