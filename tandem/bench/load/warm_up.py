"""The warm-up of an arm until its figures are stable.

Invariant: the warm-up is bounded, its records are apart from the measured requests
(`warmup.jsonl`), and every arm gets the same requests.

A *window* is the same few prompts, one of each class in turn, as many as the largest concurrency
and at least four. The first window has the full length, so no length first occurs in a measured
request; later windows have at most 64 tokens. An arm is stable if the median TTFT and the median
TPOT of two consecutive short windows differ by at most 10 % (or a TTFT by at most 5 ms; smaller
differences come from the network). The warm-up gives up, and the run continues with a warning,
after 8 short windows, after 5 minutes, or when every request of a window fails.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tandem.bench.figures.quantiles import compute_median
from tandem.bench.figures.request_metrics import RequestMetrics
from tandem.bench.load.loops import ArmSession, RequestLoops
from tandem.bench.plan.request_plan import (
    ALL_CLASSES,
    PlanBlock,
    PlanItem,
    PlanTurn,
    PromptEntry,
    RunPlan,
)
from tandem.bench.plan.schedule import LoadLevel
from tandem.bench.records.manifest import WarmUpEntry
from tandem.bench.records.record import RequestRecord

MIN_WINDOW = 4
SHORT_TOKENS = 64
MAX_SHORT_WINDOWS = 8
MAX_WARM_UP_S = 300.0
MAX_CHANGE = 0.10
MAX_TTFT_CHANGE_MS = 5.0
OPEN_WORKERS = 4  # workers of an arm with an arrival rate


async def warm_up_arm(
    arm: ArmSession, plan: RunPlan, loops: RequestLoops, *, requests: int | None, first_window: int
) -> WarmUpEntry:
    """Warm up one arm and return its entry for the manifest.

    Args:
        arm: to warm up.
        plan: of the run.
        loops: with the recorder of warm-ups; its `on_record` gets each record.
        requests: exact number of requests; None until stable.
        first_window: number of the first window, above those of an earlier run.
    """
    window = _WindowSender(arm, plan, loops)
    start_s = time.monotonic()
    stable = None
    if requests:
        await window.send(first_window, requests)
    elif requests is None:
        stable = await _send_until_stable(window, first_window, start_s + MAX_WARM_UP_S)
    return WarmUpEntry(
        requests=len(window.records),
        failed=sum(record.error is not None for record in window.records),
        stable=stable,
        duration_s=round(time.monotonic() - start_s, 3),
        request_s=window.compute_request_s(),
    )


def join_entries(before: WarmUpEntry | None, now: WarmUpEntry) -> WarmUpEntry:
    """Return the warm-ups of several starts as one; it is stable if all are."""
    if before is None:
        return now
    return WarmUpEntry(
        requests=before.requests + now.requests,
        failed=before.failed + now.failed,
        stable=now.stable and before.stable,
        duration_s=(before.duration_s or 0.0) + (now.duration_s or 0.0),
        request_s=now.request_s or before.request_s,
    )


async def _send_until_stable(window: _WindowSender, first_window: int, end_s: float) -> bool:
    """Send windows until two are alike; return whether they are, or the warm-up gave up."""
    size = max(MIN_WINDOW, _count_workers(window.plan))
    previous = None
    await window.send(first_window, size)
    for number in range(first_window + 1, first_window + 1 + MAX_SHORT_WINDOWS):
        if window.loops.stop.is_requested or time.monotonic() > end_s:
            return False
        records = await window.send(number, size, SHORT_TOKENS)
        current = compute_medians(records)
        if previous is not None and is_stable(previous, current):
            return True
        if all(record.error for record in records):
            return False
        previous = current
    return False


@dataclass
class _WindowSender:
    """Sender of the windows of one arm, which keeps their records."""

    arm: ArmSession
    plan: RunPlan
    loops: RequestLoops
    records: list[RequestRecord] = field(default_factory=list)
    full_records: list[RequestRecord] = field(default_factory=list)

    def compute_request_s(self) -> float | None:
        """Return the mean duration of the good requests of full length; None if none was good."""
        durations_s = [record.end_s for record in self.full_records if record.error is None]
        return round(sum(durations_s) / len(durations_s), 6) if durations_s else None

    async def send(
        self, number: int, size: int, most_tokens: int | None = None
    ) -> list[RequestRecord]:
        """Send a window and return its records; arguments as for `plan_window`."""
        window_records: list[RequestRecord] = []

        def collect_record(record: RequestRecord) -> None:
            window_records.append(record)
            self.loops.on_record(record)

        turn = plan_window(self.arm.name, self.plan, number, size=size, most_tokens=most_tokens)
        loops = dataclasses.replace(self.loops, on_record=collect_record)
        await loops.run(self.arm, turn, turn.items)
        self.records += window_records
        if most_tokens is None:
            self.full_records += window_records
        return window_records


def plan_window(
    arm: str, plan: RunPlan, number: int, *, size: int, most_tokens: int | None = None
) -> PlanTurn:
    """Return one window as a turn: the same prompts for every number, of as many classes as fit.

    The first prompt of each class comes first, then the second of each, and so on.
    """
    by_class: dict[tuple[str, str], dict[str, PromptEntry]] = {}
    for block in plan.blocks:
        for entry in block.entries:
            by_class.setdefault((entry.suite, entry.prompt.class_), {})[entry.prompt.id] = entry
    rows = itertools.zip_longest(*(entries.values() for entries in by_class.values()))
    in_turn = filter(None, itertools.chain.from_iterable(rows))
    entries = tuple(itertools.islice(itertools.cycle(in_turn), size))
    if most_tokens is not None:
        entries = tuple(
            dataclasses.replace(entry, max_tokens=min(entry.max_tokens, most_tokens))
            for entry in entries
        )
    load = LoadLevel(concurrency=min(_count_workers(plan), size))
    seed = plan.manifest.seed
    return PlanTurn(
        round=number,
        slot=0,
        arms=(arm,),
        is_warm_up=True,
        block=PlanBlock(number=0, class_=ALL_CLASSES, load=load, entries=entries, requests=size),
        items=tuple(
            PlanItem(index=place, entry=entry, repeat=0, seed=seed)
            for place, entry in enumerate(entries)
        ),
    )


def compute_medians(records: Sequence[RequestRecord]) -> tuple[float, float]:
    """Return the medians of TTFT and TPOT of good requests, in ms; NaN if none has one."""
    metrics = RequestMetrics(records)
    return compute_median(metrics.ttft_ms), compute_median(metrics.tpot_ms)


def is_stable(previous: Sequence[float], current: Sequence[float]) -> bool:
    """Return whether two windows have the same medians, within MAX_CHANGE or MAX_TTFT_CHANGE_MS."""
    return all(
        math.isclose(before, now, rel_tol=MAX_CHANGE, abs_tol=tolerance_ms)
        or (math.isnan(before) and math.isnan(now))
        for before, now, tolerance_ms in zip(
            previous, current, (MAX_TTFT_CHANGE_MS, 0.0), strict=True
        )
    )


def _count_workers(plan: RunPlan) -> int:
    return max(block.load.concurrency or OPEN_WORKERS for block in plan.blocks)
