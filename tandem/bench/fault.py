"""What goes wrong with a measurement, in words an operator can act on at night.

Invariant: every fault says what happened, where (a file, a line, a server) and what to do; its code is the exit
code of the process, the same everywhere: 2 bad input, 3 the world outside failed.
"""

from __future__ import annotations

from typing import ClassVar


class BenchError(Exception):
    """The input cannot be used, whatever the world does.

    Args:
        problem: what happened, in one sentence without its full stop.
        where: the file, with `:line` where one is at fault, or the server's address; empty for neither.
        change: what to do about it, in one sentence without its full stop.
    """

    code: ClassVar[int] = 2

    def __init__(self, problem: str, *, where: str = "", change: str) -> None:
        super().__init__(f"{where}: {problem}; {change}" if where else f"{problem}; {change}")
        self.problem, self.where, self.change = problem, where, change

    def __reduce__(self) -> tuple[object, ...]:
        """Let it cross from a process that reads a part of a file."""
        return _rebuild_error, (type(self), self.problem, self.where, self.change)


class ExternalBenchError(BenchError):
    """Something outside failed: a server, the disk. What was recorded before is kept."""

    code: ClassVar[int] = 3


def _rebuild_error(kind: type[BenchError], problem: str, where: str, change: str) -> BenchError:
    return kind(problem, where=where, change=change)
