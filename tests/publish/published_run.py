"""A run made of numbers, how it is published and killed, and what of it is in CloudWatch then."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import numpy as np
from botocore.config import Config

from rehearsal.aws.endpoint import AwsEndpoint
from tandem.cloudwatch_metrics import RoundFigures, SeriesMinute
from tandem.publish.clients import PublishClients
from tandem.publish.publisher import PublishReport, RunDestination, RunPublisher

ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = "111122223333"
ARMS = ("baseline", "draft-k7")
END_S = 120
SeriesKey = tuple[str, tuple[tuple[str, str], ...], int]


def minute_now(back_s: float = 0.0) -> int:
    return int(time.time() - back_s) // 60 * 60


def make_results_bucket(endpoint: AwsEndpoint, clients: dict[str, Any]) -> str:
    """Make a bucket at an endpoint without values.

    Those of another run in the same minute would be of the same series, and the endpoint looks
    through all of them at each request.
    """
    endpoint.reset()
    name = f"results-{uuid.uuid4().hex[:10]}"
    where = {"LocationConstraint": endpoint.region}
    clients[endpoint.url].create_bucket(Bucket=name, CreateBucketConfiguration=where)
    return name


@dataclass(kw_only=True)
class PublishedRun:
    """One run on its way to the endpoint: rounds from a seed, in a folder and an environment of its
    own.

    Args:
        count: of rounds.
        first_s: minute of the first one.
        step_s: from a round's begin to the next one's; 0 puts all into one minute.
        gaps: values of chunk_gap_ms in each cell.
    """

    endpoint: AwsEndpoint
    url: str
    bucket: str
    folder: Path
    environment: str = field(default_factory=lambda: f"e{uuid.uuid4().hex[:8]}")
    run_id: str = "20261121t090000z-0badcafe"
    seed: int = 0
    experiment: str = "post"
    count: int = 2
    classes: tuple[str, ...] = ("chat", "code", "math")
    concurrencies: tuple[int, ...] = (1, 8)
    first_s: int = field(default_factory=lambda: minute_now(900))
    step_s: int = 60
    gaps: int = 40

    def made(self, **changes: Any) -> PublishedRun:
        """Change what the rounds are, and write the folder."""
        for name, value in changes.items():
            setattr(self, name, value)
        self.folder.mkdir(exist_ok=True)
        (self.folder / "manifest.json").write_text("{}")
        (self.folder / "records.jsonl").write_text(
            "".join(f'{{"round":{number}}}\n' for number in range(self.count))
        )
        return self

    def rounds(self, skip_numbers: frozenset[int] = frozenset()) -> Iterator[RoundFigures]:
        for number in sorted(set(range(self.count)) - skip_numbers):
            first, end = (
                sum(len(f'{{"round":{n}}}\n') for n in range(stop)) for stop in (number, number + 1)
            )
            yield RoundFigures(
                number=number,
                is_complete=True,
                values=dict(self.series(number)),
                ranges=((first, end),),
            )

    def series(self, number: int) -> Iterator[tuple[SeriesMinute, np.ndarray]]:
        chance = random.Random(f"{self.seed} {number}")  # noqa: S311 - no secret
        minute = (self.first_s + number * self.step_s) // 60 * 60
        for arm, class_, concurrency in itertools.product(ARMS, self.classes, self.concurrencies):
            dimensions = (
                ("Experiment", self.experiment),
                ("Variant", arm),
                ("PromptClass", class_),
                ("Concurrency", str(concurrency)),
            )
            for name, count in (("ttft_ms", 20), ("chunk_gap_ms", self.gaps), ("requests", 1)):
                values = np.array([chance.lognormvariate(4, 1) for _ in range(count)])
                yield SeriesMinute(dimensions, name, minute), values

    @property
    def destination(self) -> RunDestination:
        return RunDestination(
            environment=self.environment,
            account=ACCOUNT,
            experiment=self.experiment,
            variants=ARMS,
            run_id=self.run_id,
            bucket=self.bucket,
        )

    def clients(self) -> PublishClients:
        return build_clients(self.url, self.endpoint.region)

    def publish(
        self,
        rounds: Iterable[RoundFigures] | None = None,
        clients: PublishClients | None = None,
        end_s: float = float("inf"),
    ) -> PublishReport:
        publisher = RunPublisher(
            self.destination, self.folder, clients or self.clients(), end_s=end_s
        )
        return publisher.publish(
            self.rounds(publisher.published_rounds) if rounds is None else rounds,
            [self.folder / "manifest.json"],
        )

    def expected(self) -> dict[SeriesKey, int]:
        """How many values each minute of each series must hold."""
        counts: dict[SeriesKey, int] = {}
        for figures in self.rounds():
            for (dimensions, metric, at_s), values in figures.values.items():
                counts[metric, dimensions, at_s] = counts.get((metric, dimensions, at_s), 0) + len(
                    values
                )
        return counts

    def counts(self) -> dict[SeriesKey, int]:
        """How many values CloudWatch holds of them."""
        read = read_statistic(self.endpoint, self.destination.namespace, self.expected())
        return {key: round(value) for key, value in read.items()}

    def lost(self) -> int:
        """How many minutes of series hold fewer values than they must."""
        counts = self.counts()
        return sum(counts[key] < count for key, count in self.expected().items())

    def duplicates(self) -> int:
        """How many batches, of one class and round each, CloudWatch counts too often."""
        counts = self.counts()
        cell = (ARMS[0], str(self.concurrencies[0]))
        return sum(
            counts[key] - count
            for key, count in self.expected().items()
            if key[0] == "requests" and (key[1][1][1], key[1][3][1]) == cell
        )

    def objects(self) -> list[str]:
        """Objects of the run, below its prefix."""
        prefix = self.destination.prefix
        listing = self.endpoint.client("s3").list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        return [row["Key"].removeprefix(prefix) for row in listing.get("Contents", ())]

    def kill(self, proxy: Any, when: str, number: int, operation: str | None = None) -> bool:
        """Publish in a process of its own and kill it at the so many-th request; whether it still
        ran then.

        Args:
            when: `asked`: before the request is sent on; `done`: before its answer leaves.
        """
        names = ("url", "bucket", "environment", "seed", "count", "first_s", "step_s", "gaps")
        arguments = {name: getattr(self, name) for name in names} | {"folder": str(self.folder)}
        process = subprocess.Popen(
            [sys.executable, __file__, self.endpoint.region, json.dumps(arguments)],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),
                "AWS_EC2_METADATA_DISABLED": "true",
            },
        )
        numbers = itertools.count(1)
        lock = threading.Lock()

        def watch(moment: str, request: Any) -> None:
            with lock:
                is_match = moment == when and operation in {None, request.operation}
                if is_match and next(numbers) == number:
                    process.kill()

        try:
            proxy.moment_callback = watch
            return process.wait(END_S) == -signal.SIGKILL
        finally:
            proxy.moment_callback = None
            # the endpoint ends what the killed process had asked for
            until_s = time.monotonic() + 30
            while (
                any(request.ended_s is None for request in proxy.log) and time.monotonic() < until_s
            ):
                time.sleep(0.005)


def read_statistic(
    endpoint: AwsEndpoint,
    namespace: str,
    keys: Iterable[SeriesKey],
    statistic: str = "SampleCount",
    period_s: int = 60,
) -> dict[SeriesKey, float]:
    """One statistic of minutes of series, as a reader of CloudWatch gets it; a minute without
    values is 0."""
    client = endpoint.client("cloudwatch")
    values = {}
    for at_s, minute_keys in itertools.groupby(
        sorted(keys, key=lambda key: key[2]), key=lambda key: key[2]
    ):
        numbered_keys = {f"q{index}": key for index, key in enumerate(minute_keys)}
        queries = [
            {
                "Id": query_id,
                "MetricStat": {
                    "Metric": {
                        "Namespace": namespace,
                        "MetricName": name,
                        "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions],
                    },
                    "Period": period_s,
                    "Stat": statistic,
                },
            }
            for query_id, (name, dimensions, _) in numbered_keys.items()
        ]
        start, end = (datetime.fromtimestamp(at_s + more_s, tz=UTC) for more_s in (0, period_s))
        answer = client.get_metric_data(MetricDataQueries=queries, StartTime=start, EndTime=end)
        for result in answer["MetricDataResults"]:
            values[numbered_keys[result["Id"]]] = sum(result["Values"])
    return values


@cache
def build_clients(url: str, region: str, access_key: str = ACCOUNT) -> PublishClients:
    """Clients as `connect` makes them, of an endpoint that is named here."""
    config = Config(
        s3={"addressing_style": "path"},
        retries={"mode": "standard", "total_max_attempts": 3},
        proxies={},
        connect_timeout=5,
        read_timeout=10,
    )
    return PublishClients(
        *(
            boto3.client(
                service,
                endpoint_url=url,
                region_name=region,
                aws_access_key_id=access_key,
                aws_secret_access_key="local",  # noqa: S106 - any will do
                config=config,
            )
            for service in ("cloudwatch", "s3", "sts")
        )
    )


if __name__ == "__main__":  # in a process of its own, which may be killed
    fields = json.loads(sys.argv[2])
    fields["folder"] = Path(fields["folder"])
    PublishedRun(endpoint=AwsEndpoint(account=ACCOUNT, region=sys.argv[1]), **fields).publish()
