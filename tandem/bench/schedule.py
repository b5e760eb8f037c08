"""In which order the arms take their turns.

Invariant: a pass has every arm once, and every second pass is the mirror of the one before, so a drift of the world
that is linear over the two touches every arm alike. Two arms give A B B A, then B A A B. With more arms the passes
follow the rows of a Williams design, in which every arm comes right behind every other arm equally often.

Control rounds ask the baseline against itself. They sample the time of a run: of R rounds and N control rounds, one
control round stands in the middle of each N-th of the R. Where the clock decides, R is not known: they stand behind 1,
3, 7, 15, ... rounds, so that a short run has one early and a long one has more.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

# behind the baseline's name: the same server asked once more, as its own control; no NAME of a server has a #
CONTROL_SUFFIX = "#2"

# Rounds from which on a run has a verdict: a judge estimates from them what all prompts of a round share, and calls a
# difference. It stands here because a run is planned where scipy is absent.
FEWEST_ROUNDS = 4


class LoadLevel(msgspec.Struct, frozen=True, kw_only=True):
    """How hard a class was asked: one of both is None."""

    concurrency: int | None = None
    rate_per_s: float | None = None

    def __str__(self) -> str:
        """Name it as progress shows it."""
        return f"concurrency {self.concurrency}" if self.concurrency else f"{self.rate_per_s:g} requests/s"


class ArmLoad(NamedTuple):
    """What a cell has in common next to its metric; class None is every class together."""

    arm: str
    class_: str | None
    concurrency: int | None
    rate_per_s: float | None

    def pool_classes(self) -> ArmLoad:
        """Return the load of all classes together."""
        return self._replace(class_=None)


class TurnKey(NamedTuple):
    """One turn of an arm: what its records and scrapes share; class None where it mixes classes, or pools them."""

    arm: str
    class_: str | None
    concurrency: int | None
    rate_per_s: float | None
    round: int
    slot: int

    @property
    def load(self) -> ArmLoad:
        """The cell that the turn is part of."""
        return ArmLoad(*self[:4])

    def pool_classes(self) -> TurnKey:
        """Return the turn of all classes together at its place."""
        return self._replace(class_=None)


def first_order(arms: Sequence[str], seed: int) -> tuple[str, ...]:
    """Return the arms in the order of the first pass, drawn from the seed."""
    order = list(arms)
    random.Random(f"{seed}/arms").shuffle(order)  # noqa: S311 - repeatable, nobody is kept out by it
    return tuple(order)


def pass_order(arms: Sequence[str], number: int) -> tuple[str, ...]:
    """Return the order of one pass.

    The rows 0, 1, n-1, 2, n-2, ..., each one further, put every pair of neighbours equally often. For an odd count that
    holds of the rows together with their mirrors (Williams 1949), and each row has its mirror.

    Args:
        arms: the arms as `first_order` gave them.
        number: of the pass, from 0, counted over all rounds.
    """
    count = len(arms)
    first_row = [0] + [place // 2 + 1 if place % 2 == 0 else count - place // 2 - 1 for place in range(count - 1)]
    order = [arms[(place + number // 2) % count] for place in first_row]
    return tuple(order if number % 2 == 0 else order[::-1])


def control_numbers(rounds: int | None, controls: int) -> tuple[int, ...]:
    """Return which rounds of a run, from 0, are control rounds.

    Args:
        rounds: how many others there are; None where the clock decides.
        controls: how many control rounds there are, or at most where the clock decides.
    """
    if rounds is None:
        earlier_rounds = [(2 << index) - 1 for index in range(controls)]
    else:
        earlier_rounds = [((2 * index + 1) * rounds + controls) // (2 * controls) for index in range(controls)]
    return tuple(number + index for index, number in enumerate(earlier_rounds))
