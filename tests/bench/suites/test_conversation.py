"""What is sent of a recorded conversation."""

from __future__ import annotations

import pytest

from tandem.bench.suites.conversation import OmissionError, cut_turns, read_turns


def cut(text: str, count: int) -> str:
    """Cut turns written as `u:question a:answer`, and write what is left so."""
    names = {"s": "system", "u": "user", "a": "assistant"}
    entries = [{"role": names[turn[0]], "content": turn.partition(":")[2]} for turn in text.split()]
    turns = cut_turns(read_turns(entries), count)
    return " ".join(f"{role[0]}:{words}".replace("\n\n", "+") for role, words in turns)


@pytest.mark.parametrize(
    ("turns", "count", "sent"),
    [
        ("u:1 a:1 u:2 a:2", 1, "u:1"),
        ("u:1 a:1 u:2 a:2", 2, "u:1 a:1 u:2"),
        ("u:1 a:1 u:2 a:2", 9, "u:1 a:1 u:2"),
        ("s:0 a:0 u:1 a:1", 1, "s:0 u:1"),
        ("u:1 s:0 a:1 u:2", 2, "u:1 a:1 u:2"),
        ("u: u:1 a: u:2 a:2", 1, "u:1+2"),
        ("u:1 a:1 a:2 u:2", 2, "u:1 a:1+2 u:2"),
    ],
)
def test_a_conversation_ends_with_the_wanted_turn_of_the_user(turns, count, sent):
    assert cut(turns, count) == sent


@pytest.mark.parametrize("turns", ["a:1", "s:0 a:1", "u: a:1"])
def test_a_conversation_in_which_nobody_asks_is_left_out(turns):
    with pytest.raises(OmissionError, match="no turn of the user"):
        cut(turns, 1)
