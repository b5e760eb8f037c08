"""Warming an arm up until its figures stand still.

Invariant: bounded, never recorded among the measured requests (`warmup.jsonl`), and every arm is asked the same.

A *window* is the same few prompts, one of each class in turn, as many as the largest concurrency and at least four.
The first window has the full length, so that no length is met for the first time in a record; those after it have at
most 64 tokens. An arm is stable when in two short windows that follow each other the median TTFT and the median TPOT
differ by at most 10 % (a TTFT also by at most 5 ms, below which the network speaks). It is given up, and the run goes
on with a warning, after 8 short windows, after 5 minutes, or when every request of a window fails.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tandem.bench.estimate import request_s
from tandem.bench.loops import Arm, Loops
from tandem.bench.manifest import WarmUp
from tandem.bench.plan import MIXED, Block, Entry, Item, Load, Plan, Turn
from tandem.bench.record import Record

LEAST_WINDOW = 4
SHORT_TOKENS = 64
MOST_SHORT_WINDOWS = 8
MOST_S = 300.0
SAME = 0.10
SAME_TTFT_S = 0.005
OPEN_WORKERS = 4  # of an arm whose load is an arrival rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed:
    """How the warm-up of an arm ended.

    Args:
        seen: what the manifest says of it.
        factor: what its requests took of the guessed time; None where none succeeded.
    """

    seen: WarmUp
    factor: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one window showed: medians in seconds; None where no answer gives one."""

    ttft_s: float | None
    tpot_s: float | None


async def warm_up(arm: Arm, plan: Plan, loops: Loops, *, requests: int | None, first: int) -> Warmed:
    """Warm one arm up.

    Args:
        arm: whom.
        plan: what will be asked of it.
        loops: with the recorder of warm-ups; its `done` is told of each record.
        requests: exactly so many; None until stable.
        first: number of the first window, above those of an earlier run.
    """
    began, records, stable = time.monotonic(), list[Record](), None
    if requests is None:
        records, stable = await _until_stable(arm, plan, loops, first)
    elif requests:
        records = await _ask(arm, loops, window(arm.name, plan, first, size=requests))
    seen = WarmUp(
        requests=len(records), failed=sum(record.error is not None for record in records), stable=stable,
        duration_s=round(time.monotonic() - began, 3),
    )  # fmt: skip
    return Warmed(seen=seen, factor=_factor(plan, records))


async def _until_stable(arm: Arm, plan: Plan, loops: Loops, first: int) -> tuple[list[Record], bool]:
    ends = time.monotonic() + MOST_S
    size = max(LEAST_WINDOW, _workers(plan))
    records = await _ask(arm, loops, window(arm.name, plan, first, size=size))
    before: Figures | None = None
    for number in range(first + 1, first + 1 + MOST_SHORT_WINDOWS):
        if loops.stop.asked or time.monotonic() > ends:
            break
        seen = await _ask(arm, loops, window(arm.name, plan, number, size=size, most_tokens=SHORT_TOKENS))
        records += seen
        if all(record.error for record in seen):
            break
        now = figures(seen)
        if before is not None and alike(before, now):
            return records, True
        before = now
    return records, False


async def _ask(arm: Arm, loops: Loops, turn: Turn) -> list[Record]:
    records: list[Record] = []

    def keep(record: Record) -> None:
        records.append(record)
        loops.done(record)

    await dataclasses.replace(loops, done=keep).run(arm, turn, turn.items)
    return records


def window(arm: str, plan: Plan, number: int, *, size: int, most_tokens: int | None = None) -> Turn:
    """Return one window as a turn: the same prompts whatever its number, of as many classes as it has room for."""
    entries = tuple(itertools.islice(itertools.cycle(_one_of_each(plan)), size))
    if most_tokens is not None:
        entries = tuple(dataclasses.replace(entry, max_tokens=min(entry.max_tokens, most_tokens)) for entry in entries)
    load = Load(concurrency=min(_workers(plan), size))
    return Turn(
        round=number, slot=0, arms=(arm,), warm=True,
        block=Block(number=0, class_=MIXED, load=load, entries=entries, requests=size),
        items=tuple(Item(index=index, entry=entry, repeat=0, seed=plan.seed) for index, entry in enumerate(entries)),
    )  # fmt: skip


def figures(records: Sequence[Record]) -> Figures:
    """Return the medians of what succeeded."""
    firsts, rests = [], []
    for record in records:
        bearing = [chunk.at_s for chunk in record.chunks if chunk.bears_tokens]
        if record.error or not bearing:
            continue
        firsts.append(bearing[0])
        tokens = record.completion_tokens or len(bearing)
        if tokens > 1:
            rests.append((bearing[-1] - bearing[0]) / (tokens - 1))
    return Figures(
        ttft_s=statistics.median(firsts) if firsts else None, tpot_s=statistics.median(rests) if rests else None
    )


def alike(one: Figures, other: Figures) -> bool:
    """Return whether two windows showed the same."""
    return _near(one.ttft_s, other.ttft_s, SAME_TTFT_S) and _near(one.tpot_s, other.tpot_s, 0.0)


def _near(one: float | None, other: float | None, least: float) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= max(SAME * max(one, other), least)


def _workers(plan: Plan) -> int:
    return max(block.load.concurrency or OPEN_WORKERS for block in plan.blocks)


def _one_of_each(plan: Plan) -> list[Entry]:
    """Return the first prompt of each class, then the second of each, and so on, each once."""
    by_class: dict[tuple[str, str], dict[str, Entry]] = {}
    for block in plan.blocks:
        for entry in block.entries:
            by_class.setdefault((entry.suite, entry.prompt.class_), {})[entry.prompt.id] = entry
    rows = itertools.zip_longest(*(entries.values() for entries in by_class.values()))
    return [entry for row in rows for entry in row if entry is not None]


def _factor(plan: Plan, records: Sequence[Record]) -> float | None:
    """Return the median share of the guess that a request took; a median, because the first ones may have been cold."""
    most = {(entry.suite, entry.prompt.id): entry.max_tokens for block in plan.blocks for entry in block.entries}
    shares = []
    for record in records:
        full = most[record.suite, record.prompt_id]
        asked = full if record.round == records[0].round else min(full, SHORT_TOKENS)
        if record.error is None:
            shares.append(record.end_s / request_s(asked))
    return statistics.median(shares) if shares else None
