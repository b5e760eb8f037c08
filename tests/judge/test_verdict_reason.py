"""The reason for a word."""

from __future__ import annotations

import pytest

from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.judge.verdict_reason import explain_few_rounds


@pytest.mark.parametrize(
    ("rounds", "is_said"),
    [(0, False), (1, True), (FEWEST_ROUNDS - 1, True), (FEWEST_ROUNDS, False)],
)
def test_few_rounds_are_a_reason_where_there_is_a_round(rounds, is_said):
    assert explain_few_rounds(rounds).startswith(f"{rounds} round") is is_said
