"""Whether the answers that are timed are any: a speed is worth nothing where the text is none.

Invariant: counted are answers, of rounds that count, that the suite's content check looked at. What one arm alone
breaks is for equality to find; here both do, as where model files are damaged, and then outputs may well be identical.
A refusal or a loop may be how a small model answers, so they are told and bar nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from tandem.bench.request_table import UNKNOWN
from tandem.judge.equality.content_rejections import BROKEN_CONTENT
from tandem.judge.pairs import RequestPairing

NO_TEXT = ("empty", "garbage")
"""Words of the content check of what no model that works would say to most prompts."""


class ContentCounts(NamedTuple):
    """Answers of an arm that were checked, those refused for anything, and those that are no text.

    `word_counts` counts the refused ones by the content check's word, the most frequent first.
    """

    arm: str
    answer_count: int
    refusal_count: int
    no_text_count: int
    word_counts: tuple[tuple[str, int], ...]

    @property
    def is_mostly_empty(self) -> bool:
        """Whether more than half are no text."""
        return 2 * self.no_text_count > self.answer_count


def count_content(pairing: RequestPairing, *arms: str) -> tuple[ContentCounts, ...]:
    """Return what the content check refused of each arm."""
    table = pairing.table
    answer_mask = pairing.row_mask() & ~table.failed & (table.content != UNKNOWN)

    def count_words(arm: str) -> ContentCounts:
        arm_answers = answer_mask & table.arm_mask(arm)
        counts = np.bincount(table.content[arm_answers], minlength=len(table.contents)).tolist()
        words = Counter(
            {word: n for word, n in zip(table.contents, counts, strict=True) if n and word in BROKEN_CONTENT}
        )
        no_text = sum(words[word] for word in NO_TEXT)
        return ContentCounts(arm, int(arm_answers.sum()), words.total(), no_text, tuple(words.most_common()))

    return tuple(map(count_words, arms))


def explain_invalidity(pairing: RequestPairing, baseline: str, variant: str) -> str:
    """Return why no speed of these arms is worth anything; empty where their answers are text."""
    arm_counts = count_content(pairing, baseline, variant)
    if not all(counts.is_mostly_empty for counts in arm_counts):
        return ""
    counts_text = " and ".join(
        f"{counts.no_text_count} of {counts.answer_count} answers of {counts.arm}" for counts in reversed(arm_counts)
    )
    return f"{counts_text} are empty or garbage, and a speed is worth nothing where the text is none"
