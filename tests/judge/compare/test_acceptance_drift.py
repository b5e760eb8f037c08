"""Acceptance over a series of runs: the word of each later run, by tokens of a chunk alone."""

from __future__ import annotations

import itertools

import pytest
from observed import Asked, observed

from tandem.judge.compare.acceptance_drift import join_series
from tandem.judge.compare.comparison import compare_tables
from tandem.report.comparison_table import render_series


def run(day, per_chunk, prompts=12):
    """Every prompt in four rounds; answers of 64 tokens in chunks of `per_chunk`, one more or less
    by prompt."""
    requests = [
        Asked(
            arm=arm,
            prompt=f"p{number}",
            round=round_,
            figures={"tokens_per_chunk": size + 0.1 * (number % 3) * (size > 1)},
        )
        for (arm, size), number, round_ in itertools.product(
            (("base", 1.0), ("spec", per_chunk)), range(prompts), range(4)
        )
    ]
    return observed(requests, created_utc=f"2026-11-{day:02}T00:00:00Z")


def drift(before, after):
    rows = compare_tables(before, after, margin=0.05).acceptance
    return next(row for row in rows if row.arm == "spec")


@pytest.mark.parametrize(("later", "word"), [(4.0, "same"), (2.5, "lower"), (6.0, "higher")])
def test_word_of_a_later_run_s_acceptance(later, word):
    assert drift(run(1, 4.0), run(2, later)).word == word


def test_acceptance_is_tokens_of_the_chunks_after_the_first():
    row = drift(run(1, 4.0), run(2, 4.0))
    assert row.methods == ("tokens per chunk", "tokens per chunk")
    assert row.before == pytest.approx(63 / 15, abs=0.1)


def test_few_prompts_are_no_evidence():
    assert drift(run(1, 4.0, prompts=2), run(2, 2.0, prompts=2)).word == "no evidence"


def test_a_server_that_streams_each_token_alone_gets_no_word():
    rows = compare_tables(run(1, 1.0), run(2, 1.0), margin=0.05).acceptance
    assert {row.word for row in rows} <= {"no evidence"}


@pytest.mark.parametrize(
    ("later", "answer"),
    [((4.0, 4.0), "did not drift"), ((4.0, 2.5), "drifted"), ((1.0, 1.0), "no evidence")],
)
def test_a_series_says_whether_acceptance_drifted(later, answer):
    runs = [
        compare_tables(run(1, 4.0), run(day, size), margin=0.05)
        for day, size in enumerate(later, 2)
    ]
    assert answer in join_series(runs).answer


def test_a_series_shows_each_later_run():
    runs = [compare_tables(run(1, 4.0), run(day, 2.5), margin=0.05) for day in (2, 3)]
    lines = "\n".join(render_series(join_series(runs)))
    assert lines.count("  lower") == 2
    assert lines.startswith("acceptance drifted")
