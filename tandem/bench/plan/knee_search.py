"""The search for the knee of each arm: the next turn, decided from the turns so far.

Invariant: a pure function of the turns in the order of sending, so a run that goes on, a run in
virtual time and the judge see the same search.

A *knee* is the highest rate of an open loop at which a given share of the requests keeps every
limit of `--goodput`. The *pilot* of an arm doubles or halves its rate until one rate keeps the
share and a higher one does not, then bisects the two until they are 15 % apart; the pilot's rate is
their geometric mean. Six rounds follow. Each sends five rates, from 0.75 to 1.3 of the pilot's
rate of that arm, by position A B B A.

A *turn* starts on an idle server. Its first requests warm the server up and are not counted: enough
to fill the server seven times, at least 28 and at most 300. At least 112 counted requests follow,
more until the two halves of them agree. The load goes on until the last counted request has ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tandem.bench.plan.schedule import pass_order

GOODPUT_SHARE = 0.95
ROUNDS = 6
RATE_FACTORS = tuple(0.75 * (1.3 / 0.75) ** (place / 4) for place in range(5))
MAX_BRACKET = 1.15  # the pilot ends when its two rates are so close
WARM_UP_LIMITS = (28, 300)
WARM_UP_FILLS = 7  # requests of a warm-up, in requests that are in flight at once
LEAST_COUNTED = 112
COUNT_STEP = 56
MOST_COUNTED = 448
MAX_HALF_ERRORS = 2.0  # standard errors by which two halves that agree may differ
FIRST_IN_FLIGHT = 4  # requests that are in flight at the first rate of a pilot
IDLE_IN_FLIGHT = 0.1  # with fewer requests in flight, a server is as fast as it can be
PILOT_ROUND = 0  # its turns are numbered by their slot; the measured rounds begin at 1


class KneeTurn(NamedTuple):
    """One turn of an arm.

    Args:
        arm: name of the arm.
        rate_per_s: of the open loop.
        round: PILOT_ROUND, or a measured round from 1.
        slot: number of the pilot's turn, or position of the rate.
        warm_up: number of requests that are sent and not counted.
    """

    arm: str
    rate_per_s: float
    round: int
    slot: int
    warm_up: int


class KneeTurnCount(NamedTuple):
    """Counted requests of a whole turn.

    Args:
        turn: that was sent.
        counted: number of counted requests.
        good: those that kept every limit.
        request_s: mean duration of a counted request in seconds.
        is_late: whether the measuring machine could not send the load.
    """

    turn: KneeTurn
    counted: int
    good: int
    request_s: float
    is_late: bool = False

    @property
    def share(self) -> float:
        """Share of the counted requests that kept every limit."""
        return self.good / self.counted


@dataclass(frozen=True, slots=True, kw_only=True)
class KneePilot:
    """What the pilot of an arm says.

    Args:
        next_rate_per_s: of its next turn; None if the pilot has ended.
        rate_per_s: its result; None without one.
        request_s: duration of a request at the highest rate that kept the share, in seconds.
        lowest_bad: lowest rate that did not keep the share; None if none did not.
        highest_good: highest rate that kept it; None if none did.
    """

    next_rate_per_s: float | None
    rate_per_s: float | None = None
    request_s: float | None = None
    lowest_bad: float | None = None
    highest_good: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KneeSearch:
    """The search over all arms.

    Args:
        arms: names, in the order of the first pass.
        share: of requests that must keep every limit.
        first_rates: rate of each arm's first turn; a recorded turn replaces it.
    """

    arms: Sequence[str]
    share: float
    first_rates: Mapping[str, float]

    def next_turn(self, counts: Sequence[KneeTurnCount]) -> KneeTurn | None:
        """Return the turn after `counts`; None if the search has ended."""
        for arm in self.arms:
            pilot = self._read_pilot(counts, arm)
            if pilot.next_rate_per_s is not None:
                warm_up = count_warm_up(pilot.next_rate_per_s, pilot.request_s)
                slot = len(list_pilot(counts, arm))
                return KneeTurn(arm, pilot.next_rate_per_s, PILOT_ROUND, slot, warm_up)
        return next(iter(self.list_missing(counts)), None)

    def list_missing(self, counts: Sequence[KneeTurnCount]) -> list[KneeTurn]:
        """Return the turns of the measured rounds that are missing, once every pilot has ended."""
        pilots = {arm: self._read_pilot(counts, arm) for arm in self.arms}
        done_places = {(count.turn.arm, count.turn.round, count.turn.slot) for count in counts}
        return [
            turn
            for turn in list_round_turns(self.arms, pilots)
            if (turn.arm, turn.round, turn.slot) not in done_places
        ]

    def _read_pilot(self, counts: Sequence[KneeTurnCount], arm: str) -> KneePilot:
        return read_pilot(list_pilot(counts, arm), self.share, self.first_rates.get(arm, 1.0))


def list_pilot(counts: Sequence[KneeTurnCount], arm: str) -> list[KneeTurnCount]:
    """Return the turns of an arm's pilot."""
    return [count for count in counts if count.turn.arm == arm and count.turn.round == PILOT_ROUND]


def read_pilot(counts: Sequence[KneeTurnCount], share: float, first_rate_per_s: float) -> KneePilot:
    """Return what a pilot's turns say; pure.

    A turn that the machine could not send says nothing of the server. It is sent once more; if
    that is late too, the pilot stays below its rate.

    Args:
        counts: turns of the pilot.
        share: of requests that must keep every limit.
        first_rate_per_s: of the first turn.
    """
    if not counts:
        return KneePilot(next_rate_per_s=first_rate_per_s)
    last = counts[-1]
    tries = sum(count.turn.rate_per_s == last.turn.rate_per_s for count in counts)
    if last.is_late and tries == 1:
        return KneePilot(next_rate_per_s=last.turn.rate_per_s, request_s=last.request_s)

    sent_counts = [count for count in counts if not count.is_late]
    good_counts = [count for count in sent_counts if count.share >= share]
    bad_rates = [count.turn.rate_per_s for count in sent_counts if count.share < share]
    sent_rates = {count.turn.rate_per_s for count in sent_counts}
    late_rates = {count.turn.rate_per_s for count in counts} - sent_rates
    best = max(good_counts, key=lambda count: count.turn.rate_per_s, default=None)
    highest_good = best.turn.rate_per_s if best else None
    request_s = best.request_s if best else last.request_s
    lowest_bad = min(bad_rates, default=None)
    ceiling = min([*bad_rates, *late_rates], default=None)

    next_rate_per_s = _choose_rate(counts, highest_good, ceiling)
    rate_per_s = None
    if next_rate_per_s is None and highest_good and lowest_bad and lowest_bad == ceiling:
        rate_per_s = math.sqrt(highest_good * lowest_bad)
    return KneePilot(
        next_rate_per_s=next_rate_per_s,
        rate_per_s=rate_per_s,
        request_s=request_s,
        lowest_bad=lowest_bad,
        highest_good=highest_good,
    )


def _choose_rate(
    counts: Sequence[KneeTurnCount], highest_good: float | None, ceiling: float | None
) -> float | None:
    """Return the rate of a pilot's next turn; None if it has ended.

    Args:
        counts: turns of the pilot.
        highest_good: rate that kept the share.
        ceiling: lowest rate that did not keep it, or could not be sent.
    """
    if ceiling is None:
        return 2 * counts[-1].turn.rate_per_s
    if highest_good is not None:
        is_open = ceiling / highest_good > MAX_BRACKET
        return math.sqrt(highest_good * ceiling) if is_open else None

    lowest = min(counts, key=lambda count: count.turn.rate_per_s)
    in_flight = lowest.turn.rate_per_s * lowest.request_s  # Little's law
    return lowest.turn.rate_per_s / 2 if in_flight > IDLE_IN_FLIGHT else None


def list_round_turns(arms: Sequence[str], pilots: Mapping[str, KneePilot]) -> list[KneeTurn]:
    """Return every turn of the measured rounds, of the arms whose pilot has a rate.

    Two arms alternate by position as A B B A, and the next round as B A A B.
    """
    turns = []
    for round_ in range(ROUNDS):
        for slot, factor in enumerate(RATE_FACTORS):
            for arm in pass_order(arms, round_ * len(RATE_FACTORS) + slot):
                pilot = pilots[arm]
                if pilot.rate_per_s is not None:
                    rate_per_s = pilot.rate_per_s * factor
                    warm_up = count_warm_up(rate_per_s, pilot.request_s)
                    turns.append(KneeTurn(arm, rate_per_s, round_ + 1, slot, warm_up))
    return turns


def count_warm_up(rate_per_s: float, request_s: float | None) -> int:
    """Return the number of requests that warm a turn up.

    Args:
        rate_per_s: of the turn.
        request_s: duration of a request in seconds; None if no turn has ended.
    """
    least, most = WARM_UP_LIMITS
    if request_s is None:
        return least
    return min(max(math.ceil(WARM_UP_FILLS * rate_per_s * request_s), least), most)


def count_requests(good: Sequence[bool]) -> int | None:
    """Return how many requests of a turn count; None if it needs more.

    Args:
        good: whether each request after the warm-up kept every limit, in the order of sending;
            those up to the next possible end must have ended.
    """
    for count in range(LEAST_COUNTED, min(len(good), MOST_COUNTED) + 1, COUNT_STEP):
        middle = count // 2
        first_share = sum(good[:middle]) / middle
        second_share = sum(good[middle:count]) / middle
        share = (first_share + second_share) / 2
        error = math.sqrt(max(share * (1 - share), 1 / count) * 4 / count)
        if abs(first_share - second_share) <= MAX_HALF_ERRORS * error or count == MOST_COUNTED:
            return count
    return None


def next_count(sent: int) -> int:
    """Return the smallest number of counted requests that may end a turn, from `sent` on."""
    steps = max(-(-(sent - LEAST_COUNTED) // COUNT_STEP), 0)
    return LEAST_COUNTED + steps * COUNT_STEP
