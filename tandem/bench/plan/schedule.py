"""The order of the arms' turns, and the numbers of the control rounds.

Invariant: a pass has every arm once, and every second pass is the mirror of the previous one, so a
linear drift over the two affects every arm equally. Two arms give A B B A, then B A A B. With more
arms the passes follow the rows of a Williams design, in which every arm comes directly after every
other arm equally often.

Control rounds measure the baseline against itself. They sample the time of a run: with R rounds and
N control rounds, one control round is in the middle of each N-th of the R. If time limits the run,
R is unknown: control rounds come after 1, 3, 7, 15, ... rounds, so a short run has one early and a
long run has more.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

# added to the baseline's name for its own control on the same server; no NAME of a server has a #
CONTROL_SUFFIX = "#2"

# Fewest rounds of a run with a verdict: the judge estimates from them the effect that all prompts
# of a round share. The number is here because a run is planned without scipy.
FEWEST_ROUNDS = 4


class LoadLevel(msgspec.Struct, frozen=True, kw_only=True):
    """Load of a class: a concurrency or a rate; both are None before a knee is searched."""

    concurrency: int | None = None
    rate_per_s: float | None = None

    def __str__(self) -> str:
        """Return the load as progress shows it."""
        if self.concurrency:
            return f"concurrency {self.concurrency}"
        if self.rate_per_s is None:
            return "rates up to the knee"
        return f"{self.rate_per_s:.4g} requests/s"


class ArmLoad(NamedTuple):
    """Place of a cell without its metric; class None means all classes together."""

    arm: str
    class_: str | None
    concurrency: int | None
    rate_per_s: float | None

    def pool_classes(self) -> ArmLoad:
        """Return the load of all classes together."""
        return self._replace(class_=None)


class TurnKey(NamedTuple):
    """Key of an arm's turn, shared by records and scrapes; class None if it mixes classes."""

    arm: str
    class_: str | None
    concurrency: int | None
    rate_per_s: float | None
    round: int
    slot: int

    @property
    def load(self) -> ArmLoad:
        """The cell of the turn."""
        return ArmLoad(*self[:4])

    def pool_classes(self) -> TurnKey:
        """Return the turn of all classes together in the same round and slot."""
        return self._replace(class_=None)


def first_order(arms: Sequence[str], seed: int) -> tuple[str, ...]:
    """Return the arms in the order of the first pass, drawn from the seed."""
    order = list(arms)
    random.Random(f"{seed}/arms").shuffle(order)  # noqa: S311 - repeatable, no secret
    return tuple(order)


def pass_order(arms: Sequence[str], number: int) -> tuple[str, ...]:
    """Return the order of one pass.

    The rows 0, 1, n-1, 2, n-2, ..., each shifted by one, have every pair of neighbours equally
    often. For an odd count this is true for the rows together with their mirrors (Williams 1949),
    and each row has its mirror.

    Args:
        arms: in the order of `first_order`.
        number: of the pass, from 0, counted over all rounds.
    """
    count = len(arms)
    first_row = [0] + [
        place // 2 + 1 if place % 2 == 0 else count - place // 2 - 1 for place in range(count - 1)
    ]
    order = [arms[(place + number // 2) % count] for place in first_row]
    return tuple(order if number % 2 == 0 else order[::-1])


def control_numbers(rounds: int | None, controls: int) -> tuple[int, ...]:
    """Return the numbers of a run's control rounds, from 0.

    Args:
        rounds: number of other rounds; None if time limits the run.
        controls: number of control rounds; the most, if time limits the run.
    """
    if rounds is None:
        earlier_rounds = [(2 << index) - 1 for index in range(controls)]
    else:
        earlier_rounds = [
            ((2 * index + 1) * rounds + controls) // (2 * controls) for index in range(controls)
        ]
    return tuple(number + index for index, number in enumerate(earlier_rounds))


def assign_starts(rounds: int, control_rounds: int, starts: int) -> tuple[int, ...]:
    """Return each round's start of the servers, from 1; a control round has that of the one before.

    Args:
        rounds: without control rounds, at least as many as starts.
        control_rounds: as planned.
        starts: of each server.
    """
    controls = control_numbers(rounds, control_rounds)
    numbers = list[int]()
    earlier_rounds = 0
    for number in range(rounds + control_rounds):
        if number in controls:
            numbers.append(numbers[-1] if numbers else 1)
        else:
            numbers.append(1 + earlier_rounds * starts // rounds)
            earlier_rounds += 1
    return tuple(numbers)
