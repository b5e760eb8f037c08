"""Build the batches of a round: the data that one PutMetricData sends.

Invariant: the same figures, in any order, give the same batches; a batch keeps to CloudWatch's
limits. A batch holds one prompt class, so that a class that CloudWatch refuses costs no other.

Values are rounded to three significant digits, by 0.5 % at most, so that equal ones are sent once
with their count. Sources of the limits: the API reference of PutMetricData, MetricDatum and
Dimension, as in botocore 1.43.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.cloudwatch_metrics import MINUTE_S, SeriesMinute, cloudwatch_unit
from tandem.metrics import find_metric

MAX_DATA = 1000  # a request
# a request before compression; the limit is 1 MB, before or after compression is not documented
MAX_BYTES = 900_000
MAX_VALUES = 150  # unique values in a datum
MAX_SIZE = 2.0**360  # of a value
DIGITS = 3
# a value of three digits and its count, in JSON or CBOR: botocore uses either for CloudWatch
_PAIR_BYTES = 24
_DATUM_BYTES = 250  # names of the fields, of the unit, the time
_DIMENSION_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class MetricDatum:
    """One MetricDatum: unique values, ascending, and the count of each."""

    minute: SeriesMinute
    values: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes in a request, an upper estimate."""
        dimension_bytes = sum(
            len(name) + len(value) + _DIMENSION_BYTES for name, value in self.minute.dimensions
        )
        return (
            _DATUM_BYTES
            + len(self.minute.metric)
            + dimension_bytes
            + _PAIR_BYTES * len(self.values)
        )

    def as_request(self) -> dict[str, Any]:
        """Return the datum in the form of PutMetricData."""
        return {
            "MetricName": self.minute.metric,
            "Dimensions": [
                {"Name": name, "Value": value} for name, value in self.minute.dimensions
            ],
            "Timestamp": datetime.fromtimestamp(self.minute.at_s, tz=UTC),
            "Values": list(self.values),
            "Counts": [float(count) for count in self.counts],
            "Unit": cloudwatch_unit(find_metric(self.minute.metric)),
            "StorageResolution": MINUTE_S,
        }


@dataclass(frozen=True)
class MetricBatch:
    """The data of one PutMetricData: at least one datum, all of one prompt class."""

    data: tuple[MetricDatum, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the data; folders and buckets hold digests, so their form never changes."""
        plain = [[*datum.minute, datum.values, datum.counts] for datum in self.data]
        return hashlib.sha256(json.dumps(plain, separators=(",", ":")).encode()).hexdigest()


def build_batches(values: Mapping[SeriesMinute, NDArray[np.float64]]) -> tuple[MetricBatch, ...]:
    """Return the batches of a round's values; non-finite values are left out."""
    minutes = sorted(values, key=lambda minute: (minute.prompt_class, minute))
    batches: list[MetricBatch] = []
    for _, class_minutes in groupby(minutes, key=lambda minute: minute.prompt_class):
        data = (_count_values(minute, round_values(values[minute])) for minute in class_minutes)
        batches += map(MetricBatch, _fill_batches(data))
    return tuple(batches)


def round_values(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the finite values at three significant digits; 0 where CloudWatch needs it."""
    finite = values[np.isfinite(values)]
    size = np.abs(finite)
    finite = np.where(size < 1 / MAX_SIZE, 0.0, finite)[size < MAX_SIZE]
    power = np.floor(np.log10(np.where(finite == 0, 1.0, np.abs(finite)))) - (DIGITS - 1)
    up = 10.0 ** np.maximum(-power, 0)
    down = 10.0 ** np.maximum(power, 0)
    # -0.0 is 0.0
    rounded_values: NDArray[np.float64] = np.rint(finite * up / down) / up * down + 0.0
    return rounded_values


def _count_values(minute: SeriesMinute, values: NDArray[np.float64]) -> tuple[MetricDatum, ...]:
    unique, counts = np.unique(values, return_counts=True)
    return tuple(
        MetricDatum(
            minute=minute,
            values=tuple(unique[first : first + MAX_VALUES].tolist()),
            counts=tuple(counts[first : first + MAX_VALUES].tolist()),
        )
        for first in range(0, len(unique), MAX_VALUES)
    )


def _fill_batches(minutes: Iterable[tuple[MetricDatum, ...]]) -> Iterator[tuple[MetricDatum, ...]]:
    """Yield batches filled in order; split a series' minute only if no batch can hold it."""
    batch: list[MetricDatum] = []
    batch_bytes = 0
    for data in minutes:
        minute_bytes = sum(datum.size for datum in data)
        for index, datum in enumerate(data):
            count, size = (len(data), minute_bytes) if index == 0 else (1, datum.size)
            if batch and (len(batch) + count > MAX_DATA or batch_bytes + size > MAX_BYTES):
                yield tuple(batch)
                batch = []
                batch_bytes = 0
            batch.append(datum)
            batch_bytes += datum.size
    if batch:
        yield tuple(batch)
