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

from tandem.bench.answer import Answer, read
from tandem.bench.fault import WorldError
from tandem.bench.plan import Item, Turn
from tandem.bench.record import Record, Writer
from tandem.bench.reply import Reply
from tandem.bench.suites.suite import check_content
from tandem.bench.wire import Ask

SWITCH_S = 0.0005  # how long the parsing thread may hold the interpreter; 5 ms is Python's own
GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked, and its place in the run.

    Args:
        arm: of whom. turn, item: the plan's.
        worker: which of the concurrent ones.
        ask: what went over the wire.
        models: names the server may give its model.
        due_s: open loop: when it was due, on the monotonic clock.
        attempts: 2 where an interrupted run had asked it before.
        placement, start: of the server, as the record has them.
    """

    arm: str
    turn: Turn
    item: Item
    worker: int
    ask: Ask
    models: frozenset[str]
    due_s: float | None = None
    attempts: int = 1
    placement: str | None = None
    start: str | None = None


class Recorder:
    """Appends the records of a run to one file; used inside `recording`."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="records")

    async def keep(self, asked: Asked, reply: Reply) -> Record:
        """Make the record of one request, write it and return it.

        Raises:
            WorldError: the disk took no more.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._keep, asked, reply)

    def _keep(self, asked: Asked, reply: Reply) -> Record:
        made = record(asked, reply, read(reply, asked.ask, asked.models))
        try:
            self._writer.write(made)
        except WorldError as error:
            free = shutil.disk_usage(self._writer.path.parent).free
            raise WorldError(
                f"{error.problem}; {free / GIB:.2f} GiB are free there", where=error.where, change=error.change
            ) from error
        return made

    def close(self) -> None:
        """Wait for the record under way, then end."""
        self._thread.shutdown()


@contextmanager
def recording(path: Path) -> Iterator[Recorder]:
    """Open the records of a run, to be appended to.

    Raises:
        WorldError: the file cannot be opened.
    """
    switch = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        with Writer(path) as writer:
            recorder = Recorder(writer)
            try:
                yield recorder
            finally:
                recorder.close()
    finally:
        sys.setswitchinterval(switch)


def record(asked: Asked, reply: Reply, answer: Answer) -> Record:
    """Return the record of one request; pure."""
    turn, item = asked.turn, asked.item
    prompt, load = item.entry.prompt, turn.block.load
    return Record(
        request_id=asked.ask.request_id, arm=asked.arm, class_=prompt.class_, suite=item.entry.suite,
        prompt_id=prompt.id, round=turn.round, repeat=item.repeat, slot=turn.slot,
        concurrency=load.concurrency, rate_per_s=load.rate_per_s, worker=asked.worker, due_s=asked.due_s,
        start_s=reply.start_s, headers_s=reply.headers_s, end_s=reply.end_s, chunks=answer.chunks,
        prompt_tokens=answer.prompt_tokens, cached_tokens=answer.cached_tokens,
        completion_tokens=answer.completion_tokens, counted_by=answer.counted_by,
        text=answer.text, reasoning=answer.reasoning, token_ids=answer.token_ids, logprobs=answer.logprobs,
        model=answer.model, status=reply.status, finish_reason=answer.finish_reason,
        error=answer.error, error_detail=answer.error_detail,  # which know what the reply ended with
        attempts=asked.attempts, reconnected=reply.reconnected, retry_after_s=reply.retry_after_s,
        placement=asked.placement, start=asked.start,
        content=None if answer.error else check_content(
            prompt, answer.text, answer.finish_reason, reasoning=answer.reasoning
        ),
    )  # fmt: skip
