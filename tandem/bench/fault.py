"""What goes wrong with a measurement, in words an operator can act on at night."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tandem.errors import ExitCode, TandemError


class BenchError(TandemError):
    """A measurement, or a file of one, cannot be used."""


class ExternalBenchError(BenchError):
    """A server or the disk failed. What was recorded before is kept."""

    exit_code = ExitCode.EXTERNAL_FAILURE


@contextmanager
def convert_os_errors(problem: str, path: Path, change: str, kind: type[BenchError] = BenchError) -> Iterator[None]:
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
        raise kind(f"{problem}: {error.strerror or error}", where=str(path), change=change) from error
