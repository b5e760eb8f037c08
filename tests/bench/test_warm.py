"""The warm-up's criterion: what counts as standing still."""

from __future__ import annotations

import pytest
from planned import plan

from tandem.bench.record import Chunk, RequestRecord, split_chunks
from tandem.bench.warm_up import MIN_WINDOW, SHORT_TOKENS, WindowMedians, compute_medians, is_stable, plan_window


def record(*times, tokens=None, error=None):
    chunks = tuple(Chunk(at_s=at, kind="text", tokens=1) for at in times)
    return RequestRecord(
        request_id="x", arm="a", class_="code", suite="s", prompt_id="p", start_s=0.0, end_s=max(times, default=1.0),
        **split_chunks((Chunk(at_s=0.01, kind="role", tokens=0), *chunks)), completion_tokens=tokens, error=error,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((0.200, 0.045), (0.200, 0.045), True),
        ((0.200, 0.045), (0.185, 0.041), True),
        ((0.200, 0.045), (0.170, 0.045), False),
        ((0.200, 0.045), (0.200, 0.040), False),
        ((0.004, 0.045), (0.008, 0.045), True),  # within 5 ms the network speaks
        ((0.200, None), (0.200, None), True),  # one token an answer
        ((0.200, None), (0.200, 0.045), False),
    ],
)
def test_windows_are_alike_within_a_tenth(one, other, same):
    assert is_stable(WindowMedians(*one), WindowMedians(*other)) is same


@pytest.mark.parametrize(
    ("records", "medians"),
    [
        ([record(0.1, 0.2, 0.3), record(0.2, 0.4, 0.6), record(0.3, 0.6, 0.9), record(9, error="closed")], (0.2, 0.2)),
        ([record(0.1, 0.5, tokens=9)], (0.1, 0.05)),  # bursts are divided by their tokens
        ([record(error="connect")], (None, None)),
    ],
)
def test_the_figures_of_a_window_are_medians_of_what_succeeded(records, medians):
    assert compute_medians(records) == pytest.approx(medians)


@pytest.mark.parametrize(("concurrency", "size"), [(1, MIN_WINDOW), (8, 8)])
def test_every_window_asks_the_same_prompts_of_every_arm(concurrency, size):
    made = plan(classes={"code": 3, "chat": 1}, concurrency=(concurrency,))
    one, other = plan_window("a", made, 0, size=size), plan_window("b", made, 5, size=size)
    assert (one.items, len(one.items)) == (other.items, size)


def test_a_short_window_asks_for_few_tokens_under_ids_of_its_own():
    made = plan(max_tokens=600)
    window = plan_window("a", made, 1, size=4, most_tokens=SHORT_TOKENS)
    assert {item.entry.max_tokens for item in window.items} == {64}
    assert {request_id for turn in made.turns() for request_id in turn.request_ids()}.isdisjoint(window.request_ids())
