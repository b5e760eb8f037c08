"""Whether the answers that are timed are any: a speed is worth nothing where the text is none.

Invariant: counted are answers, of rounds that count, that the suite's content check looked at. What one arm alone
breaks is for equality to find; here both do, as where model files are damaged, and then outputs may well be identical.
A refusal or a loop may be how a small model answers, so they are told and bar nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from tandem.bench.judge.observations import UNKNOWN
from tandem.bench.judge.pairs import Grouped
from tandem.bench.output.refused import BROKEN

NO_TEXT = ("empty", "garbage")
"""Words of the content check of what no model that works would say to most prompts."""


class Broken(NamedTuple):
    """Answers of an arm that were checked, those refused for anything, and those that are no text.

    `words` counts the refused ones by the content check's word, the most frequent first.
    """

    arm: str
    checked: int
    refused: int
    no_text: int
    words: tuple[tuple[str, int], ...]

    @property
    def mostly(self) -> bool:
        """Whether more than half are no text."""
        return 2 * self.no_text > self.checked


def broken(grouped: Grouped, *arms: str) -> tuple[Broken, ...]:
    """Return what the content check refused of each arm."""
    seen = grouped.seen
    checked = grouped.rows() & ~seen.failed & (seen.content != UNKNOWN)

    def count_words(arm: str) -> Broken:
        answers = checked & seen.of_arm(arm)
        counts = np.bincount(seen.content[answers], minlength=len(seen.contents)).tolist()
        words = Counter({word: n for word, n in zip(seen.contents, counts, strict=True) if n and word in BROKEN})
        no_text = sum(words[word] for word in NO_TEXT)
        return Broken(arm, int(answers.sum()), words.total(), no_text, tuple(words.most_common()))

    return tuple(map(count_words, arms))


def worthless(grouped: Grouped, baseline: str, variant: str) -> str:
    """Return why no speed of these arms is worth anything; empty where their answers are text."""
    both = broken(grouped, baseline, variant)
    if not all(one.mostly for one in both):
        return ""
    told = " and ".join(f"{one.no_text} of {one.checked} answers of {one.arm}" for one in reversed(both))
    return f"{told} are empty or garbage, and a speed is worth nothing where the text is none"
