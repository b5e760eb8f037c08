"""What is said to a claim before it becomes a row of the report.

Invariant: a sentence goes with every word.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Word = Literal["confirmed", "contradicted", "no evidence", "not comparable"]


class Said(NamedTuple):
    """An answer and why."""

    answer: Word
    why: str

    def and_(self, sentence: str) -> Said:
        """Return the same answer with one more sentence."""
        return Said(self.answer, f"{self.why}. {sentence}")
