"""From a reply to a line on disk, away from the event loop.

Invariant: one thread parses and writes, so records never mingle; a worker waits for its record before it asks again.
Parsing some hundred events takes milliseconds, which on the event loop would be added to the times of every other
stream; in a thread it costs them no more than a switch of the interpreter.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tandem.bench.answer import ServerAnswer, parse_answer
from tandem.bench.completion_request import CompletionRequest
from tandem.bench.fault import ExternalBenchError
from tandem.bench.plan import PlanItem, PlanTurn
from tandem.bench.record import RecordWriter, RequestRecord, split_chunks
from tandem.bench.reply import ServerReply
from tandem.bench.suites.suite import check_content

SWITCH_S = 0.0005  # how long the parsing thread may hold the interpreter; 5 ms is Python's own
GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """What was asked, and its place in the run.

    Args:
        arm: of whom. turn, item: the plan's.
        worker: which of the concurrent ones.
        request: what went over the wire.
        models: names the server may give its model.
        due_s: open loop: when it was due, on the monotonic clock.
        attempts: 2 where an interrupted run had asked it before.
        placement, start: of the server, as the record has them.
    """

    arm: str
    turn: PlanTurn
    item: PlanItem
    worker: int
    request: CompletionRequest
    models: frozenset[str]
    due_s: float | None = None
    attempts: int = 1
    placement: str | None = None
    start: str | None = None


class RunRecorder:
    """Appends the records of a run to one file; used inside `open_recorder`."""

    def __init__(self, writer: RecordWriter) -> None:
        self._writer = writer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="records")

    async def write_record(self, sent_request: SentRequest, reply: ServerReply) -> RequestRecord:
        """Make the record of one request, write it and return it.

        Raises:
            ExternalBenchError: the disk took no more.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._write_record, sent_request, reply)

    def _write_record(self, sent_request: SentRequest, reply: ServerReply) -> RequestRecord:
        request_record = build_record(
            sent_request, reply, parse_answer(reply, sent_request.request, sent_request.models)
        )
        try:
            self._writer.write(request_record)
        except ExternalBenchError as error:
            free_bytes = shutil.disk_usage(self._writer.path.parent).free
            raise ExternalBenchError(
                f"{error.problem}; {free_bytes / GIB:.2f} GiB are free there", where=error.where, change=error.change
            ) from error
        return request_record

    def close(self) -> None:
        """Wait for the record under way, then end."""
        self._thread.shutdown()


@contextmanager
def open_recorder(path: Path) -> Iterator[RunRecorder]:
    """Open the records of a run, to be appended to.

    Raises:
        ExternalBenchError: the file cannot be opened.
    """
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        with RecordWriter(path) as writer:
            recorder = RunRecorder(writer)
            try:
                yield recorder
            finally:
                recorder.close()
    finally:
        sys.setswitchinterval(interval_s)


def build_record(sent_request: SentRequest, reply: ServerReply, answer: ServerAnswer) -> RequestRecord:
    """Return the record of one request; pure."""
    turn, item = sent_request.turn, sent_request.item
    prompt, load = item.entry.prompt, turn.block.load
    return RequestRecord(
        request_id=sent_request.request.request_id, arm=sent_request.arm, class_=prompt.class_, suite=item.entry.suite,
        prompt_id=prompt.id, round=turn.round, repeat=item.repeat, slot=turn.slot,
        concurrency=load.concurrency, rate_per_s=load.rate_per_s, worker=sent_request.worker, due_s=sent_request.due_s,
        start_s=reply.start_s, headers_s=reply.headers_s, end_s=reply.end_s, **split_chunks(answer.chunks),
        prompt_tokens=answer.prompt_tokens, cached_tokens=answer.cached_tokens,
        completion_tokens=answer.completion_tokens, counted_by=answer.counted_by,
        text=answer.text, reasoning=answer.reasoning, token_ids=answer.token_ids, logprobs=answer.logprobs,
        model=answer.model, status=reply.status, finish_reason=answer.finish_reason,
        error=answer.error, error_detail=answer.error_detail,  # which know what the reply ended with
        attempts=sent_request.attempts, reconnected=reply.reconnects, retry_after_s=reply.retry_after_s,
        placement=sent_request.placement, start=sent_request.start,
        content=None if answer.error else check_content(
            prompt, answer.text, answer.finish_reason, reasoning=answer.reasoning
        ),
    )  # fmt: skip
