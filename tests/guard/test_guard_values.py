"""Values of the guard's objects: what is read of a text that anybody may have written."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tandem.guard.values import (
    MAX_TEXT_CHARACTERS,
    parse_count,
    parse_optional_text,
    parse_timestamp,
    shorten_text,
)


def test_a_moment_is_read_in_utc():
    moment = parse_timestamp("2026-11-28T10:00:00+02:00")

    assert moment == datetime(2026, 11, 28, 8, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-11-28T10:00:00", "1999-12-31T23:59:59Z", "tomorrow"])
def test_a_moment_that_no_lease_can_have_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_timestamp(text)


@pytest.mark.parametrize("value", [True, 1.0, "1", -1, 11])
def test_what_is_no_count_is_refused(value):
    with pytest.raises(ValueError, match="no whole number from 0 to 10"):
        parse_count(value, 10)


def test_the_largest_count_is_read():
    assert parse_count(10, 10) == 10


def test_a_text_of_another_type_is_refused():
    with pytest.raises(TypeError, match="no text"):
        parse_optional_text(1)


def test_a_long_text_is_cut_to_one_line():
    text = shorten_text("a\n" * MAX_TEXT_CHARACTERS)

    assert len(text) == MAX_TEXT_CHARACTERS + len("...")
    assert "\n" not in text
