"""The two loops that send a turn's requests.

Invariant: closed: `concurrency` workers, each of which asks, writes its record, and only then asks again. Open:
requests start when they are due, whatever became of those before; how late each really started stands in its record
(start_s - due_s), so a client that cannot keep up shows. Nothing is asked twice here; the client alone asks again where
a reused connection dies (`client.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tandem.bench.client import Client
from tandem.bench.fault import BenchError
from tandem.bench.gate import Gate
from tandem.bench.interrupt import Stop
from tandem.bench.manifest import Offers
from tandem.bench.plan import Item, Turn
from tandem.bench.record import Record
from tandem.bench.recorder import Asked, Recorder
from tandem.bench.resume import AGAIN
from tandem.bench.settings import Settings
from tandem.bench.wire import Ask

STAGGER_S = 0.02  # between the first requests of two workers: their connections do not all begin in one moment
MOST_RETRY_AFTER_S = 60.0  # a worker waits as told, but no longer: a page of a proxy may ask for hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One arm as the loops see it.

    Args:
        name: its name.
        client: asks it.
        offers: the extras that are asked of it.
        models: names it may give its model.
        gate: shut while the arm is down.
        placement: which part of a host its server runs on; None where nobody said.
        start: which start of its server's process answers; None where its page does not tell.
    """

    name: str
    client: Client
    offers: Offers
    models: frozenset[str]
    gate: Gate
    placement: str | None = None
    start: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loops:
    """What both loops share.

    Args:
        settings: how requests are made.
        recorder: where records go.
        stop: ends the loops early.
        attempts: request id to how often an interrupted run asked it before.
        done: told of every record.
    """

    settings: Settings
    recorder: Recorder
    stop: Stop
    attempts: dict[str, int]
    done: Callable[[Record], None]

    async def run(self, arm: Arm, turn: Turn, items: Sequence[Item]) -> None:
        """Send what of a turn is still missing to one arm; return when all of it is recorded, or the run is to end."""
        if turn.arrivals_s:
            await self._open(arm, turn, items)
        else:
            await self._closed(arm, turn, items)

    async def _closed(self, arm: Arm, turn: Turn, items: Sequence[Item]) -> None:
        left = deque(items)

        async def work(worker: int) -> None:
            await self.stop.sleep(worker * STAGGER_S)
            while left:
                await arm.gate.passed()
                if self.stop.asked or not left:
                    return
                record = await self._one(arm, turn, left.popleft(), worker)
                await self.stop.sleep(min(record.retry_after_s or 0.0, MOST_RETRY_AFTER_S) if record else 0.0)

        workers = min(turn.block.load.concurrency or 1, len(items))
        async with asyncio.TaskGroup() as group:
            for worker in range(workers):
                group.create_task(work(worker))

    async def _open(self, arm: Arm, turn: Turn, items: Sequence[Item]) -> None:
        offsets = dict(zip((item.index for item in turn.items), turn.arrivals_s, strict=True))
        first = min((offsets[item.index] for item in items), default=0.0)
        began = time.monotonic() - first  # what a run before this one has sent is not waited for again

        async def one(worker: int, item: Item, due_s: float) -> None:
            await arm.gate.passed()
            if not self.stop.asked:
                await self._one(arm, turn, item, worker, due_s)

        async with asyncio.TaskGroup() as group:
            for worker, item in enumerate(items):
                due_s = began + offsets[item.index]
                await self.stop.sleep_until(due_s)
                if self.stop.asked:
                    return
                group.create_task(one(worker, item, due_s))

    async def _one(self, arm: Arm, turn: Turn, item: Item, worker: int, due_s: float | None = None) -> Record | None:
        base = turn.request_id(arm.name, item)
        before = self.attempts.get(base, 0)
        ask = self.ask(arm, item, f"{base}{AGAIN}{before + 1}" if before else base)
        asked = Asked(
            arm=arm.name, turn=turn, item=item, worker=worker, ask=ask, models=arm.models, due_s=due_s,
            attempts=before + 1, placement=arm.placement, start=arm.start,
        )  # fmt: skip
        try:
            record = await self.recorder.keep(asked, await arm.client.ask(ask, self.settings.time_outs))
        except BenchError as fault:
            self.stop.ask("failed", fault, grace_s=0)
            return None
        self.done(record)
        arm.gate.count(record.error)
        return record

    def ask(self, arm: Arm, item: Item, request_id: str) -> Ask:
        """Return one request; for two arms it differs in nothing but what their servers offer."""
        entry, chat = item.entry, self.settings.api == "chat"
        return Ask(
            request_id=request_id,
            messages=entry.prompt.as_messages() if chat else None,
            prompt=None if chat else entry.prompt.as_text(),
            max_tokens=entry.max_tokens, temperature=self.settings.temperature, seed=item.seed,
            thinking=self.settings.thinking, ignore_eos=entry.ignore_eos, offers=arm.offers,
        )  # fmt: skip
