"""What one request holds: CloudWatch's limits, and the same batches for the same data."""

from __future__ import annotations

import dataclasses

import boto3
import numpy as np
import pytest
from botocore.config import Config

from tandem.cloudwatch_metrics import SeriesMinute
from tandem.publish.batch import MAX_BYTES, build_batches, round_values

CELL = (("Experiment", "post"), ("Variant", "a"), ("PromptClass", "chat"), ("Concurrency", "8"))


def series(values, at_s=60):
    return SeriesMinute(CELL, "chunk_gap_ms", at_s), np.array(values)


def unique_values(count):
    """So many values that no two round to one."""
    return [digits * 10.0**power for power in range(-3, 100) for digits in range(100, 1000)][:count]


def large_round():
    return [series(unique_values(1_500), at_s=60 * minute) for minute in range(24)]


@pytest.mark.parametrize(
    ("value", "wire_value"),
    [
        (123.456, 123.0),
        (999.6, 1000.0),
        (1e-200, 0.0),
    ],
)
def test_a_value_is_sent_at_three_digits(value, wire_value):
    assert round_values(np.array([value])).tolist() == [wire_value]


@pytest.mark.parametrize("value", [float("nan"), 2.0**360])
def test_what_is_no_number_for_cloudwatch_is_not_sent(value):
    assert build_batches(dict([series([value])])) == ()
    assert [datum.values for datum in build_batches(dict([series([value, 5.0])]))[0].data] == [
        (5.0,)
    ]


@pytest.mark.parametrize(
    ("parts", "value_counts"),
    [
        ([series(unique_values(400))], [[150, 150, 100]]),
        (
            [series([float(n)], at_s=60 * n) for n in range(2500)],
            [[1] * 1000, [1] * 1000, [1] * 500],
        ),
        (  # a minute of a series begins a batch rather than lie in two
            [
                *(series([1.0], at_s=60 * n) for n in range(999)),
                series(unique_values(300), at_s=60 * 999),
            ],
            [[1] * 999, [150, 150]],
        ),
        # unless no batch can hold it
        ([series(unique_values(60_000))], [[150] * 222, [150] * 178]),
    ],
    ids=["values", "data", "minute", "large minute"],
)
def test_a_datum_and_a_batch_keep_their_limits(parts, value_counts):
    assert [
        [len(datum.values) for datum in batch.data] for batch in build_batches(dict(parts))
    ] == value_counts


@pytest.mark.parametrize("count", [1, 1_000_000])
def test_no_request_is_larger_than_it_was_taken_for(count, aws):  # noqa: ARG001 - credentials to sign with
    client = boto3.client(
        "cloudwatch", region_name="us-east-2", config=Config(disable_request_compression=True)
    )
    sizes = []
    computed_sizes = []

    def answer(request, **_):
        sizes.append(len(request.body))
        raise ConnectionAbortedError

    client.meta.events.register("before-send", answer)
    for batch in build_batches(dict(large_round())):
        data = [
            dataclasses.replace(datum, counts=(count,) * len(datum.counts)) for datum in batch.data
        ]
        with pytest.raises(ConnectionAbortedError):
            client.put_metric_data(
                Namespace="Tandem/e", MetricData=[datum.as_request() for datum in data]
            )
        computed_sizes.append(sum(datum.size for datum in data))

    assert len(sizes) > 1
    assert all(
        size <= estimate <= MAX_BYTES for size, estimate in zip(sizes, computed_sizes, strict=True)
    )
