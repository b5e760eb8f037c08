"""The recorder: it turns replies into lines on disk, outside the event loop.

Invariant: one thread parses and writes, so records never mix; a worker waits for its record before
the next request. Parsing some hundred events takes milliseconds; on the event loop, parsing would
add them to the times of every other stream; in a thread, it costs the streams at most one switch of
the interpreter.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tandem.bench.records.record import RecordWriter, RequestRecord

SWITCH_S = 0.0005  # longest hold of the interpreter by the parsing thread; Python's default is 5 ms


WriteRecord = Callable[[Callable[[], RequestRecord]], Awaitable[RequestRecord]]
"""Function that writes the record its argument makes, and returns the record; both happen in the
thread.

The function raises ExternalError if the write fails.
"""


@contextmanager
def open_recorder(path: Path) -> Iterator[WriteRecord]:
    """Open the records file of a run for appending.

    Raises:
        ExternalError: the file cannot be opened.
    """
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        with (
            RecordWriter(path) as writer,
            ThreadPoolExecutor(1, thread_name_prefix="records") as thread,
        ):

            def write(complete: Callable[[], RequestRecord]) -> RequestRecord:
                record = complete()
                writer.write(record)
                return record

            async def write_record(complete: Callable[[], RequestRecord]) -> RequestRecord:
                return await asyncio.get_running_loop().run_in_executor(thread, write, complete)

            yield write_record
    finally:
        sys.setswitchinterval(interval_s)
