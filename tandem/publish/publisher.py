"""Publish a run at least once: a round's records, its figures, then its marker to S3.

Invariant: a round with a marker is neither read nor sent again. Each batch that CloudWatch took is
logged in the folder at once, so a kill counts at most one batch twice and loses none. A round that
is not recorded whole sends no figures. A fault of CloudWatch keeps no record out of S3. The publish
that completes reports the figures that CloudWatch never takes: until then their round has no
marker, and the log has the sentence.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Literal

from botocore.exceptions import ClientError

from tandem.aws.faults import explain_fault
from tandem.cloudwatch_metrics import (
    ALL_VALUES,
    BENCH,
    BENCH_DIMENSIONS,
    MINUTE_S,
    SIMULATED_NAMESPACE,
    RoundFigures,
    SeriesMinute,
    format_namespace,
)
from tandem.errors import ExternalError, TandemError, convert_os_errors
from tandem.publish.batch import MetricBatch, MetricDatum, build_batches
from tandem.publish.clients import PublishClients, ResultStore, require_account, translate_errors

# limits of PutMetricData: oldest time, and time ahead
MAX_AGE_S = 14 * 86400
MAX_AHEAD_S = 2 * 3600
MAX_UTC_S = 253_402_300_799  # the last second of the year 9999, the latest of `datetime`
MARGIN_S = 300  # of both: clocks differ, and a request takes time
GAUGE = "unpublished_rounds"
SENT_FILE = "published.jsonl"
BatchState = Literal["sent", "refused", "skipped"]


@dataclass(frozen=True, kw_only=True)
class RunDestination:
    """Destination of a run.

    Args:
        environment, account: of the environment.
        experiment: the dimension.
        variants: every arm, as in the dimension.
        run_id: a pure function of the manifest.
        bucket: of the environment.
        is_simulated: whether an arm is a simulated server.
    """

    environment: str
    account: str
    experiment: str
    variants: tuple[str, ...]
    run_id: str
    bucket: str
    is_simulated: bool = False

    @property
    def namespace(self) -> str:
        """CloudWatch namespace; simulated servers have a separate one."""
        if self.is_simulated:
            return SIMULATED_NAMESPACE.format(environment=self.environment)
        return format_namespace(BENCH, self.environment, "")

    @property
    def prefix(self) -> str:
        """Prefix of the run's objects in the bucket."""
        return f"results/{self.experiment}/{self.run_id}/"


@dataclass(slots=True, kw_only=True)
class PublishReport:
    """The result of one publish.

    Args:
        rounds: numbers of the rounds that got their marker.
        sent: number of batches that CloudWatch took.
        stored: number of objects that S3 took, without markers.
        lost: sentences about figures that never reach CloudWatch: refused classes, times too old.
            Each is given once.
        left: sentences about work for a later publish.
        notes: sentences that ask for no action.
    """

    rounds: list[int] = field(default_factory=list)
    sent: int = 0
    stored: int = 0
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether every figure was sent."""
        return not self.lost and not self.left


class BatchLog:
    """The finished batches of a run, by round and digest: a JSON line each in the run's folder.

    A line is written right after the request, and its batch is not sent again. A line that a kill
    cut short does not count. `losses` has, by round and digest, the sentence on a batch that
    CloudWatch never takes, "" for any other.

    Args:
        folder: of the run.
        environment: a folder may be published to several.

    Raises:
        ExternalError: the file cannot be read or written.
    """

    def __init__(self, folder: Path, environment: str) -> None:
        self._path = folder / SENT_FILE
        self._environment = environment
        self.losses: dict[tuple[int, str], str] = {}
        with self._open() as file:
            file.seek(0)
            content = file.read()
            if content and not content.endswith(b"\n"):
                file.write(b"\n")
        for line in content.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # a line that was cut short
                entry = json.loads(line)
                if entry["environment"] == self._environment:
                    self.losses[entry["round"], entry["digest"]] = entry["lost"]

    @contextlib.contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        change = (
            "make room, or give this user the right to write there; without it figures count twice"
        )
        problem = "what was sent cannot be written down"
        with (
            convert_os_errors(problem, self._path, change, ExternalError),
            self._path.open("a+b") as file,
        ):
            yield file

    def add(self, round_number: int, digest: str, state: BatchState, loss: str) -> None:
        """Log a batch.

        Args:
            round_number: of the batch.
            digest: of the batch.
            state: `sent`: CloudWatch took the batch; `refused`: CloudWatch never will; `skipped`:
                too old.
            loss: sentence on a batch that was not sent.

        Raises:
            ExternalError: the line cannot be written.
        """
        line = {
            "environment": self._environment,
            "round": round_number,
            "digest": digest,
            "state": state,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "lost": loss,
        }
        with self._open() as file:
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self.losses[round_number, digest] = loss


class RunPublisher:
    """Publisher of the rounds of a run that have no marker, and of the run's other files.

    Args:
        destination: of the run: namespace, bucket and prefix.
        folder: of the run.
        clients: boto3's.
        end_s: limit on the monotonic clock; a later publish sends the batches that did not begin by
            then.

    Raises:
        TandemError: the credentials are another account's, or AWS or the folder cannot be used.
    """

    def __init__(
        self,
        destination: RunDestination,
        folder: Path,
        clients: PublishClients,
        *,
        end_s: float = float("inf"),
    ) -> None:
        require_account(clients, destination.account, destination.environment)
        self.report = PublishReport()
        self._destination = destination
        self._folder = folder
        self._end_s = end_s
        self._cloudwatch = clients.cloudwatch
        self._store = ResultStore(clients.s3, destination.bucket, destination.prefix)
        self._marker_prefix = f"published/{destination.environment}/round-"
        self._sizes = self._store.list_sizes()
        self._batch_log = BatchLog(folder, destination.environment)
        self._late_markers: dict[str, BytesIO] = {}

    @property
    def published_rounds(self) -> frozenset[int]:
        """Numbers of the rounds that had a marker when this publish began."""
        matches = [
            re.fullmatch(rf"{self._marker_prefix}(\d{{5,}})\.json", name) for name in self._sizes
        ]
        return frozenset(int(match[1]) for match in matches if match)

    def publish(self, rounds: Iterable[RoundFigures], files: Sequence[Path]) -> PublishReport:
        """Publish rounds, then the other files.

        Args:
            rounds: in their order, without `published_rounds`.
            files: the run's other files, the last one last.

        Raises:
            TandemError: the first fault; everything that could be stored is stored.
        """
        faults: list[TandemError] = []
        complete_rounds: list[int] = []
        for figures in rounds:
            if figures.is_complete:
                complete_rounds.append(figures.number)
            if self._is_late():
                self.report.left.append(
                    f"rounds from {figures.number} on were not sent in the time that there was"
                )
                break
            try:
                self._store_records(figures)
                if not faults:
                    self._publish_figures(figures)
            except TandemError as fault:
                faults.append(fault)
        if self.report.sent:
            self._send_gauge(len(set(complete_rounds[:-1]).difference(self.report.rounds)))
        for path in files:
            try:
                self._store.store_ranges(path.name, path, [(0, path.stat().st_size)])
                self.report.stored += 1
            except TandemError as fault:
                faults.append(fault)
        if faults:
            raise faults[0]
        self._store_late_markers()
        return self.report

    def _store_late_markers(self) -> None:
        """Store the markers of rounds with losses last, so that a later publish reports them."""
        for name, marker in self._late_markers.items():
            self._store.store(name, marker)

    def _is_late(self) -> bool:
        return time.monotonic() >= self._end_s

    def _store_records(self, figures: RoundFigures) -> None:
        """Store a round's raw records unless S3 has them; as they only grow, size is enough."""
        name = f"records/round-{figures.number:05d}.jsonl"
        if self._sizes.get(name) != sum(end - first for first, end in figures.ranges):
            self._store.store_ranges(name, self._folder / "records.jsonl", figures.ranges)
            self.report.stored += 1

    def _publish_figures(self, figures: RoundFigures) -> None:
        """Send the batches of a round that are not logged as sent, then its marker."""
        number = figures.number
        if not figures.is_complete:
            self.report.notes.append(
                f"round {number} is not recorded whole, so no figure of it is sent: go on with the"
                " run (tandem bench run --resume), then publish again"
            )
            return
        last_s = max((minute.at_s for minute in figures.values), default=0)
        now_s = time.time()
        if last_s > now_s + MAX_AHEAD_S - MARGIN_S:
            self.report.left.append(
                f"round {number} has figures of {_format_utc(last_s)}, too far ahead of this"
                f" machine's clock ({_format_utc(now_s)}), which is wrong or was when they were"
                " recorded: set it, and publish again; CloudWatch takes them from"
                f" {_format_utc(last_s - MAX_AHEAD_S + MARGIN_S)} on"
            )
            return
        batches = build_batches(figures.values)
        losses = self._batch_log.losses
        for batch in batches:
            if (number, batch.digest) in losses:
                continue
            if self._is_late():
                self.report.left.append(
                    f"round {number} was not sent whole in the time that there was"
                )
                return
            self._batch_log.add(number, batch.digest, *self._send_batch(number, batch))
        content = {"round": number, "batches": len(batches), "at": _format_utc(time.time())}
        name = f"{self._marker_prefix}{number:05d}.json"
        marker = BytesIO(json.dumps(content).encode())
        lost = list(
            dict.fromkeys(filter(None, (losses[number, batch.digest] for batch in batches)))
        )
        if lost:
            self.report.lost += lost
            self._late_markers[name] = marker
        else:
            self._store.store(name, marker)
        self.report.rounds.append(number)

    def _send_batch(self, number: int, batch: MetricBatch) -> tuple[BatchState, str]:
        """Send a batch; return its state, and a sentence if CloudWatch never takes it."""
        if min(datum.minute.at_s for datum in batch.data) < time.time() - MAX_AGE_S + MARGIN_S:
            when = "older than two weeks, which CloudWatch takes no more"
            return "skipped", f"round {number} has figures {when}; S3 has its records"
        refusal = self._put_data(batch.data)
        if refusal is not None:
            place = f"class {batch.data[0].minute.prompt_class!r} of round {number}"
            advice = "S3 has its records: give the class another name in the suite"
            return "refused", f"{place} is not in CloudWatch, the others are ({refusal}); {advice}"
        self.report.sent += 1
        return "sent", ""

    def _put_data(self, data: Sequence[MetricDatum]) -> str | None:
        """Call PutMetricData; return why CloudWatch will never take these data, else None."""
        namespace = self._destination.namespace
        with translate_errors("PutMetricData", f"namespace {namespace}"):
            try:
                self._cloudwatch.put_metric_data(
                    Namespace=namespace, MetricData=[datum.as_request() for datum in data]
                )
            except ClientError as error:
                kind, problem = explain_fault(error, "PutMetricData")
                if kind != "invalid":
                    raise
                return problem
        return None

    def _send_gauge(self, round_count: int) -> None:
        """Send the number of whole rounds missing in CloudWatch; a failure is a note."""
        minute = int(time.time()) // MINUTE_S * MINUTE_S
        dimensions = dict.fromkeys(BENCH_DIMENSIONS, ALL_VALUES) | {
            BENCH_DIMENSIONS[0]: self._destination.experiment
        }
        arms = [
            tuple((dimensions | {BENCH_DIMENSIONS[1]: arm}).items())
            for arm in self._destination.variants
        ]
        gauge_data = [
            MetricDatum(
                minute=SeriesMinute(arm, GAUGE, minute), values=(float(round_count),), counts=(1,)
            )
            for arm in arms
        ]
        try:
            self._put_data(gauge_data)
        except TandemError as fault:
            self.report.notes.append(f"{GAUGE} was not sent: {fault.problem}")


def _format_utc(at_s: float) -> str:
    return datetime.fromtimestamp(min(at_s, MAX_UTC_S), tz=UTC).isoformat(timespec="milliseconds")
