"""Stopping a run: asked once, seen by everybody who waits, and never by raising through a request.

Invariant: after `ask` nothing new is sent; what is running ends by itself within the grace or is cut and recorded as
`interrupted`. A second signal ends the process at once: every record before it is on disk already.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Literal

from tandem.errors import INTERRUPT_EXIT_CODE, TandemError

GRACE_S = 5.0  # of the 30 s that Kubernetes leaves between SIGTERM and SIGKILL

StopReason = Literal["interrupted", "failed"]


class StopSignal:
    """Whether and why a run shall end before its plan does."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.fault: TandemError | None = None
        self._event = asyncio.Event()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_requested(self) -> bool:
        """Whether nothing new may be sent."""
        return self._event.is_set()

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Add what cuts requests in flight once the grace is over."""
        self._callbacks.append(callback)

    def request(self, reason: StopReason, fault: TandemError | None = None, *, grace_s: float = GRACE_S) -> None:
        """Ask the run to end; the first who asks says why."""
        if self.is_requested:
            return
        self.reason, self.fault = reason, fault
        self._event.set()
        for callback in self._callbacks:
            asyncio.get_running_loop().call_later(grace_s, callback)

    async def sleep(self, seconds: float) -> None:
        """Sleep and never less, or return at once when the run is asked to end.

        uvloop rounds what it waits to whole milliseconds, so a timer may ring half a millisecond early.
        """
        end_s = time.monotonic() + seconds
        while not self.is_requested and (remaining_s := end_s - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._event.wait(), remaining_s)


@contextlib.contextmanager
def catch_signals(stop: StopSignal, notify: Callable[[str], None]) -> Iterator[None]:
    """Let SIGINT and SIGTERM ask `stop`; the second one ends the process. Only a main thread hears signals.

    What heard them before hears them again afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def stop_run() -> None:
        if stop.reason == "interrupted":
            with contextlib.suppress(OSError):  # nobody may read any more
                sys.stderr.write("ended at once; what is recorded is kept\n")
                sys.stderr.flush()
            os._exit(INTERRUPT_EXIT_CODE)
        stop.request("interrupted")
        stop.reason = "interrupted"  # also where a fault was faster: who presses twice wants out
        notify(f"stopping: nothing more is sent, what is running has {GRACE_S:.0f} s; once more ends at once")

    earlier_handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for signal_number in earlier_handlers:
        loop.add_signal_handler(signal_number, stop_run)
    try:
        yield
    finally:
        for signal_number, handler in earlier_handlers.items():
            loop.remove_signal_handler(signal_number)
            signal.signal(signal_number, handler or signal.SIG_DFL)
