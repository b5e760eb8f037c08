"""The stop of a run: one request that every waiting task sees; it never raises.

Invariant: after `StopSignal.request` nothing new is sent; a request in flight ends within the grace
period, or is cut and recorded as `interrupted`. A second signal ends the process at once: every
earlier record is already on disk.
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

GRACE_S = 5.0  # of the 30 s that Kubernetes gives between SIGTERM and SIGKILL

StopReason = Literal["interrupted", "failed"]


class StopSignal:
    """Request to end a run before the end of its plan, with the reason."""

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
        """Add a function that cuts requests in flight after the grace period."""
        self._callbacks.append(callback)

    def request(
        self, reason: StopReason, fault: TandemError | None = None, *, grace_s: float = GRACE_S
    ) -> None:
        """Request the end of the run; the first request gives the reason."""
        if self.is_requested:
            return
        self.reason = reason
        self.fault = fault
        self._event.set()
        for callback in self._callbacks:
            asyncio.get_running_loop().call_later(grace_s, callback)

    async def sleep(self, seconds: float) -> None:
        """Sleep for at least `seconds`, or return at once when the end of the run is requested.

        uvloop rounds a wait to whole milliseconds, so a timer may fire half a millisecond early.
        """
        end_s = time.monotonic() + seconds
        while not self.is_requested and (remaining_s := end_s - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._event.wait(), remaining_s)


@contextlib.contextmanager
def catch_signals(stop: StopSignal, notify: Callable[[str], None]) -> Iterator[None]:
    """Let SIGINT and SIGTERM request `stop`; a second one ends the process. For a main thread only.

    The earlier signal handlers are restored afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def stop_run() -> None:
        if stop.reason == "interrupted":
            with contextlib.suppress(OSError):  # the reader may be gone
                sys.stderr.write("ended at once; what is recorded is kept\n")
                sys.stderr.flush()
            os._exit(INTERRUPT_EXIT_CODE)
        stop.request("interrupted")
        # also after an earlier fault: a second signal must end the process
        stop.reason = "interrupted"
        notify(
            f"stopping: no more requests are sent, those running have {GRACE_S:.0f} s; stop again"
            " to end at once"
        )

    earlier_handlers = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    }
    for signal_number in earlier_handlers:
        loop.add_signal_handler(signal_number, stop_run)
    try:
        yield
    finally:
        for signal_number, handler in earlier_handlers.items():
            loop.remove_signal_handler(signal_number)
            signal.signal(signal_number, handler or signal.SIG_DFL)
