"""The `tandem` command; `python -m tandem` is the same.

Invariant: Ctrl-C ends every command with code 130 and without a traceback, also while it loads its
modules; a second one ends it at once. So nothing is loaded before both are arranged: what is
imported here is built into Python.
"""

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False  # as a type checker reads it; the name of `typing` would load that
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # `signal` itself loads `enum`

INTERRUPT_EXIT_CODE = 130  # as in tandem.errors, which is not loaded yet


class InterruptExit:
    """How this process ends by Ctrl-C.

    Attributes:
        is_requested: whether Ctrl-C came, outside of a run, which ends by itself.
    """

    def __init__(self) -> None:
        self.is_requested = False
        signal.signal(signal.SIGINT, self._raise_interrupt)
        # where nobody can raise: in a callback of the import system, or while an object is deleted
        sys.unraisablehook = self._end_unraisable
        # the last act of Python itself takes all handlers away, and lets a signal kill it
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)

    def _raise_interrupt(self, _number: int, _frame: object) -> None:
        self.is_requested = True
        signal.signal(signal.SIGINT, end_process)
        raise KeyboardInterrupt

    def _end_unraisable(self, error: sys.UnraisableHookArgs) -> None:
        if issubclass(error.exc_type, KeyboardInterrupt):
            end_process()
        sys.__unraisablehook__(error)


def end_process(_number: int = 0, _frame: object = None) -> None:
    """End the process at once; every record so far is on disk."""
    os._exit(INTERRUPT_EXIT_CODE)


def main() -> int:
    """Run the command of the process's arguments; return its exit code."""
    interrupt = InterruptExit()
    try:
        from tandem.cli.program import main as run_program  # noqa: PLC0415 - may be interrupted

        code = run_program()
    except BaseException:
        # a library may answer an interrupt of its import by an error of its own
        if not interrupt.is_requested:
            raise
        code = INTERRUPT_EXIT_CODE
    finally:
        signal.signal(signal.SIGINT, end_process)
    return INTERRUPT_EXIT_CODE if interrupt.is_requested and code else code


if __name__ == "__main__":
    sys.exit(main())
