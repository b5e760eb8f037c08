"""What goes wrong with an artifact, in words an operator can act on at night.

Invariant: every fault says what happened, where (a file or an object) and what to do; its code is the exit
code of the process, the same everywhere: 1 stale, 2 bad input, 3 the world outside failed.
"""

from __future__ import annotations

from typing import ClassVar


class ArtifactError(Exception):
    """One fault.

    Args:
        what: what happened, in one sentence.
        where: the file's path or the object's `s3://` address; empty for neither.
        change: what to do about it.
    """

    code: ClassVar[int]

    def __init__(self, what: str, *, where: str = "", change: str) -> None:
        super().__init__(f"{where}: {what}; {change}" if where else f"{what}; {change}")
        self.what, self.where, self.change = what, where, change


class StaleError(ArtifactError):
    """What is there is not what was asked for."""

    code = 1


class ArtifactInputError(ArtifactError):
    """The input cannot be used, whatever the world does."""

    code = 2


class ArtifactExternalError(ArtifactError):
    """Something outside failed: the hub, S3, the disk, a compiler. What was finished is kept."""

    code = 3
