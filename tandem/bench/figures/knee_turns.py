"""The turns of a search for the knee, from its records.

Invariant: the records alone say which turns are whole, so a run that goes on and the judge agree. A
turn that an interrupt cut is none: it is sent again as a whole, because its queue is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tandem.bench.figures.columns import BoolArray
from tandem.bench.figures.goodput_limits import mask_limits
from tandem.bench.figures.request_metrics import RequestMetrics
from tandem.bench.plan.knee_search import (
    PILOT_ROUND,
    KneeTurn,
    KneeTurnCount,
    count_requests,
    next_count,
)
from tandem.bench.records.folder import RECORDS_FILE
from tandem.bench.records.manifest import RunManifest
from tandem.bench.records.record import RequestRecord, TurnPart, read_records
from tandem.errors import InputError

_WARM_UP_PARTS = ("warm_up", "pilot_warm_up")
_LATE_SHARE = 0.05  # a turn of which more requests were late was not the load that was meant
_LATE_OF_LIMIT = 0.1  # a request is late by this share of the shortest limit, which hides nothing
_LATE_MS = 100.0  # where no limit is a time


class KneeTurnPlace(NamedTuple):
    """The place of a turn in a run."""

    arm: str
    round: int
    slot: int
    rate_per_s: float


class KneeHistory(NamedTuple):
    """The turns that a folder has.

    Args:
        counts: whole turns, in the order of sending.
        attempts: how often each turn was begun.
    """

    counts: list[KneeTurnCount]
    attempts: Mapping[KneeTurnPlace, int]


def read_knee_history(folder: Path, run: RunManifest) -> KneeHistory:
    """Return the turns of a folder's records.

    Args:
        folder: of the run.
        run: its manifest, with the limits.

    Raises:
        InputError: a line is no record.
    """
    path = folder / RECORDS_FILE
    limits = run.goodput or {}
    turns: dict[KneeTurnPlace, list[RequestRecord]] = {}
    attempts: dict[KneeTurnPlace, int] = {}
    for record in read_records(path, lambda _: None) if path.exists() else ():
        place = KneeTurnPlace(record.arm, record.round, record.slot, record.rate_per_s or 0.0)
        if record.attempts > attempts.get(place, 0):
            attempts[place] = record.attempts
            turns[place] = []
        if record.attempts == attempts[place]:
            turns[place].append(record)
    counts = []
    for place, records in turns.items():
        count = count_turn(place, records, limits)
        if count is not None:
            counts.append(count)
    return KneeHistory(counts, attempts)


def count_turn(
    place: KneeTurnPlace, records: Iterable[RequestRecord], limits: Mapping[str, float]
) -> KneeTurnCount | None:
    """Return the counted requests of a turn; None if the turn is not whole.

    Args:
        place: of the turn.
        records: of its last attempt, in any order.
        limits: of each metric, in its unit.
    """
    by_number = {record.worker: record for record in records if record.error != "interrupted"}
    warm_up = sum(record.part in _WARM_UP_PARTS for record in by_number.values())
    counted = _list_sent(by_number, warm_up)
    good = list_good(counted, limits)
    count = count_requests(good)
    if count is None:
        return None
    counted = counted[:count]
    return KneeTurnCount(
        turn=KneeTurn(place.arm, place.rate_per_s, place.round, place.slot, warm_up),
        counted=count,
        good=sum(good[:count]),
        request_s=float(np.mean([record.end_s for record in counted])),
        is_late=_is_late(counted, limits),
    )


@dataclass(slots=True)
class TurnEnd:
    """The end of a running turn: enough counted requests, all of which have ended.

    Figures are computed once for each number of requests that may be the last, because a turn asks
    at every arrival.

    Args:
        warm_up: number of requests that are not counted.
        limits: of each metric, in its unit.
    """

    warm_up: int
    limits: Mapping[str, float]
    _target: int = field(init=False, default_factory=lambda: next_count(0))

    def is_reached(self, by_number: Mapping[int, RequestRecord]) -> bool:
        """Return whether the records so far, by number in the order of sending, are enough."""
        while len(by_number) >= self.warm_up + self._target:
            ended = _list_sent(by_number, self.warm_up)[: self._target]
            if len(ended) < self._target:
                return False
            if count_requests(list_good(ended, self.limits)) is not None:
                return True
            self._target = next_count(self._target + 1)
        return False


def list_good(records: Sequence[RequestRecord], limits: Mapping[str, float]) -> list[bool]:
    """Return whether each request keeps every limit; a failed one keeps none."""
    good_mask, _ = _mask_records(records, limits)
    return [bool(is_good) for is_good in good_mask]


def require_figures(
    arm: str, records: Sequence[RequestRecord], limits: Mapping[str, float]
) -> None:
    """Refuse a server whose answers do not show whether they keep the limits.

    Args:
        arm: name of the server.
        records: of a turn.
        limits: of each metric, in its unit.

    Raises:
        InputError: half of the answers or more lack a figure.
    """
    answer_count = sum(record.error is None for record in records)
    for name, limit in limits.items():
        _, unknown_mask = _mask_records(records, {name: limit})
        if answer_count and 2 * unknown_mask.sum() >= answer_count:
            problem = f"{arm} counts no tokens, so {name} of its answers is not known"
            change = "limit ttft_ms or e2e_ms, or measure a server that counts tokens"
            raise InputError(problem, where="--goodput", change=change)


def _mask_records(
    records: Sequence[RequestRecord], limits: Mapping[str, float]
) -> tuple[BoolArray, BoolArray]:
    """Return the masks of `mask_limits`."""
    metrics = RequestMetrics(records)
    figures = {name: getattr(metrics, name) for name in limits}
    return mask_limits(limits, metrics.failed, figures, metrics.raw_tokens)


def mark_part(round_: int, number: int, warm_up: int) -> TurnPart | None:
    """Return the mark of a turn's request."""
    if round_ == PILOT_ROUND:
        return "pilot_warm_up" if number < warm_up else "pilot"
    return "warm_up" if number < warm_up else None


def _list_sent(by_number: Mapping[int, RequestRecord], warm_up: int) -> list[RequestRecord]:
    """Return the records after the warm-up, in the order of sending, up to the first that lacks."""
    sent = []
    number = warm_up
    while number in by_number:
        sent.append(by_number[number])
        number += 1
    return sent


def _is_late(records: Sequence[RequestRecord], limits: Mapping[str, float]) -> bool:
    """Return whether the machine sent too many requests late."""
    times_ms = [limit for name, limit in limits.items() if name in {"ttft_ms", "e2e_ms"}]
    late_s = _LATE_OF_LIMIT * min(times_ms, default=_LATE_MS / _LATE_OF_LIMIT) / 1000
    late = [
        record.due_s is not None and record.start_s - record.due_s > late_s for record in records
    ]
    return sum(late) > _LATE_SHARE * len(records)
