"""Whether the answers that are timed are any: a speed is worth nothing where the text is none.

Invariant: counted are answers, of rounds that count, that the suite's content check looked at. What one arm alone
breaks is for equality to find; here both do, as where model files are damaged, and then outputs may well be identical.
A refusal or a loop may be how a small model answers, so they are told and bar nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tandem.bench.judge.observations import UNKNOWN
from tandem.bench.judge.pairs import Grouped
from tandem.bench.output.refused import BROKEN

NO_TEXT = ("empty", "garbage")
"""Words of the content check of what no model that works would say to most prompts."""


class Broken(NamedTuple):
    """Answers of an arm that were checked, those refused for anything, and those that are no text."""

    arm: str
    checked: int
    refused: int
    no_text: int

    @property
    def mostly(self) -> bool:
        """Whether more than half are no text."""
        return 2 * self.no_text > self.checked


def broken(grouped: Grouped, *arms: str) -> tuple[Broken, ...]:
    """Return what the content check refused of each arm."""
    seen = grouped.seen
    checked = grouped.rows() & ~seen.failed & (seen.content != UNKNOWN)

    def count(arm: str, words: Sequence[str]) -> int:
        codes = [code for code, word in enumerate(seen.contents) if word in words]
        return int((checked & seen.of_arm(arm) & np.isin(seen.content, codes)).sum())

    return tuple(
        Broken(arm, int((checked & seen.of_arm(arm)).sum()), count(arm, BROKEN), count(arm, NO_TEXT)) for arm in arms
    )


def worthless(grouped: Grouped, baseline: str, variant: str) -> str:
    """Return why no speed of these arms is worth anything; empty where their answers are text."""
    both = broken(grouped, baseline, variant)
    if not all(one.mostly for one in both):
        return ""
    told = " and ".join(f"{one.no_text} of {one.checked} answers of {one.arm}" for one in reversed(both))
    return f"{told} are empty or garbage, and a speed is worth nothing where the text is none"
