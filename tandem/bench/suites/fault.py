"""What is wrong with a suite, in words that lead to the line at fault.

Invariant: all faults of one file are told together, each with its place, what was found, what is allowed and what to
change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tandem.bench.fault import BenchError

MAX_FAULTS = 20  # faults that are spelt out; a file of another format has one on every line


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFault:
    """One fault.

    Args:
        where: the file as the user named it, with `:line` where a line is at fault.
        problem: what was found.
        allowed: what would be accepted.
        change: what to do about it.
    """

    where: str
    problem: str
    allowed: str
    change: str

    def __str__(self) -> str:
        """Render it as one line, for a log."""
        return f"{self.where}: {self.problem}; allowed: {self.allowed}; {self.change}"


class SuiteError(BenchError):
    """A suite cannot be used.

    Args:
        faults: every fault found, at least one; `problem`, `where` and `change` are those of the first.
    """

    def __init__(self, faults: Sequence[SuiteFault]) -> None:
        first = faults[0]
        super().__init__(f"{first.problem}; allowed: {first.allowed}", where=first.where, change=first.change)
        self.faults = tuple(faults)
        lines = [str(fault) for fault in self.faults[:MAX_FAULTS]]
        if len(self.faults) > MAX_FAULTS:
            lines.append(f"{len(self.faults) - MAX_FAULTS} more faults of this file are not shown")
        self.args = ("\n".join(lines),)
