"""What somebody else does between rounds, such as publishing: begun when nothing is measured, not waited for long.

Invariant: it is begun between rounds and at the end alone, one at a time, and told by when it must have returned; the
run waits no longer than that. Whatever it does, raises or fails to end, records and the outcome stay the same.

No thread can be ended from outside. So one that does not keep its time goes on beside the next turns; that is noted in
the manifest, nothing more is begun until it has returned, and the process does not wait for it when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tandem.bench.host import HostWatch
from tandem.bench.interrupt import Stop
from tandem.bench.plan import Turn

PAUSE_S = 10.0  # most that a measurement is held up between two rounds
LAST_S = 300.0  # at the end of a run nothing is held up but its command
CUT_S = 10.0  # at the end of an interrupted one: of the 30 s that Kubernetes leaves, the requests took 5

OnRound = Callable[[int, float], None]
"""Takes the number of the round that ended, from 0, and when it must have returned, on the monotonic clock.

At the end of a run it takes the last round's number, which it may have had before: files are final only then.
"""


@dataclass(slots=True, kw_only=True)
class Between:
    """Calls what is done between rounds.

    Args:
        call: what is called; None for nothing.
        note: takes a sentence for the manifest.
        stop: asked to end, the run waits no longer for a call between rounds.
        watch: leaves out what this process takes meanwhile.
        asked: whether the present round has asked anything yet; the run sets it.
    """

    call: OnRound | None
    note: Callable[[str], None]
    stop: Stop
    watch: HostWatch
    asked: bool = False
    _round: int = field(default=0, init=False)
    _busy: asyncio.Future[BaseException | None] | None = field(default=None, init=False)
    _noted: set[str] = field(default_factory=set, init=False)

    async def before(self, turn: Turn) -> bool:
        """Call where `turn` is the first of a round and the one before asked anything; return whether it did so.

        At most `PAUSE_S` later measuring goes on.
        """
        ended, self._round = self._round, turn.round
        if self.call is None or turn.round == ended or not self.asked:
            return False
        self.asked = False
        with self.watch.apart():
            await self._pause(ended)
        return True

    async def _pause(self, number: int) -> None:
        ends_s = time.monotonic() + PAUSE_S
        if await self._call(number, ends_s, stoppable=True) or self.stop.asked:
            return
        self._once(
            "late",
            f"what is called between rounds was still busy {PAUSE_S:g} s after round {number + 1}: later turns ran "
            "beside it",
        )

    async def end(self, number: int, *, cut: bool) -> None:
        """Call once the run has ended and its files are final.

        Args:
            number: the last round that was begun.
            cut: the run was interrupted, so that whoever did it waits.
        """
        most_s = CUT_S if cut else LAST_S
        if not await self._call(number, time.monotonic() + most_s, stoppable=not cut):
            self._once("left", f"what is called at the end was still busy after {most_s:g} s and was left alone")

    async def _call(self, number: int, ends_s: float, *, stoppable: bool) -> bool:
        """Call once nothing is busy any more; return whether it returned in time."""
        if self.call is None:
            return True
        if not await self._free(ends_s, stoppable=stoppable):
            return False
        if time.monotonic() < ends_s:
            self._busy = self._begun(self.call, number, ends_s)
        return await self._free(ends_s, stoppable=stoppable)

    async def _free(self, ends_s: float, *, stoppable: bool) -> bool:
        busy = self._busy
        if busy is None:
            return True
        left_s = max(ends_s - time.monotonic(), 0.0)
        over = asyncio.create_task(self.stop.sleep(left_s) if stoppable else asyncio.sleep(left_s))
        await asyncio.wait((busy, over), return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if not busy.done():
            return False
        self._busy, error = None, busy.result()
        if error is not None:
            self._once(
                "failed", f"what is called between rounds failed ({type(error).__name__}: {error}); records are whole"
            )
        return True

    def _begun(self, call: OnRound, number: int, ends_s: float) -> asyncio.Future[BaseException | None]:
        loop = asyncio.get_running_loop()
        returned: asyncio.Future[BaseException | None] = loop.create_future()

        def run() -> None:
            error: BaseException | None = None
            try:
                call(number, ends_s)
            except BaseException as raised:  # noqa: BLE001 - SystemExit of a careless callee ends no run either
                error = raised
            with contextlib.suppress(RuntimeError):  # the run has ended without it
                loop.call_soon_threadsafe(returned.set_result, error)

        threading.Thread(target=run, name="between-rounds", daemon=True).start()
        return returned

    def _once(self, kind: str, sentence: str) -> None:
        if kind not in self._noted:
            self._noted.add(kind)
            self.note(sentence)
