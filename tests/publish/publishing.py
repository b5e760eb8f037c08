"""A run made of numbers, what its publishing must leave in CloudWatch, and how that is read back."""

from __future__ import annotations

import dataclasses
import random
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from rehearsal.aws.endpoint import AwsEndpoint
from tandem.publish import (
    Datum,
    Delays,
    Publisher,
    PublishError,
    Report,
    Retries,
    Round,
    Rounds,
    Run,
    Services,
    Settings,
    Slice,
    publish,
)

ACCOUNT = "111122223333"
CLASSES, CONCURRENCIES, ARMS = ("chat", "code", "math"), (1, 8), ("baseline", "draft-k7")
QUICK = Settings(
    retries=Retries(tries=6, first_s=0.001, most_s=0.002), delays=Delays(recent_s=0.2, hours_s=0.2, days_s=0.2),
    patience_s=3.0, glance_s=0.0, look_s=0.1,
)  # fmt: skip
Series = tuple[str, tuple[tuple[str, str], ...], int]


def minute_now(back_s: float = 0.0) -> int:
    return int(time.time() - back_s) // 60 * 60


@dataclass(kw_only=True)
class Made:
    """Rounds of one run, from a seed; the same seed gives the same ones.

    Args:
        seed: of all values.
        experiment: the dimension.
        number: of rounds.
        first_s: minute of the first one.
        step_s: from a round's minute to the next one's; 0 puts all into one.
        gaps: values of chunk_gap_ms in each cell.
    """

    folder: Path
    seed: int = 0
    experiment: str = "post"
    number: int = 2
    classes: tuple[str, ...] = CLASSES
    concurrencies: tuple[int, ...] = CONCURRENCIES
    first_s: int = field(default_factory=lambda: minute_now(900))
    step_s: int = 60
    gaps: int = 40

    def rounds(self, without: frozenset[int] = frozenset()) -> Iterator[Round]:
        for number in sorted(set(range(self.number)) - without):
            yield Round(number=number, complete=True, data=tuple(self.data(number)), records=(self.records(number),))

    def data(self, number: int) -> Iterator[Datum]:
        chance = random.Random(f"{self.seed} {number}")  # noqa: S311 - no secret
        at_s = self.first_s + number * self.step_s
        for arm in ARMS:
            for class_ in self.classes:
                for concurrency in self.concurrencies:
                    dimensions = (("Experiment", self.experiment), ("Variant", arm), ("PromptClass", class_),
                                  ("Concurrency", str(concurrency)))  # fmt: skip
                    for name, count in (("ttft_ms", 20), ("chunk_gap_ms", self.gaps), ("requests", 1)):
                        values = [chance.lognormvariate(4, 1) for _ in range(count)]
                        yield Datum(metric=name, dimensions=dimensions, at_s=at_s, values=values)

    def records(self, number: int) -> Slice:
        path = self.folder / "records.jsonl"
        lines = [f'{{"round":{one}}}\n'.encode() for one in range(self.number)]
        if not path.exists():
            path.write_bytes(b"".join(lines))
        first = sum(map(len, lines[:number]))
        return Slice(path=path, first=first, end=first + len(lines[number]))


@dataclass(kw_only=True)
class Published:
    """One run on its way to the endpoint."""

    endpoint: AwsEndpoint
    url: str
    bucket: str
    folder: Path
    environment: str = field(default_factory=lambda: f"e{uuid.uuid4().hex[:8]}")
    run_id: str = "20261121t090000z-0badcafe"
    settings: Settings = QUICK
    made_of: Made = field(init=False)

    def made(self, **how: Any) -> Published:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "manifest.json").write_text("{}")
        self.made_of = Made(folder=self.folder, **how)
        (self.folder / "records.jsonl").unlink(missing_ok=True)
        self.made_of.records(0)
        return self

    @property
    def run(self) -> Run:
        return Run(
            environment=self.environment, account=ACCOUNT, region=self.endpoint.region,
            experiment=self.made_of.experiment, variants=ARMS, run_id=self.run_id, bucket=self.bucket,
            command="tandem bench publish OUT --env X",
        )  # fmt: skip

    def services(self) -> Services:
        return services(self.url, self.endpoint.region)

    def publisher(self, **how: Any) -> Publisher:
        how = {"settings": self.settings, "services": None, **how}
        given = how.pop("services") or self.services()
        return Publisher(self.run, self.folder, given, **how)

    def publish(self, rounds: Rounds | None = None, **how: Any) -> Report:
        with self.publisher(**how) as publisher:
            return publish(publisher, rounds or self.made_of.rounds, [self.folder / "manifest.json"])

    def elsewhere(self, folder: Path) -> Published:
        """The same run in another folder."""
        other = dataclasses.replace(self, folder=folder)
        folder.mkdir(exist_ok=True)
        (folder / "manifest.json").write_text("{}")
        other.made_of = dataclasses.replace(self.made_of, folder=folder)
        return other

    def expected(self) -> dict[Series, int]:
        """How many values each minute of each series must hold."""
        counts: dict[Series, int] = {}
        for one in self.made_of.rounds():
            for datum in one.data:
                key = (datum.metric, datum.dimensions, datum.at_s // 60 * 60)
                counts[key] = counts.get(key, 0) + len(datum.values)
        return counts

    def counts(self) -> dict[Series, int]:
        """How many values CloudWatch holds of them."""
        return {key: round(value) for key, value in read(self.endpoint, self.run.namespace, self.expected()).items()}

    def objects(self) -> list[str]:
        """Objects of the run, below its prefix."""
        found = self.endpoint.client("s3").list_objects_v2(Bucket=self.bucket, Prefix=self.run.prefix)
        return [row["Key"].removeprefix(self.run.prefix) for row in found.get("Contents", ())]


def read(
    endpoint: AwsEndpoint, namespace: str, series: Iterable[Series], stat: str = "SampleCount"
) -> dict[Series, float]:
    """One statistic of minutes of series, as a reader of CloudWatch gets it."""
    client, found = endpoint.client("cloudwatch"), {}
    for at_s in {key[2] for key in series}:
        keys = [key for key in series if key[2] == at_s]
        queries = [
            {
                "Id": f"q{place}",
                "MetricStat": {
                    "Metric": {"Namespace": namespace, "MetricName": name,
                               "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions]},
                    "Period": 60, "Stat": stat,
                },
            }
            for place, (name, dimensions, _) in enumerate(keys)
        ]  # fmt: skip
        when = datetime.fromtimestamp(at_s, tz=UTC), datetime.fromtimestamp(at_s + 60, tz=UTC)
        answer = client.get_metric_data(MetricDataQueries=queries, StartTime=when[0], EndTime=when[1])
        for key, result in zip(keys, answer["MetricDataResults"], strict=True):
            found[key] = sum(result["Values"])
    return found


@cache
def services(url: str, region: str, access_key: str = ACCOUNT) -> Services:
    """Clients with the attempts of `connect`, of an endpoint that is named here."""

    def client(service: str, attempts: int) -> Any:
        config = Config(
            s3={"addressing_style": "path"}, retries={"mode": "standard", "total_max_attempts": attempts}, proxies={},
            connect_timeout=5, read_timeout=10,
        )  # fmt: skip
        return boto3.client(
            service, endpoint_url=url, region_name=region, aws_access_key_id=access_key,
            aws_secret_access_key="local", config=config,  # noqa: S106 - any will do
        )  # fmt: skip

    return Services(client("cloudwatch", 1), client("s3", 3), client("sts", 3))


def main() -> None:
    """Publish in a process of its own, which may be killed."""
    url, region, bucket, environment, folder, *numbers = sys.argv[1:]
    endpoint = AwsEndpoint(account=ACCOUNT, region=region)
    one = Published(endpoint=endpoint, url=url, bucket=bucket, folder=Path(folder), environment=environment)
    seed, number, first_s, step_s, gaps = map(int, numbers)
    one.made_of = Made(folder=Path(folder), seed=seed, number=number, first_s=first_s, step_s=step_s, gaps=gaps)
    try:
        sys.exit(0 if one.publish().whole else 3)
    except PublishError as fault:
        sys.exit(fault.code)


if __name__ == "__main__":
    main()
