"""What is said to a claim before it becomes a row of the report.

Invariant: a sentence goes with every word.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

AnswerWord = Literal["confirmed", "contradicted", "no evidence", "not comparable"]


class ClaimAnswer(NamedTuple):
    """An answer and why."""

    answer: AnswerWord
    reason: str

    def add_sentence(self, sentence: str) -> ClaimAnswer:
        """Return the same answer with one more sentence."""
        return ClaimAnswer(self.answer, f"{self.reason}. {sentence}")
