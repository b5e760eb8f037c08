"""The order of a knee's turns: pilots first, then rounds; and when a turn may end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tandem.bench.plan.knee_search import (
    MAX_BRACKET,
    PILOT_ROUND,
    RATE_FACTORS,
    ROUNDS,
    KneeSearch,
    KneeTurn,
    KneeTurnCount,
    count_requests,
    count_warm_up,
)


def run_search(
    arms: tuple[str, ...], count_turn: Callable[[KneeTurn], KneeTurnCount]
) -> list[KneeTurnCount]:
    search = KneeSearch(arms=arms, share=0.95, first_rates=dict.fromkeys(arms, 1.0))
    counts: list[KneeTurnCount] = []
    while (turn := search.next_turn(counts)) is not None:
        counts.append(count_turn(turn))
    return counts


def count_below_5(turn: KneeTurn) -> KneeTurnCount:
    """Every request is good up to 5 a second, and none above it."""
    return KneeTurnCount(turn, 112, 112 if turn.rate_per_s <= 5.0 else 0, 2.0)


def test_pilot_doubles_then_bisects_to_15_percent():
    counts = run_search(("a",), count_below_5)

    pilot_rates = [count.turn.rate_per_s for count in counts if count.turn.round == PILOT_ROUND]
    assert pilot_rates[:4] == [1.0, 2.0, 4.0, 8.0]
    good_rate = max(rate for rate in pilot_rates if rate <= 5)
    bad_rate = min(rate for rate in pilot_rates if rate > 5)
    assert bad_rate / good_rate <= MAX_BRACKET
    first_round = [count.turn.rate_per_s for count in counts if count.turn.round == 1]
    pilot_rate = (good_rate * bad_rate) ** 0.5
    assert first_round == pytest.approx([pilot_rate * factor for factor in RATE_FACTORS])


def test_arms_alternate_by_position():
    counts = run_search(("a", "b"), count_below_5)

    order = "".join(count.turn.arm for count in counts if count.turn.round != PILOT_ROUND)
    assert len(order) == 2 * ROUNDS * len(RATE_FACTORS)
    assert order[:20] == "abbabaababbabaababba"


def test_load_that_cannot_be_sent_ends_a_pilot_without_a_rate():
    counts = run_search(
        ("a",), lambda turn: KneeTurnCount(turn, 112, 112, 2.0, is_late=turn.rate_per_s > 5)
    )

    assert {count.turn.round for count in counts} == {PILOT_ROUND}


def test_turn_that_was_late_once_is_sent_again():
    late_rates: list[float] = []

    def count_turn(turn: KneeTurn) -> KneeTurnCount:
        count = count_below_5(turn)
        is_late = turn.rate_per_s == 4.0 and not late_rates
        late_rates.extend([turn.rate_per_s] if is_late else [])
        return count._replace(is_late=is_late)

    counts = run_search(("a",), count_turn)

    assert [count.turn.rate_per_s for count in counts[:5]] == [1.0, 2.0, 4.0, 4.0, 8.0]
    assert max(count.turn.round for count in counts) == ROUNDS


def test_server_that_keeps_no_limit_ends_its_pilot_when_idle():
    counts = run_search(("a",), lambda turn: KneeTurnCount(turn, 112, 0, 2.0))

    assert {count.turn.round for count in counts} == {PILOT_ROUND}
    assert counts[-1].turn.rate_per_s * 2.0 <= 0.1


@pytest.mark.parametrize(
    ("good", "counted"),
    [
        ([True] * 111, None),
        ([True] * 112, 112),
        ([True] * 56 + [False] * 56, None),
        ([True] * 56 + [False] * 56 + [True] * 56, 168),
        ([True] * 56 + [False] * 392, 448),
    ],
)
def test_turn_goes_on_until_its_halves_agree(good, counted):
    assert count_requests(good) == counted


def test_warm_up_fills_the_server_seven_times():
    assert count_warm_up(0.5, 4.0) == 28
    assert count_warm_up(10.0, 2.0) == 140
    assert count_warm_up(14.0, 10.0) == 300
