"""The two loops that send a turn's requests.

Invariant: in the closed loop, each of `concurrency` workers sends a request, waits for its record,
and only then sends the next. In the open loop, requests start when they are due, whatever the
earlier requests do; each record shows its delay (start_s - due_s), so a client that is too slow is
visible. Nothing here repeats a request; only the client sends a request again, after a reused
connection dies (`client.py`).
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tandem.bench.load.answer import parse_answer
from tandem.bench.load.circuit_breaker import CircuitBreaker
from tandem.bench.load.client import CompletionClient
from tandem.bench.load.completion_request import CompletionRequest
from tandem.bench.load.interrupt import StopSignal
from tandem.bench.load.recorder import WriteRecord
from tandem.bench.load.reply import ServerReply
from tandem.bench.load.resume import ATTEMPT_SEPARATOR
from tandem.bench.plan.request_plan import PlanItem, PlanTurn
from tandem.bench.plan.server_access import IGNORE_EOS
from tandem.bench.plan.settings import RunSettings
from tandem.bench.records.manifest import ServerOffers, Timeouts
from tandem.bench.records.record import RequestRecord
from tandem.bench.suites.model_stop import check_answer
from tandem.bench.suites.prompt import Prompt
from tandem.errors import TandemError

# between the first requests of two workers, so their connections do not all open at once
STAGGER_S = 0.02
MIN_PAUSE_S = 0.1  # a shorter wait for a paused arm is none
MAX_RETRY_AFTER_S = 60.0  # limit for Retry-After: a proxy may ask for hours


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSession:
    """One arm, with the facts that the loops need.

    Args:
        name: of the arm.
        client: of its server.
        offers: the extras to request.
        models: names the server may give its model.
        breaker: pauses requests while the arm is down.
        placement: the server's part of a host; None if unknown.
        start: the current start of the server's process; None if its page does not show it.
    """

    name: str
    client: CompletionClient
    offers: ServerOffers
    models: frozenset[str]
    breaker: CircuitBreaker
    placement: str | None = None
    start: str | None = None


@dataclass(frozen=True, slots=True)
class RequestLoops:
    """The closed and the open loop.

    Args:
        settings: of the run.
        write_record: takes a function that makes a record.
        stop: ends the loops early.
        attempts: request id to number of earlier attempts, in interrupted parts of the run.
        on_record: called with every record.
        end_s: no request begins after this time of the monotonic clock.
    """

    settings: RunSettings
    write_record: WriteRecord
    stop: StopSignal
    attempts: dict[str, int]
    on_record: Callable[[RequestRecord], None]
    end_s: float = math.inf

    async def run(self, arm: ArmSession, turn: PlanTurn, items: Sequence[PlanItem]) -> None:
        """Send a turn's missing `items` to an arm; return when all are recorded or the run ends."""
        if turn.arrivals_s:
            await self._run_open_loop(arm, turn, items)
            return
        pending = deque(items)

        async def run_worker(worker: int) -> None:
            await self.stop.sleep(worker * STAGGER_S)
            while pending:
                await arm.breaker.wait_until_closed()
                if self.stop.is_requested or not pending or time.monotonic() >= self.end_s:
                    return
                await self.stop.sleep(await self._send_item(arm, turn, pending.popleft(), worker))

        async with asyncio.TaskGroup() as group:
            for worker in range(min(turn.block.load.concurrency or 1, len(items))):
                group.create_task(run_worker(worker))

    async def _run_open_loop(
        self, arm: ArmSession, turn: PlanTurn, items: Sequence[PlanItem]
    ) -> None:
        offsets_s = dict(zip((item.index for item in turn.items), turn.arrivals_s, strict=True))
        first_offset_s = min((offsets_s[item.index] for item in items), default=0.0)
        # no second wait for requests that an earlier part of the run sent
        start_s = time.monotonic() - first_offset_s

        async def send_when_due(worker: int, item: PlanItem, due_s: float) -> None:
            await arm.breaker.wait_until_closed()
            if not self.stop.is_requested:
                await self._send_item(arm, turn, item, worker, due_s)

        async with asyncio.TaskGroup() as group:
            for worker, item in enumerate(items):
                due_s = start_s + offsets_s[item.index]
                await self.stop.sleep(due_s - time.monotonic())
                if self.stop.is_requested or time.monotonic() >= self.end_s:
                    return
                group.create_task(send_when_due(worker, item, due_s))

    async def run_until(
        self,
        arm: ArmSession,
        turn: PlanTurn,
        arrivals: Iterable[tuple[PlanItem, float]],
        is_over: Callable[[], bool],
    ) -> None:
        """Send endless arrivals in an open loop until `is_over`; return when all are recorded.

        Args:
            arm: that gets them.
            turn: their place in the run.
            arrivals: each request, with its due time in seconds from the start of the turn.
            is_over: asked whenever a request is due, before it is sent.
        """
        start_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for item, offset_s in arrivals:
                await self.stop.sleep(start_s + offset_s - time.monotonic())
                pause_start_s = time.monotonic()
                await arm.breaker.wait_until_closed()
                # while the server is down nothing is due
                pause_s = time.monotonic() - pause_start_s
                start_s += pause_s if pause_s > MIN_PAUSE_S else 0.0
                if self.stop.is_requested or is_over():
                    return
                due_s = start_s + offset_s
                group.create_task(self._send_item(arm, turn, item, item.index, due_s))

    async def _send_item(
        self,
        arm: ArmSession,
        turn: PlanTurn,
        item: PlanItem,
        worker: int,
        due_s: float | None = None,
    ) -> float:
        """Send one request and record it; return the server's Retry-After in seconds, else 0.

        Two arms get the same request, except for the extras that their servers offer.
        """
        request_id = turn.request_id(arm.name, item)
        earlier_attempts = self.attempts.get(request_id, turn.earlier_attempts)
        if earlier_attempts:
            request_id += f"{ATTEMPT_SEPARATOR}{earlier_attempts + 1}"
        request = self._create_request(request_id, arm, item)
        prompt = item.entry.prompt
        place: dict[str, Any] = {
            "arm": arm.name,
            "class_": prompt.class_,
            "suite": item.entry.suite,
            "prompt_id": prompt.id,
            "round": turn.round,
            "repeat": item.repeat,
            "part": item.part,
            "slot": turn.slot,
            "concurrency": turn.block.load.concurrency,
            "rate_per_s": turn.block.load.rate_per_s,
            "worker": worker,
            "due_s": due_s,
            "attempts": earlier_attempts + 1,
            "placement": arm.placement,
            "start": arm.start,
        }
        try:
            timeouts = self.settings.manifest.time_outs or Timeouts()
            reply = await arm.client.send_request(request, timeouts)
            record = await self.write_record(
                functools.partial(complete_record, reply, request, arm.models, prompt, place)
            )
        except TandemError as fault:
            self.stop.request("failed", fault, grace_s=0)
            return 0.0
        self.on_record(record)
        arm.breaker.count_outcome(record.error, record.request_id)
        return min(record.retry_after_s or 0.0, MAX_RETRY_AFTER_S)

    def _create_request(
        self, request_id: str, arm: ArmSession, item: PlanItem
    ) -> CompletionRequest:
        prompt = item.entry.prompt
        return CompletionRequest(
            request_id=request_id,
            prompt=prompt.as_text(),
            messages=prompt.as_messages(),
            max_tokens=item.entry.max_tokens,
            temperature=self.settings.manifest.temperature,
            seed=item.seed,
            thinking=self.settings.manifest.thinking,
            offers=arm.offers,
            extra_body=arm.client.arm.extra_body,
            left_out=arm.client.arm.left_out,
        )


def complete_record(
    reply: ServerReply,
    request: CompletionRequest,
    models: Collection[str],
    prompt: Prompt,
    place: Mapping[str, Any],
) -> RequestRecord:
    """Return the record of one request, with its `place` in the run; pure."""
    record = parse_answer(reply, request, models)
    is_forced = request.extra_body.get(IGNORE_EOS) is True
    content = check_answer(record, prompt, is_forced=is_forced)
    return msgspec.structs.replace(record, content=content, **place)
