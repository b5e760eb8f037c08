"""`python -m tandem.artifacts COMMAND`: parse, call, log.

Invariant: no traceback for a foreseeable fault; the last line of a failed process says what to do;
a process that gets SIGTERM releases its lease.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.job_env import adopt_region, log_fault
from tandem.errors import INTERRUPT_EXIT_CODE, TandemError

# command -> help text; the module of the same name has `add_arguments(parser)` and `run(options) ->
# int`
COMMANDS = {
    "stage": "bring one model snapshot from a hub or a folder into the bucket",
    "fetch": (
        "before a compile: bring the staged models to local disk, or say that the artifact is there"
    ),
    "verify": "compare a stored model or artifact with its manifest, byte by byte",
    "upload": "after a compile: inspect the artifact, store it, write its manifest last",
    "fetch-tasks": "before the quality tasks: bring the declared task sets to local disk",
    "keep": "after a measurement: store its results, and exit with its code",
    "admit": "before serving: compare artifact and Deployment, refuse or make the artifact local",
}
# modules whose name differs from the command
MODULES = {"fetch-tasks": "task_sets", "keep": "upload_results"}
ABOUT = "stage models, compile variants, and compare what is stored with its key and its bytes"
EPILOG = (
    "exit codes: 0 done, or present already; 1 stale; 2 bad input; 3 an external service failed"
)
SIGNAL_EXIT_BASE = 128  # plus the signal's number, as in shells
RETRY_ADVICE = "run the same command again: what was finished is kept"


class TerminationSignal(BaseException):
    """SIGTERM arrived; no error, so no handler of errors may catch this."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="python -m tandem.artifacts", description=ABOUT, epilog=EPILOG
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command_parser = subparsers.add_parser(
            name, help=summary, description=summary, epilog=EPILOG
        )
        if name in arguments[:1]:  # import only this command's module
            module = import_module(f"tandem.artifacts.{MODULES.get(name, name)}")
            module.add_arguments(command_parser)
    options = parser.parse_args(arguments)
    adopt_region()
    try:
        exit_code = int(module.run(options))
        sys.stdout.flush()
    except TandemError as error:
        exit_code = error.exit_code
        log_fault(error, exit_code)
    except KeyboardInterrupt:
        return INTERRUPT_EXIT_CODE
    except TerminationSignal:
        exit_code = SIGNAL_EXIT_BASE + signal.SIGTERM
        log_event(
            "told to stop (SIGTERM)", level="warning", change=RETRY_ADVICE, exit_code=exit_code
        )
    except BrokenPipeError:  # the reader of the lines is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SIGNAL_EXIT_BASE + signal.SIGPIPE
    return exit_code


def _raise_termination(signal_number: int, _frame: object) -> NoReturn:
    # one signal is enough: the cleanup now releases the lease
    signal.signal(signal_number, signal.SIG_IGN)
    raise TerminationSignal


if __name__ == "__main__":
    # a container's first process ignores a signal without a handler
    signal.signal(signal.SIGTERM, _raise_termination)
    sys.exit(main())
