"""The hook between rounds, such as publishing, while nothing is measured; its wait is limited.

Invariant: the hook is called only between rounds and at the end, one call at a time, and gets the
time by which it must return; the run waits no longer. Whatever the hook does or raises, records and
the outcome stay the same.

Python cannot end a thread from outside. So a late call continues during the next turns: the
manifest notes this, no other call begins before its return, and the process does not wait for it at
the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tandem.bench.load.interrupt import StopSignal

ROUND_WAIT_S = 10.0  # longest delay of a measurement between two rounds
END_WAIT_S = 300.0  # at the end of a run only its command waits
# at the end of an interrupted run: Kubernetes gives 30 s, the requests used 5
INTERRUPT_WAIT_S = 10.0

RoundHook = Callable[[int, float], None]
"""Function of the number of the ended round, from 0, and the time limit for its return, on the
monotonic clock.

At the end of a run it gets the last round's number, possibly again: files are final only then.
"""


@dataclass(slots=True)
class RoundCallback:
    """Caller of the hook between rounds.

    Args:
        call: the hook; None for no call.
        note: takes a sentence for the manifest.
        stop: ends the wait for a call between rounds.
    """

    call: RoundHook | None
    note: Callable[[str], None]
    stop: StopSignal
    _has_failed: bool = field(default=False, init=False)
    _future: asyncio.Future[BaseException | None] | None = field(default=None, init=False)

    async def call_between(self, number: int) -> None:
        """Call the hook after the end of round `number`; wait at most `ROUND_WAIT_S`."""
        is_done = await self._call_and_wait(number, ROUND_WAIT_S, stoppable=True)
        if not is_done and not self.stop.is_requested:
            delay = f"{ROUND_WAIT_S:g} s after a round"
            self.note(f"the hook between rounds was still busy {delay}: later turns ran beside it")

    async def call_at_end(self, number: int, *, after_interrupt: bool) -> None:
        """Call the hook once the run has ended and its files are final.

        Args:
            number: of the last round that began.
            after_interrupt: whether the run was interrupted; the wait is then short.
        """
        wait_s = INTERRUPT_WAIT_S if after_interrupt else END_WAIT_S
        if not await self._call_and_wait(number, wait_s, stoppable=not after_interrupt):
            self.note(f"the hook at the end was still busy after {wait_s:g} s and was left alone")

    async def _call_and_wait(self, number: int, wait_s: float, *, stoppable: bool) -> bool:
        """Call the hook once its previous call has returned; return whether it returned in time."""
        end_s = time.monotonic() + wait_s
        if self.call is None:
            return True
        if not await self._wait_until_free(end_s, stoppable=stoppable):
            return False
        if time.monotonic() < end_s:
            self._future = asyncio.get_running_loop().create_future()
            arguments = (self.call, number, end_s, self._future)
            threading.Thread(
                target=_run_call, args=arguments, name="between-rounds", daemon=True
            ).start()
        return await self._wait_until_free(end_s, stoppable=stoppable)

    async def _wait_until_free(self, end_s: float, *, stoppable: bool) -> bool:
        if self._future is None:
            return True
        remaining_s = max(end_s - time.monotonic(), 0.0)
        sleep = self.stop.sleep if stoppable else asyncio.sleep
        timer = asyncio.create_task(sleep(remaining_s))
        await asyncio.wait((self._future, timer), return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        if not self._future.done():
            return False
        error = self._future.result()
        self._future = None
        if error is not None and not self._has_failed:  # later failures may differ only in a time
            self._has_failed = True
            self.note(
                f"the hook between rounds failed ({type(error).__name__}: {error}); records"
                " are whole"
            )
        return True


def _run_call(
    call: RoundHook, number: int, end_s: float, future: asyncio.Future[BaseException | None]
) -> None:
    error: BaseException | None = None
    try:
        call(number, end_s)
    except BaseException as exception:  # noqa: BLE001 - SystemExit of the hook must not end the run
        error = exception
    with contextlib.suppress(RuntimeError):  # the run has already ended
        future.get_loop().call_soon_threadsafe(future.set_result, error)
