"""From a reply to a line on disk, away from the event loop.

Invariant: one thread parses and writes, so records never mingle; a worker waits for its record before it asks again.
Parsing some hundred events takes milliseconds, which on the event loop would be added to the times of every other
stream; in a thread it costs them no more than a switch of the interpreter.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tandem.bench.record import RecordWriter, RequestRecord

SWITCH_S = 0.0005  # how long the parsing thread may hold the interpreter; 5 ms is Python's own


WriteRecord = Callable[[Callable[[], RequestRecord]], Awaitable[RequestRecord]]
"""Writes the record that its argument makes and returns it; both happen in the thread.

It raises ExternalError where the disk took no more.
"""


@contextmanager
def open_recorder(path: Path) -> Iterator[WriteRecord]:
    """Open the records of a run, to be appended to.

    Raises:
        ExternalError: the file cannot be opened.
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
