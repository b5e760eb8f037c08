"""Which finish reasons end a complete answer."""

from __future__ import annotations

import pytest

from tandem.bench.records.finish_reason import (
    GOOD_ENDS,
    is_good_end,
    is_limit_end,
    read_finish_reason,
)


@pytest.mark.parametrize("word", ["abort", "insufficient_system_resource"])
def test_a_word_outside_the_list_ends_no_complete_answer(word):
    assert not is_good_end(word)


def test_each_good_end_names_its_sources():
    assert [
        word for word, end in GOOD_ENDS.items() if not end.sources or not is_good_end(word.upper())
    ] == []


@pytest.mark.parametrize(
    ("word", "is_limit"),
    [
        ("length", True),
        ("MAX_TOKENS", True),
        ("stop", False),
        (None, False),
    ],
)
def test_the_words_of_a_limit_are_told(word, is_limit):
    assert is_limit_end(word) is is_limit


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("stop", "stop"),
        (None, None),
        ("", None),
        ("null", None),
        (7, "7"),
        ({"type": "abort", "message": "m"}, "abort"),
        ({"type": None}, None),
    ],
)
def test_a_finish_reason_is_read_in_every_form(value, word):
    assert read_finish_reason(value) == word
