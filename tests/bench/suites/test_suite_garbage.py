"""Garbage by its words and signs."""

from __future__ import annotations

import pytest

from tandem.bench.suites.garbage import is_garbage


@pytest.mark.parametrize("allows_symbols", [True, False])
def test_glued_words_are_garbage_in_prose_alone(allows_symbols):
    assert is_garbage("left=right " * 10, allows_symbols=allows_symbols) is not allows_symbols


@pytest.mark.parametrize(("count", "expected"), [(2, False), (3, True)])
def test_a_character_that_was_cut_in_two_is_no_garbage(count, expected):
    assert is_garbage("all is well" + "\ufffd" * count, allows_symbols=False) is expected
