"""The turns of a search from its records: what counts, what was cut, and what was sent late."""

from __future__ import annotations

from typing import Any

import pytest
from measured import BURSTS, failed, record, run_manifest, write_run

from tandem.bench.figures.knee_turns import (
    KneeTurnPlace,
    TurnEnd,
    count_turn,
    read_knee_history,
)
from tandem.bench.records.record import RequestRecord

# TTFT of `record` is 200 ms
LIMITS = {"ttft_ms": 250.0}
PLACE = KneeTurnPlace(arm="base", round=1, slot=0, rate_per_s=4.0)


def list_records(first: int, last: int, **changes: Any) -> list[RequestRecord]:
    """Requests of a turn by their number."""
    attempt = changes.get("attempts", 1)
    return [
        record(
            request_id=f"base.r1.b0.{number}~{attempt}",
            worker=number,
            round=1,
            concurrency=None,
            rate_per_s=4.0,
            **({"due_s": 1000.0} | changes),
        )
        for number in range(first, last)
    ]


BURSTS_LATE = tuple(chunk._replace(at_s=chunk.at_s + 0.1) for chunk in BURSTS)
WARM_UP = list_records(0, 28, part="warm_up")
WHOLE = [*WARM_UP, *list_records(28, 140)]


def test_requests_after_the_warm_up_count_and_a_failed_one_keeps_no_limit():
    counted = list_records(28, 145)
    for number in (30, 40, 50, 90, 100, 110):
        counted[number - 28] = failed(request_id=f"f{number}", worker=number, due_s=1000.0)
    count = count_turn(PLACE, [*WARM_UP, *counted], LIMITS)

    assert count is not None
    assert (count.turn.warm_up, count.counted, count.good) == (28, 112, 106)
    assert count.request_s == pytest.approx(0.3)
    assert not count.is_late


@pytest.mark.parametrize(
    "records",
    [
        WHOLE[:-1],
        [*WHOLE[:50], *WHOLE[51:]],
        [*WHOLE[:-1], *list_records(139, 140, error="interrupted")],
    ],
    ids=["too few", "a gap", "interrupted"],
)
def test_turn_that_was_cut_is_none(records):
    assert count_turn(PLACE, records, LIMITS) is None


def test_running_turn_ends_when_every_counted_request_has_ended():
    end = TurnEnd(28, LIMITS)
    by_number = {entry.worker: entry for entry in [*WHOLE, *list_records(140, 150)]}
    last = by_number.pop(139)

    assert not end.is_reached(by_number)
    assert end.is_reached(by_number | {139: last})


def test_running_turn_with_unlike_halves_goes_on_by_a_step():
    end = TurnEnd(28, LIMITS)
    slow = list_records(84, 196, chunks=BURSTS_LATE)
    records = [*WARM_UP, *list_records(28, 84), *slow, *list_records(196, 252)]
    sizes = [
        size
        for size in range(140, len(records) + 1)
        if end.is_reached({entry.worker: entry for entry in records[:size]})
    ]

    assert sizes[0] == 28 + 224


def test_turn_of_which_many_requests_started_late_is_late():
    late = [*WARM_UP, *list_records(28, 35, due_s=999.9), *list_records(35, 140)]
    count = count_turn(PLACE, late, LIMITS)

    assert count is not None
    assert count.is_late


def test_last_attempt_of_a_turn_counts(tmp_path):
    again = [
        *list_records(0, 28, part="warm_up", attempts=2),
        *list_records(28, 140, attempts=2),
    ]
    folder = write_run(tmp_path, [*WHOLE[:60], *again])
    history = read_knee_history(folder, run_manifest(goodput=LIMITS, goodput_share=0.95))

    assert [count.counted for count in history.counts] == [112]
    assert history.attempts == {PLACE: 2}
