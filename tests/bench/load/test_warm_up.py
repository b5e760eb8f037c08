"""The warm-up's criterion: what counts as standing still."""

from __future__ import annotations

import math

import pytest
from planned import plan

from tandem.bench.load.warm_up import (
    MIN_WINDOW,
    SHORT_TOKENS,
    compute_medians,
    is_stable,
    plan_window,
)
from tandem.bench.records.record import SCHEMA, Chunk, RequestRecord, split_chunks


def record(*times, tokens=None, error=None):
    chunks = tuple(Chunk(at_s=at, kind="text") for at in times)
    return RequestRecord(
        schema=SCHEMA,
        request_id="x",
        arm="a",
        class_="code",
        suite="s",
        prompt_id="p",
        start_s=0.0,
        reconnected=0,
        end_s=max(times, default=1.0),
        **split_chunks((Chunk(at_s=0.01, kind="role", tokens=0), *chunks)),
        completion_tokens=tokens,
        error=error,
    )


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ((200, 45), (185, 41), True),
        ((200, 45), (170, 45), False),
        ((200, 45), (200, 40), False),
        ((4, 45), (8, 45), True),  # within 5 ms the network speaks
        ((200, math.nan), (200, math.nan), True),  # one token an answer
        ((200, math.nan), (200, 45), False),
    ],
)
def test_windows_are_alike_within_a_tenth(first, second, same):
    assert is_stable(first, second) is same


@pytest.mark.parametrize(
    ("records", "medians"),
    [
        (
            [
                *(record(n / 10, 3 * n / 10, tokens=3) for n in (1, 2, 3)),
                record(9, error="closed", tokens=3),
            ],
            (200, 200),
        ),
        ([record(0.1, 0.5, tokens=9)], (100, 50)),  # bursts are divided by their tokens
        ([record(error="connect")], (math.nan, math.nan)),
    ],
)
def test_the_figures_of_a_window_are_medians_of_what_succeeded(records, medians):
    assert compute_medians(records) == pytest.approx(medians, nan_ok=True)


@pytest.mark.parametrize(("concurrency", "size"), [(1, MIN_WINDOW), (8, 8)])
def test_every_window_asks_the_same_prompts_of_every_arm(concurrency, size):
    run_plan = plan(classes={"code": 3, "chat": 1}, concurrency=(concurrency,))
    first = plan_window("a", run_plan, 0, size=size)
    second = plan_window("b", run_plan, 5, size=size)
    assert (first.items, len(first.items)) == (second.items, size)


def test_a_short_window_has_few_tokens_and_own_ids():
    run_plan = plan(max_tokens=600)
    window = plan_window("a", run_plan, 1, size=4, most_tokens=SHORT_TOKENS)
    assert {item.entry.max_tokens for item in window.items} == {64}
    assert {
        request_id for turn in run_plan.turns() for request_id in turn.request_ids()
    }.isdisjoint(window.request_ids())
