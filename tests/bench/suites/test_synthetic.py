"""Synthetic prompts: the same for the same seed, and no two alike."""

from __future__ import annotations

from dataclasses import replace

from tandem.bench.suites.synthetic import SyntheticShape

SHAPE = SyntheticShape(input_tokens=64, output_tokens=40, count=12, seed=3)


def test_the_seed_decides_the_words():
    suite = SHAPE.draft_suite()

    assert suite.sha256 == replace(SHAPE).draft_suite().sha256
    assert suite.sha256 != replace(SHAPE, seed=4).draft_suite().sha256
    assert {prompt.max_tokens for prompt in suite.prompts} == {40}


def test_no_two_prompts_begin_alike():
    starts = [prompt.as_text()[:24] for prompt in SHAPE.draft_suite().prompts]
    assert len(set(starts)) == len(starts) == 12
