"""What goes wrong with a measurement, in words an operator can act on at night."""

from __future__ import annotations

from tandem.errors import ExitCode, TandemError


class BenchError(TandemError):
    """A measurement, or a file of one, cannot be used."""


class ExternalBenchError(BenchError):
    """A server or the disk failed. What was recorded before is kept."""

    exit_code = ExitCode.EXTERNAL_FAILURE
