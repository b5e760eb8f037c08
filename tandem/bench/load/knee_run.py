"""The measurement of a search for the knee: one turn after the other, each from an idle server.

Invariant: the records alone decide the next turn (`tandem.bench.plan.knee_search`), so a run that
goes on sends what it would have sent. Every arm gets the same prompts, seeds and gaps between
arrivals in its turn of a position; the gaps are divided by its own rate.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tandem.bench.figures.knee_turns import (
    KneeHistory,
    KneeTurnPlace,
    TurnEnd,
    count_turn,
    mark_part,
    require_figures,
)
from tandem.bench.load.counter_log import CounterLog
from tandem.bench.load.loops import ArmSession, RequestLoops
from tandem.bench.load.progress import RunProgress
from tandem.bench.plan.estimate import (
    estimate_first_rate,
    estimate_search_s,
    format_duration,
)
from tandem.bench.plan.knee_search import (
    FIRST_IN_FLIGHT,
    LEAST_COUNTED,
    PILOT_ROUND,
    ROUNDS,
    KneeSearch,
    KneeTurn,
    KneeTurnCount,
)
from tandem.bench.plan.request_plan import SEED_LIMIT, PlanItem, PlanTurn, RunPlan
from tandem.bench.plan.schedule import LoadLevel, first_order
from tandem.bench.records.manifest import EndReason, WarmUpEntry
from tandem.bench.records.record import RequestRecord


@dataclass(kw_only=True)
class KneeRun:
    """The turns of a search, live.

    Args:
        arms: sessions, the baseline first.
        plan: of the run; its manifest has share, limits and seed.
        loops: that send and record.
        counter_log: of the servers.
        progress: for the operator.
        connect: opens the connections of a turn.
        history: the turns that the folder has.
        warm_up: of each arm, for the first rate of its pilot.
    """

    arms: Sequence[ArmSession]
    plan: RunPlan
    loops: RequestLoops
    counter_log: CounterLog
    progress: RunProgress
    connect: Callable[[ArmSession, PlanTurn], Awaitable[None]]
    history: KneeHistory
    warm_up: Mapping[str, WarmUpEntry]

    async def run(self) -> EndReason | None:
        """Send every turn that is missing; return the reason if the run ends before, else None."""
        search = create_search(self.plan, self.warm_up)
        counts = list(self.history.counts)
        is_announced = False
        self.progress.expect(
            sum(estimate_search_s(rate_per_s) for rate_per_s in search.first_rates.values())
        )
        while (turn := search.next_turn(counts)) is not None:
            if self.loops.stop.is_requested:
                return "interrupted"
            if turn.round != PILOT_ROUND:
                missing = search.list_missing(counts)
                self.progress.expect(sum(map(_estimate_turn_s, missing)))
                if not is_announced:
                    self.progress.notify(_describe_rounds(missing))
                is_announced = True
            count = await self._run_turn(turn)
            if count is None:
                return "interrupted"
            counts.append(count)
            if turn.round == PILOT_ROUND:
                self.progress.notify(_describe_pilot_turn(count))
        return None

    async def _run_turn(self, turn: KneeTurn) -> KneeTurnCount | None:
        """Send one turn and return its count; None if the run must end.

        Raises:
            InputError: the answers do not show whether they keep the limits.
        """
        place = KneeTurnPlace(turn.arm, turn.round, turn.slot, turn.rate_per_s)
        plan_turn = self._plan_turn(turn, self.history.attempts.get(place, 0))
        arm = next(arm for arm in self.arms if arm.name == turn.arm)
        stop = self.loops.stop
        phase = "pilot" if turn.round == PILOT_ROUND else f"round {turn.round} of {ROUNDS}"
        self.progress.begin_turn(plan_turn, recorded_count=0, phase=phase)
        await self.connect(arm, plan_turn)
        if stop.is_requested:
            return None
        starts = await self.counter_log.scrape_arms([arm], plan_turn, "before")
        records = await self._send_requests(
            dataclasses.replace(arm, start=starts[arm.name]), turn, plan_turn
        )
        if stop.is_requested:
            return None
        await self.counter_log.scrape_arms([arm], plan_turn, "after")

        limits = self.plan.manifest.goodput or {}
        require_figures(arm.name, records, limits)
        return count_turn(place, records, limits)

    async def _send_requests(
        self, arm: ArmSession, turn: KneeTurn, plan_turn: PlanTurn
    ) -> list[RequestRecord]:
        """Send requests until enough of them count, and return all records."""
        by_number: dict[int, RequestRecord] = {}
        items: list[PlanItem] = []
        end = TurnEnd(turn.warm_up, self.plan.manifest.goodput or {})

        def collect_record(record: RequestRecord) -> None:
            by_number[record.worker] = record
            self.loops.on_record(record)

        def list_arrivals() -> Iterator[tuple[PlanItem, float]]:
            for item, at_s in draw_arrivals(self.plan, turn):
                items.append(item)
                yield item, at_s

        loops = dataclasses.replace(self.loops, on_record=collect_record)
        await loops.run_until(arm, plan_turn, list_arrivals(), lambda: end.is_reached(by_number))
        self.counter_log.count_work(arm.name, items[:-1])  # the last was due and not sent
        return list(by_number.values())

    def _plan_turn(self, turn: KneeTurn, earlier_attempts: int) -> PlanTurn:
        """Return the place of a turn's requests; the requests themselves are endless."""
        load = LoadLevel(rate_per_s=turn.rate_per_s)
        block = dataclasses.replace(self.plan.blocks[0], number=turn.slot, load=load)
        return PlanTurn(
            round=turn.round,
            slot=turn.slot,
            block=block,
            arms=(turn.arm,),
            items=(),
            earlier_attempts=earlier_attempts,
        )


def create_search(plan: RunPlan, warm_up: Mapping[str, WarmUpEntry]) -> KneeSearch:
    """Return the search of a run.

    Args:
        plan: of the run.
        warm_up: of each arm; a pilot begins at the rate of four requests at once.
    """
    first_rates = dict.fromkeys(plan.arms, estimate_first_rate(plan))
    for arm, entry in warm_up.items():
        if entry.request_s:
            first_rates[arm] = FIRST_IN_FLIGHT / entry.request_s
    return KneeSearch(
        arms=first_order(plan.arms, plan.manifest.seed),
        share=plan.manifest.goodput_share or 0.0,
        first_rates=first_rates,
    )


def draw_arrivals(plan: RunPlan, turn: KneeTurn) -> Iterator[tuple[PlanItem, float]]:
    """Yield endless requests, with their due times in seconds from the start of the turn."""
    generator = random.Random(f"{plan.manifest.seed}/knee/{turn.round}/{turn.slot}")  # noqa: S311 - repeatable, no secret
    number = 0
    at_s = 0.0
    while True:
        for entry in generator.sample(plan.entries, len(plan.entries)):
            at_s += generator.expovariate(1.0) / turn.rate_per_s
            item = PlanItem(
                index=number,
                entry=entry,
                repeat=number // len(plan.entries),
                seed=generator.randrange(SEED_LIMIT),
                part=mark_part(turn.round, number, turn.warm_up),
            )
            yield item, at_s
            number += 1


def _describe_pilot_turn(count: KneeTurnCount) -> str:
    late_text = "; this machine could not send it in time" if count.is_late else ""
    return (
        f"pilot of {count.turn.arm}: {count.turn.rate_per_s:.3g} requests/s,"
        f" {count.share:.1%} of {count.counted} requests kept every limit{late_text}"
    )


def _estimate_turn_s(turn: KneeTurn) -> float:
    """Return the shortest duration of a turn, in seconds."""
    return (turn.warm_up + LEAST_COUNTED) / turn.rate_per_s


def _describe_rounds(turns: Sequence[KneeTurn]) -> str:
    """Return how many requests and how much time the rounds take at least."""
    requests = sum(turn.warm_up + LEAST_COUNTED for turn in turns)
    seconds = sum(map(_estimate_turn_s, turns))
    return (
        f"pilots done: {len(turns)} turns to come, at least {requests:,} requests in"
        f" {format_duration(seconds)}"
    )
