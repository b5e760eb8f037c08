"""A measurement from Python, for a caller with an event loop and for one without.

Invariant: both forms measure as `tandem bench run` does and leave the same folder; whatever ends a
measurement, what it recorded is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal
from pathlib import Path
from typing import Any, TextIO

import uvloop

from tandem.bench.figures.request_table import RequestTable, read_request_table
from tandem.bench.load.run import MeasurementRun, RunOutcome
from tandem.bench.plan.run_options import RunOptions
from tandem.bench.plan.settings import complete_options
from tandem.errors import InputError


def measure_servers(
    options: RunOptions, folder: Path | str, *, resume: bool = False, progress: TextIO | None = None
) -> RequestTable:
    """Measure servers and return their requests; returns when the run has ended.

    >>> options = RunOptions(
    ...     servers={"plain": plain_url, "draft": draft_url},
    ...     model="Qwen/Qwen3-32B",
    ...     classes=("chat",),
    ...     max_tokens=16,
    ...     rounds=1,
    ... )
    >>> table = measure_servers(options, "first-run")
    >>> table.arms
    ('plain', 'draft', 'plain#2')

    Args:
        options: what to measure.
        folder: a new folder for the run.
        resume: go on with the run in `folder`, which had the same options.
        progress: stream for the plan and the progress, such as sys.stderr; None for none.

    Raises:
        InputError: the run cannot begin, because of the options, the folder or a server; or an
            event loop is running in this thread, where `measure_servers_async` is the form to use.
        ExternalError: a server does not answer, or the disk takes no more.
        KeyboardInterrupt: the run was interrupted, in a main thread by Ctrl-C or SIGTERM.
    """
    run = _create_run(options, folder, resume=resume, progress=progress)
    _raise_end(run_until_end(run))
    return read_request_table(run.folder)


async def measure_servers_async(
    options: RunOptions, folder: Path | str, *, resume: bool = False, progress: TextIO | None = None
) -> RequestTable:
    """Measure servers and return their requests; `measure_servers` for a caller in an event loop.

    >>> import asyncio
    >>> table = asyncio.run(measure_servers_async(options, "second-run"))
    >>> table.failed.sum()
    np.int64(0)

    Other work of the event loop delays the times of chunks, and the run notes how late the loop
    was. A cancelled measurement is an interrupted run: it can be resumed.

    Args:
        options, folder, resume, progress: as for `measure_servers`.

    Raises:
        InputError: as for `measure_servers`.
        ExternalError: as for `measure_servers`.
        KeyboardInterrupt: as for `measure_servers`.
    """
    run = _create_run(options, folder, resume=resume, progress=progress)
    _raise_end(await run.run())
    return await asyncio.to_thread(read_request_table, run.folder)


def run_until_end(run: MeasurementRun) -> RunOutcome:
    """Execute a run in an event loop of its own, and return its end.

    Raises:
        InputError: an event loop is running in this thread, or the run cannot begin.
        ExternalError: as for `MeasurementRun.run`.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # no loop is running, as it should be
        handler = signal.getsignal(signal.SIGINT)
        try:
            return uvloop.run(_run_without_interrupt_after(run))
        finally:
            _handle_interrupt(handler)
    raise InputError(
        "an event loop is running in this thread, and measure_servers would block it",
        change="write `await measure_servers_async(...)` instead",
    )


async def _run_without_interrupt_after(run: MeasurementRun) -> RunOutcome:
    """Execute a run; a Ctrl-C after it would break into the end of the loop's threads."""
    try:
        return await run.run()
    finally:
        _handle_interrupt(signal.SIG_IGN)


def _handle_interrupt(handler: Any) -> None:
    with contextlib.suppress(ValueError):  # not the main thread: it gets no signals
        # None is a handler that Python did not set, and cannot set again
        signal.signal(signal.SIGINT, handler or signal.SIG_DFL)


def _create_run(
    options: RunOptions, folder: Path | str, *, resume: bool, progress: TextIO | None
) -> MeasurementRun:
    out = io.StringIO() if progress is None else progress
    return MeasurementRun(
        settings=complete_options(options), folder=Path(folder), resume=resume, out=out
    )


def _raise_end(outcome: RunOutcome) -> None:
    """Raise what ended a run before its end.

    Raises:
        KeyboardInterrupt: it was interrupted.
        TandemError: the fault that ended it.
    """
    if outcome.reason == "interrupted":
        raise KeyboardInterrupt
    if outcome.fault is not None:
        raise outcome.fault
