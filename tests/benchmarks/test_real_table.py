"""The tables of `make real`, recomputed from a recorded run of two real vLLM servers
(real_run/)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import others
import pytest
import real
import real_table
from real_table import Run, contradictions, seen

from tandem.bench.records.counters import CounterChange
from tandem.bench.records.record import split_chunks

RECORDED = Path(__file__).parent / "real_run"
WINDOWS = {"base": 0, "ngram": 7}


@pytest.fixture
def run():
    return real_table.read(RECORDED / "ngram", WINDOWS)


def with_counts(run: Run, arm: str, **counts: float) -> Run:
    """The same run, some counters of the arm's first turn put to other values."""
    first = run.of(arm)[0]
    new_turn = replace(first, change=CounterChange({**first.change.counts, **counts}))
    return replace(run, turns=tuple(new_turn if turn is first else turn for turn in run.turns))


def test_streams_and_counters_of_the_recorded_run_agree_in_every_request(run):
    assert contradictions(run) == []


def test_accepted_tokens_by_the_stream_are_within_the_window_of_the_counters(run):
    ngram = seen(run.of("ngram"))
    assert ngram.accepted_counted > 0
    assert ngram.accepted_off <= WINDOWS["ngram"]


def test_a_counter_that_is_off_by_more_than_the_window_is_a_contradiction(run):
    count = run.of("ngram")[0].change.counts["accepted_tokens"]
    (sentence,) = contradictions(with_counts(run, "ngram", accepted_tokens=count + 20))
    assert "more than the window of 7" in sentence


def test_a_step_that_came_joined_with_the_next_is_no_accepted_token(run):
    turn = run.of("base")[0]
    record = turn.records[0]
    third, fourth = record.chunks[3:5]
    joined_chunk = fourth._replace(tokens=third.tokens + fourth.tokens)
    chunks = (*record.chunks[:3], joined_chunk, *record.chunks[5:])
    new_turn = replace(turn, records=(msgspec.structs.replace(record, **split_chunks(chunks)),))
    turns = [new_turn if old_turn is turn else old_turn for old_turn in run.turns]

    assert seen((new_turn,)).accepted == 1
    assert contradictions(replace(run, turns=tuple(turns))) == []


def test_drafts_on_the_arm_without_speculation_are_a_contradiction(run):
    assert contradictions(with_counts(run, "base", drafts=1)) == [
        "base: its window is 0, and it counted 1 drafts"
    ]


def test_llmperfs_definition_hides_what_speculation_gives(run):
    base = seen(run.of("base"))
    ngram = seen(run.of("ngram"))
    assert base.llmperf_ms / ngram.llmperf_ms < base.tpot_ms / ngram.tpot_ms


def test_a_busy_machine_is_refused_before_anything_is_installed(monkeypatch, capsys):
    monkeypatch.setattr(others, "look", lambda: 0.5)
    monkeypatch.setattr(real, "ensure_python", pytest.fail)
    assert real.main(["--no-docs"]) == real.WORLD_FAILED
    assert "other programs take 50%" in capsys.readouterr().err
