"""A recorded stream of a real server beside that server's own counters:
tests/bench/streams/README.md."""

from __future__ import annotations

import pytest
from measured import speculating
from recordings import FOLDER, recorded

from tandem.bench.load.answer import parse_answer
from tandem.bench.records.counters import (
    CounterChange,
    compute_difference,
    compute_rates,
    parse_page,
)

WINDOW = 7
NAME = "ngram_chat_running_usage"


@pytest.fixture
def change():
    """What counted up while the one request was answered."""
    before, after = (
        parse_page((FOLDER / f"metrics_ngram_{when}.txt").read_text())
        for when in ("before", "after")
    )
    change = compute_difference(before, after)
    assert isinstance(change, CounterChange)
    return change


@pytest.fixture
def bursts():
    """Tokens of each chunk that held any, as Tandem reads the stream."""
    answer = parse_answer(recorded(NAME).reply, recorded(NAME).ask)
    return [chunk.tokens for chunk in answer.chunks if chunk.bears_tokens]


def test_stream_and_server_count_the_same_tokens_and_steps(change, bursts):
    by_stream = sum(bursts) - len(bursts)
    by_counter = change.counts["accepted_tokens"]
    assert sum(bursts) == change.counts["generation_tokens"] == 34
    assert len(bursts) - 1 == change.counts["decode_steps"] == 6
    assert (by_stream, by_counter) == (27, 28)  # within a window


def test_acceptance_length_is_counted_over_steps_that_had_a_draft(change, bursts):
    rates = compute_rates(change, speculating("ngram", WINDOW))
    assert rates.values["acceptance_length"] == 8.0  # 1 + 28 / 4: every draft was accepted whole
    assert rates.values["target_steps_per_token"] == pytest.approx(7 / 34)
    assert max(bursts) == WINDOW + 1
