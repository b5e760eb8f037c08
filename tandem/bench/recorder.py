"""From a reply to a line on disk, away from the event loop.

Invariant: one thread parses and writes, so records never mingle; a worker waits for its record before it asks again.
Parsing some hundred events takes milliseconds, which on the event loop would be added to the times of every other
stream; in a thread it costs them no more than a switch of the interpreter.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tandem.bench.answer import parse_answer
from tandem.bench.completion_request import CompletionRequest
from tandem.bench.record import RecordWriter, RequestRecord, split_chunks
from tandem.bench.reply import ServerReply
from tandem.bench.suites.prompt import Prompt
from tandem.bench.suites.suite import check_content

SWITCH_S = 0.0005  # how long the parsing thread may hold the interpreter; 5 ms is Python's own


WriteRecord = Callable[[Callable[[], RequestRecord]], Awaitable[RequestRecord]]
"""Writes the record that its argument makes and returns it; both happen in the thread.

It raises ExternalBenchError where the disk took no more.
"""


@contextmanager
def open_recorder(path: Path) -> Iterator[WriteRecord]:
    """Open the records of a run, to be appended to.

    Raises:
        ExternalBenchError: the file cannot be opened.
    """
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        with RecordWriter(path) as writer, ThreadPoolExecutor(1, thread_name_prefix="records") as thread:

            def write(complete: Callable[[], RequestRecord]) -> RequestRecord:
                record = complete()
                writer.write(record)
                return record

            async def write_record(complete: Callable[[], RequestRecord]) -> RequestRecord:
                return await asyncio.get_running_loop().run_in_executor(thread, write, complete)

            yield write_record
    finally:
        sys.setswitchinterval(interval_s)


def complete_record(
    draft: RequestRecord, prompt: Prompt, request: CompletionRequest, models: Collection[str], reply: ServerReply
) -> RequestRecord:
    """Return the record of one request; pure.

    Args:
        draft: the request's place in the run.
        prompt: what was asked, for the content check.
        request: what went over the wire.
        models: names the server may give its model.
        reply: what came back; the answer's error knows what it ended with.
    """
    answer = parse_answer(reply, request, models)
    fields = msgspec.structs.asdict(answer) | split_chunks(answer.chunks)
    del fields["chunks"]
    if not answer.error:
        fields["content"] = check_content(prompt, answer.text, answer.finish_reason, reasoning=answer.reasoning)
    return msgspec.structs.replace(
        draft, **fields, start_s=reply.start_s, headers_s=reply.headers_s, end_s=reply.end_s, status=reply.status,
        reconnected=reply.reconnects, retry_after_s=reply.retry_after_s,
    )  # fmt: skip
