"""Two calls of CloudWatch: put a batch, and read back how much a minute of a series holds.

Invariant: a put that failed says for certain whether it was done, or that nobody knows; only one that certainly was
not is sent again here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from tandem.publish.batch import RESOLUTION_S, Batch, Cell, Held
from tandem.publish.fault import BOTO_ERRORS, Asked, PublishError, fault_of, outcome

QUERIES = 500  # of one GetMetricData (its API reference)
_STATISTICS = {"n": "SampleCount", "s": "Sum"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How a request that was not done is sent again: full jitter below first_s * 2**n, at most most_s."""

    tries: int = 9
    first_s: float = 0.5
    most_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a put ended.

    Args:
        state: sent; unknown: it may have been done; invalid: CloudWatch takes no such batch; unsent: not done.
        fault: of all but `sent`.
    """

    state: Literal["sent", "unknown", "invalid", "unsent"]
    fault: PublishError | None = None


class CloudWatch:
    """The namespace of an environment.

    Args:
        client: boto3's, which sends each request once.
        namespace: Tandem/<environment>, or Tandem/Simulated/<environment>.
        sleep: waits so many seconds.
        over: whether there is no time left for another try.
    """

    def __init__(
        self, client: Any, namespace: str, retries: Retries, sleep: Callable[[float], None], over: Callable[[], bool]
    ) -> None:
        self._client, self.namespace, self._retries, self._sleep, self._over = client, namespace, retries, sleep, over
        self._random = random.Random()  # noqa: S311 - a wait is no secret

    def put(self, batch: Batch, before: Callable[[], None]) -> Ended:
        """Send a batch.

        Args:
            batch: what is sent.
            before: called before each request: the journal's intent.
        """
        return self.put_data([part.as_datum() for part in batch.parts], before)

    def put_data(self, data: Sequence[dict[str, Any]], before: Callable[[], None]) -> Ended:
        """Send data as `put` does."""
        for attempt in range(self._retries.tries):
            before()
            try:
                self._client.put_metric_data(Namespace=self.namespace, MetricData=data)
            except BOTO_ERRORS as error:
                found, fault = outcome(error), self._fault(error, "PutMetricData")
                if found == "unknown":
                    return Ended("unknown", fault)
                if found == "invalid":
                    return Ended("invalid", fault)
                if found == "stop" or self._last_try(attempt):
                    return Ended("unsent", fault)
                self._pause(attempt)
            else:
                return Ended("sent")
        raise AssertionError("there is at least one try")

    def _last_try(self, attempt: int) -> bool:
        return attempt + 1 == self._retries.tries or self._over()

    def _pause(self, attempt: int) -> None:
        """Wait before the next try."""
        limit = min(self._retries.first_s * 2**attempt, self._retries.most_s)
        self._sleep(self._random.uniform(0, limit))

    def held(self, cells: Sequence[Cell]) -> dict[Cell, Held]:
        """Return what CloudWatch shows of cells; nothing is (0, 0).

        Raises:
            PublishError: denied, unreachable, or throttled at every try.
        """
        found: dict[Cell, Held] = {}
        step = QUERIES // len(_STATISTICS)
        by_minute: dict[int, list[Cell]] = {}
        for cell in cells:
            by_minute.setdefault(cell.at_s, []).append(cell)
        for minute, group in by_minute.items():
            for first in range(0, len(group), step):
                found.update(self._held(minute, group[first : first + step]))
        return found

    def _held(self, minute: int, cells: Sequence[Cell]) -> dict[Cell, Held]:
        found = dict.fromkeys((f"{letter}{place}" for place in range(len(cells)) for letter in _STATISTICS), 0.0)
        for result in self._results(minute, cells):
            found[result["Id"]] += sum(result["Values"])
        return {cell: Held(round(found[f"n{place}"]), found[f"s{place}"]) for place, cell in enumerate(cells)}

    def _results(self, minute: int, cells: Sequence[Cell]) -> list[dict[str, Any]]:
        asked = {
            "MetricDataQueries": [
                {"Id": f"{letter}{place}", "MetricStat": self._asked(cell, statistic)}
                for place, cell in enumerate(cells)
                for letter, statistic in _STATISTICS.items()
            ],
            "StartTime": datetime.fromtimestamp(minute, tz=UTC),
            "EndTime": datetime.fromtimestamp(minute + RESOLUTION_S, tz=UTC),
        }
        for attempt in range(self._retries.tries):
            try:
                pages = list(self._client.get_paginator("get_metric_data").paginate(**asked))
            except BOTO_ERRORS as error:
                if outcome(error) not in {"not done", "unknown"} or self._last_try(attempt):
                    raise self._fault(error, "GetMetricData") from None
            else:
                results = [result for page in pages for result in page["MetricDataResults"]]
                if all(result["StatusCode"] != "InternalError" for result in results):
                    return results
            self._pause(attempt)
        raise PublishError("GetMetricData did not read all of it at any try", where=f"namespace {self.namespace}")

    def _asked(self, cell: Cell, statistic: str) -> dict[str, Any]:
        dimensions = [{"Name": name, "Value": value} for name, value in cell.dimensions]
        metric = {"Namespace": self.namespace, "MetricName": cell.metric, "Dimensions": dimensions}
        return {"Metric": metric, "Period": RESOLUTION_S, "Stat": statistic}

    def _fault(self, error: BaseException, operation: str) -> PublishError:
        return fault_of(error, Asked(operation=operation, where=f"namespace {self.namespace}"))
