"""What an answer to a claim consists of, and how its texts are joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tandem.post.schema import AnswerWord

_MAX_TEXTS = 4  # cells that are spelt out in an answer


class ClaimAnswer(NamedTuple):
    """Answer of a run to a claim, and the reason."""

    word: AnswerWord
    reason: str

    def add_sentence(self, sentence: str) -> ClaimAnswer:
        """Return the same answer with one more sentence."""
        return ClaimAnswer(self.word, f"{self.reason}. {sentence}")


def join_first(texts: Sequence[str]) -> str:
    """Return the first few of many, and how many more there are."""
    remainder = ""
    if len(texts) > _MAX_TEXTS:
        remainder = f"; and {len(texts) - _MAX_TEXTS} more"
    return "; ".join(texts[:_MAX_TEXTS]) + remainder
