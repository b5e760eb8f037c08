"""One root for every fault that a user meets: what, where, what to change, the exit code.

Invariant: a TandemError is a sentence that an operator can act on at three in the morning; its exit
code is the same in every command. Whatever another library raises becomes one at the border where
it is met. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import ClassVar

INTERRUPT_EXIT_CODE = 130  # what a shell gives for a program that Ctrl-C ended


class ExitCode(IntEnum):
    """The exit codes of every command (docs/decisions)."""

    DONE = 0
    STALE = 1
    BAD_INPUT = 2
    EXTERNAL_FAILURE = 3
    VOID = 4


class TandemError(Exception):
    """One fault.

    Args:
        problem: what happened, in one sentence without its full stop.
        where: the file with `:line`, the object's `s3://` address, the resource or the server;
            empty for none.
        change: what to do about it, in one sentence without its full stop.
        places: of the fault within `where`, such as `line 3`, without anything that stands there.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.BAD_INPUT

    def __init__(
        self, problem: str, *, where: str = "", change: str, places: Sequence[str] = ()
    ) -> None:
        super().__init__(f"{where}: {problem}; {change}" if where else f"{problem}; {change}")
        self.problem = problem
        self.where = where
        self.change = change
        self.places = tuple(places)

    def as_dict(self) -> dict[str, str]:
        """Return what `--json` prints below the key `error`."""
        return {"problem": self.problem, "where": self.where, "change": self.change}


class StaleError(TandemError):
    """What exists is not what was asked for."""

    exit_code = ExitCode.STALE


class InputError(TandemError):
    """The input cannot be used, whatever AWS, a hub or a server does."""

    exit_code = ExitCode.BAD_INPUT


class SchemaError(InputError):
    """A stored object has another schema than this version of Tandem reads.

    Args:
        label: the user's name for the object, such as "the record".
        found: schema of the object; None if it names none.
        known: the schema that this version reads.
        where, change: as for any fault.
    """

    def __init__(
        self, label: str, found: object, known: int, *, where: str, change: str = ""
    ) -> None:
        schema = "no schema" if found is None else f"schema {found}"
        problem = f"{label} has {schema}; this version of Tandem reads schema {known}"
        super().__init__(problem, where=where, change=change or "use the version that wrote it")


class ExternalError(TandemError):
    """An external service failed: AWS, a hub, a server, the disk. What was finished is kept."""

    exit_code = ExitCode.EXTERNAL_FAILURE


class SilentServerError(ExternalError):
    """Nothing answers at a server's address: it starts, is down, or its node is gone."""


@contextmanager
def convert_os_errors(
    problem: str, path: Path, change: str, kind: type[TandemError] = InputError
) -> Iterator[None]:
    """Raise what the operating system refuses as a fault.

    Args:
        problem: what could not be done, before the system's reason.
        path: what could not be read or written.
        change: what to do about it.
        kind: of the fault.
    """
    try:
        yield
    except OSError as error:
        raise kind(
            f"{problem}: {error.strerror or error}", where=str(path), change=change
        ) from error
