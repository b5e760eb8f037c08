"""One event: the errors that it may report, and its counts."""

from __future__ import annotations

import pytest

from tandem.bench.load.event import describe_error, find_error


@pytest.mark.parametrize(
    ("message", "description"),
    [
        ({"error": "engine died"}, "engine died"),
        ({"errors": [{"msg": "quota"}]}, "quota"),
        ({"choices": [], "x_groq": {"id": "x", "error": "over capacity"}}, "over capacity"),
        ({"object": "error", "message": "engine died"}, "engine died"),
        ({"code": 500, "message": "engine died", "type": "InternalServerError"}, "engine died"),
    ],
)
def test_an_error_is_found_in_every_form(message, description):
    assert describe_error(find_error(message)) == description


@pytest.mark.parametrize(
    "message", [{"error": {"code": 0}}, {"choices": [], "code": 500}, {"code": 200}, 42]
)
def test_a_message_without_an_error_has_none(message):
    assert find_error(message) is None
