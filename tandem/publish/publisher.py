"""Publishing a run: its figures to CloudWatch exactly once, its records to S3.

Invariant: a batch is sent again only where it certainly did not arrive, or where CloudWatch had shown it by now if it
had; whatever ends this, killed or not, the next publish goes on from the journal. Figures of a round that is not
recorded whole are never sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from tandem.metrics import ALL_VALUES, BENCH_DIMENSIONS
from tandem.publish.batch import Batch, Cell, Part, Round, batches
from tandem.publish.cloudwatch import CloudWatch
from tandem.publish.fault import PublishError
from tandem.publish.journal import SETTLED, Journal, Line, State, utc
from tandem.publish.results import Results, joined, opened
from tandem.publish.run import Report, Run, Settings
from tandem.publish.services import Services, require_account
from tandem.publish.settle import DAY_S, HOUR_S, Doubt, Rounds, Settling

OLDEST_S, NEWEST_S = 14 * DAY_S, 2 * HOUR_S  # PutMetricData takes no older time, and none so far ahead
MARGIN_S = 300  # of both: clocks differ, and a request takes its time
FRESH_S = 60.0  # an intent older than this is written anew before a request is sent
MOST_UNKNOWN = 3  # batches in doubt in turn: CloudWatch is not well, and every further one would have to be settled
MOST_LOOK_S = 30.0  # between two looks at what is in doubt
GAUGE = "unpublished_rounds"
NOTHING = Batch(number=0, of=1, class_="", parts=())  # of a round without any figure


class Publisher:
    """Publishes one run; a context manager that holds the folder's journal.

    Args:
        run: what and where to.
        folder: of the run.
        services: boto3's clients.
        settings: how long it tries.
        tell: takes what the operator reads meanwhile.
        now: seconds since 1970.
        sleep: waits so many seconds.

    Attributes:
        report: what it did so far.
        until_s: when it must be done, on the monotonic clock; what is not done by then is left to a later call.
    """

    def __init__(  # noqa: PLR0913 - a clock and a wait that tests may give
        self,
        run: Run,
        folder: Path,
        services: Services,
        *,
        settings: Settings | None = None,
        tell: Callable[[str], None] = lambda _: None,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.run, self.report, self.until_s = run, Report(), float("inf")
        self._folder, self._services, self._settings = folder, services, settings or Settings()
        self._tell, self._now, self._sleep = tell, now, sleep
        self._cloudwatch = CloudWatch(services.cloudwatch, run.namespace, self._settings.retries, sleep, self.over)
        self._results = Results(services.s3, run.bucket, run.prefix)

    def __enter__(self) -> Self:
        """Take the journal, check the account, take over what another copy of the folder did.

        Raises:
            PublishError: another process publishes it; the credentials are another account's, or none; S3 failed.
        """
        self._journal = Journal(self._folder, self.run.environment, self.run.experiment, self.run.run_id)
        try:
            require_account(self._services, self.run.account, self.run.environment)
            self._take_over()
        except BaseException:
            self._journal.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let another process publish."""
        self._journal.close()

    def _take_over(self) -> None:
        """Learn what another copy of the folder sent, and let it know what this one did."""
        for number, size in self._results.journals().items():
            if size == sum(len(line.encode()) for line in self._journal.lines(number)) and self.settled(number):
                continue
            self._journal.merge(self._results.journal(number))
            self._mirror(number)

    def over(self) -> bool:
        """Return whether no time is left."""
        return time.monotonic() >= self.until_s

    def settled(self, number: int) -> bool:
        """Return whether nothing of a round is left to be sent."""
        return self._journal.settled(number)

    def done(self) -> frozenset[int]:
        """Return the rounds that need not be read any more: nothing is left to be sent, and their records are in S3."""
        return frozenset(number for number in self._journal.rounds() if self._journal.stored(number))

    def publish(self, one: Round) -> None:
        """Store a round's records and send its figures, as far as they were not yet.

        What is in doubt is left to `settle`, and what the time does not allow to a later call.

        Raises:
            PublishError: AWS refused, or is out of reach; what was done is in the journal.
        """
        self.keep_records(one)
        if not one.complete:
            self.report.notes.append(
                f"round {one.number} is not recorded whole, so no figure of it is sent: go on with the run "
                "(tandem bench run --resume), then publish again"
            )
        elif not self.settled(one.number):
            made = batches(one.data)
            if not self._given_up(one.number, made):
                self._send_all(one.number, made)
            self._ended(one.number)

    def _send_all(self, number: int, made: Sequence[Batch]) -> None:
        unknown = 0
        for batch in made:
            last = self._journal.last(number, batch.number)
            if last is not None and last.state != "unsent":
                continue
            if self.over():
                self.report.left.append(f"round {number} was not sent whole in the time that there was")
                return
            unknown = unknown + 1 if self._send(number, batch) == "unknown" else 0
            if unknown == MOST_UNKNOWN:
                raise PublishError(f"CloudWatch did not say of {unknown} batches in turn whether it took them",
                                   where=f"namespace {self.run.namespace}")  # fmt: skip
        if not made:
            self._write(number, NOTHING, "sent")

    def _given_up(self, number: int, made: Sequence[Batch]) -> bool:
        """Return whether the journal knows this round otherwise; then what is left of it is given up."""
        known = self._journal.batches(number)
        same = {(batch.of, batch.number, batch.digest) for batch in made}
        if all((line.of, line.batch, line.digest) in same for line in known):
            return False
        said = (
            f"round {number} was published in part from other records, or by another version: what was not sent then "
            f"is not sent any more; its records are in S3, and {self._journal.path} says what was sent"
        )
        for index in range(known[0].of):
            last = self._journal.last(number, index)
            if last is None or last.state not in SETTLED:
                line = self._line(number, Batch(number=index, of=known[0].of, class_="", parts=()), "unsettled", said)
                self._journal.append([line])
        self.report.lost.append(said)
        return True

    def _ended(self, number: int) -> None:
        if self.settled(number) and number not in self.report.rounds:
            self.report.rounds.append(number)
        if self._journal.batches(number):
            self._mirror(number)

    def _send(self, number: int, batch: Batch) -> str:
        """Send one batch; return how it ended."""
        hindrance = self._hindrance(number, batch)
        if hindrance is not None:
            return hindrance
        written_s = -float("inf")

        def intend() -> None:
            nonlocal written_s
            if self._now() - written_s > FRESH_S:
                written_s = self._now()
                self._intend(number, batch)

        ended = self._cloudwatch.put(batch, intend)
        if ended.fault is None:
            self._write(number, batch, "sent")
            self.report.sent += 1
        elif ended.state == "invalid":
            self._refuse(number, batch, ended.fault.problem)
        elif ended.state == "unsent":
            self._write(number, batch, "unsent")
            self._mirror_if_possible(number)
            raise ended.fault
        else:
            self._tell(f"batch {batch.number + 1} of {batch.of} of round {number} is in doubt: {ended.fault.problem}")
        return ended.state

    def _intend(self, number: int, batch: Batch) -> None:
        """Announce a request, here and in S3; where the latter fails nothing is sent, and that is written down."""
        self._write(number, batch, "intent")
        try:
            self._mirror(number)
        except PublishError:
            self._write(number, batch, "unsent")
            raise

    def _hindrance(self, number: int, batch: Batch) -> str | None:
        """Write down what keeps a batch from being sent at all; None where nothing does."""
        refusal, now_s = batch.refusal(), self._now()
        if refusal is not None:
            self._refuse(number, batch, refusal)
            return "refused"
        if batch.first_s < now_s - OLDEST_S + MARGIN_S:
            self._write(number, batch, "skipped")
            said = (
                f"round {number} has figures older than two weeks, which CloudWatch takes no more; S3 has its records"
            )
            self.report.lost += [said] * (said not in self.report.lost)
            return "skipped"
        if batch.last_s > now_s + NEWEST_S - MARGIN_S:
            said = (
                f"round {number} has figures of {utc(batch.last_s)}, too far ahead of this machine's clock "
                f"({utc(now_s)}), which is wrong or was when they were recorded: set it, and publish again; CloudWatch "
                f"takes them from {utc(batch.last_s - NEWEST_S + MARGIN_S)} on"
            )
            self.report.left += [said] * (said not in self.report.left)
            return "early"
        return None

    def _refuse(self, number: int, batch: Batch, why: str) -> None:
        self._write(number, batch, "refused", why)
        self.report.lost.append(
            f"class {batch.class_!r} of round {number} is not in CloudWatch, the others are ({why}); S3 has its "
            "records: give the class another name in the suite"
        )

    def settle(self, rounds: Rounds) -> None:
        """Find out what became of the batches in doubt; send again those that did not arrive.

        Args:
            rounds: gives the rounds of the run.

        Raises:
            PublishError: AWS refused, or is out of reach.
        """
        doubtful = len(self._journal.in_doubt())
        if doubtful and self._settings.patience_s <= 0:
            self.report.left.append(f"in doubt is what became of {doubtful} requests: `{self.run.command}` settles it")
        if not doubtful or self._settings.patience_s <= 0:
            return
        settling = Settling(self._journal, self._cloudwatch, self._settings.delays, rounds)
        ends_s = self._now() + self._settings.patience_s
        for attempt in count():
            doubts = settling.look(self._now())
            for doubt in doubts:
                self._act(doubt)
            if not self._waited([doubt for doubt in doubts if doubt.verdict == "wait"], ends_s, attempt):
                break
        self.report.left += [self._doubtful(line, settling) for line in self._journal.in_doubt()]

    def _doubtful(self, line: Line, settling: Settling) -> str:
        which = f"batch {line.batch + 1} of {line.of} of round {line.round} is in doubt"
        if not settling.knows(line):
            return f"{which}, and this folder's records are not those it was made of: publish from the run's own folder"
        return (
            f"{which}: it was sent and not answered, and CloudWatch does not show it; from "
            f"{utc(settling.from_s(line))} on `{self.run.command}` settles it"
        )

    def _act(self, doubt: Doubt) -> None:
        """Write down what became of a batch, or send it again."""
        if doubt.verdict == "wait":
            return
        if doubt.verdict == "absent":
            self._send(doubt.round, doubt.batch)
        else:
            self._write(doubt.round, doubt.batch, doubt.verdict, doubt.why or None)
        if doubt.verdict == "unsettled":
            self.report.lost.append(doubt.why)
        self._ended(doubt.round)

    def _waited(self, left: Sequence[Doubt], ends_s: float, attempt: int) -> bool:
        """Wait before the next look; whether there is one."""
        if not left:
            return False
        if min(doubt.from_s for doubt in left) > ends_s:
            ends_s += self._settings.glance_s - self._settings.patience_s
        most_s = min(ends_s - self._now(), self.until_s - time.monotonic())
        if most_s <= 0:
            return False
        pause_s = min(self._settings.look_s * 1.5**attempt, MOST_LOOK_S, most_s)
        self._tell(f"in doubt: {len(left)}, CloudWatch does not show it yet; looking again in {pause_s:.0f} s")
        self._sleep(pause_s)
        return True

    def gauge(self, complete: Iterable[int]) -> None:
        """Send how many rounds are recorded whole and not in CloudWatch; at most once, and no failure of it counts.

        Args:
            complete: numbers of the rounds before the present one that are recorded whole.
        """
        behind = float(sum(not self.settled(number) for number in complete))
        minute = int(self._now()) // 60 * 60
        every = dict.fromkeys(BENCH_DIMENSIONS, ALL_VALUES) | {BENCH_DIMENSIONS[0]: self.run.experiment}
        cells = [Cell(tuple((every | {BENCH_DIMENSIONS[1]: arm}).items()), GAUGE, minute) for arm in self.run.variants]
        data = [Part(cell=cell, values=(behind,), counts=(1,)).as_datum() for cell in cells]
        ended = self._cloudwatch.put_data(data, lambda: None)
        if ended.fault is not None:
            self._tell(f"{GAUGE} was not sent: {ended.fault}")

    def keep_records(self, one: Round) -> None:
        """Store a round's raw records, unless they are there.

        Raises:
            PublishError: S3 refused, or is out of reach.
        """
        with joined(one.records) as (file, digest):
            last = self._journal.last(one.number, -1)
            if last is not None and last.digest == digest:
                return
            self._results.keep(f"records/round-{one.number:05d}.jsonl", file)
        records = Batch(number=-1, of=0, class_="", parts=())
        self._journal.append([self._line(one.number, records, "stored", digest=digest)])
        self.report.stored += 1

    def keep_files(self, files: Sequence[Path]) -> None:
        """Store the run's other files, the last one last.

        Raises:
            PublishError: S3 refused, or is out of reach.
        """
        for path in files:
            with opened(path) as file:
                self._results.keep(path.name, file)
            self.report.stored += 1

    def _write(self, number: int, batch: Batch, state: State, why: str | None = None) -> None:
        self._journal.append([self._line(number, batch, state, why)])

    def _line(
        self, number: int, batch: Batch, state: State, why: str | None = None, *, digest: str | None = None
    ) -> Line:
        return Line(
            environment=self.run.environment, experiment=self.run.experiment, run=self.run.run_id, round=number,
            batch=batch.number, of=batch.of, digest=digest or batch.digest, state=state, at=utc(self._now()), why=why,
        )  # fmt: skip

    def _mirror(self, number: int) -> None:
        self._results.mirror(number, self._journal.lines(number))

    def _mirror_if_possible(self, number: int) -> None:
        try:
            self._mirror(number)
        except PublishError as fault:
            self._tell(f"the journal's copy was not written: {fault}")
