"""Loops at the end of an answer."""

from __future__ import annotations

import pytest

from tandem.bench.suites.loops import is_loop


@pytest.mark.parametrize(("count", "expected"), [(7, False), (8, True)])
def test_repeats_are_a_loop_from_24_words_on(count, expected):
    assert is_loop("one two three " * count, is_cut=False, allows_like_lines=False) is expected


@pytest.mark.parametrize("is_cut", [True, False])
def test_the_last_word_of_a_cut_answer_does_not_count(is_cut):
    assert is_loop("one two three " * 10 + "on", is_cut=is_cut, allows_like_lines=False) is is_cut


@pytest.mark.parametrize(("count", "expected"), [(19, False), (20, True)])
def test_like_lines_of_code_are_a_loop_from_60_words(count, expected):
    assert is_loop("one two three " * count, is_cut=False, allows_like_lines=True) is expected
