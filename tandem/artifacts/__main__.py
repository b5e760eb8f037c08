"""`python -m tandem.artifacts COMMAND`: parse, call, log.

Invariant: no traceback for a foreseeable fault; the last line of a failed process says what to do; a process that
is told to stop lets go of the lease it holds.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from tandem.artifacts.fault import ArtifactError, RefusedError
from tandem.artifacts.log import say, tell

# command -> what it does; the module of the same name has `add_arguments(parser)` and `run(options) -> int`
COMMANDS = {
    "stage": "bring one model snapshot from a hub or a folder into the bucket",
    "fetch": "before a compile: bring the staged models to local disk, or say that the artifact is there",
    "compile": "run the runtime's own compiler under a deadline, with retries by class of failure",
    "verify": "hold an artifact, local or stored, against its key and its manifest",
    "upload": "after a compile: verify the artifact, store it, write its manifest last",
    "keep": "after a measurement: store its results, and end as it ended",
    "admit": "before serving: compare artifact and Deployment, refuse or make the artifact local",
    "list": "show stored models and artifacts",
    "explain": "name the fields in which two artifacts differ",
    "collect": "delete what nobody uses and is old",
    "adopt": "take in an artifact that was compiled elsewhere",
}
ABOUT = "stage models, compile variants, and hold what is stored against its key and its bytes"
EPILOG = "exit codes: 0 done, or present already; 1 stale; 2 bad input; 3 the world outside failed"
INTERRUPTED = 130
BY_SIGNAL = 128  # plus its number, as shells tell it
AGAIN = "run the same command again: what was finished is kept"


class ToldToStop(BaseException):
    """The process got SIGTERM; no error, and nothing that handles errors may catch it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        _overview().parse_args(arguments)  # prints the help, or refuses the word
        return RefusedError.code
    module = import_module(f"tandem.artifacts.{name}")  # this command's alone: a pod waits for no other's imports
    parser = argparse.ArgumentParser(
        prog=f"python -m tandem.artifacts {name}", description=COMMANDS[name], epilog=EPILOG
    )
    module.add_arguments(parser)
    options = parser.parse_args(arguments[1:])
    if "AWS_REGION" in os.environ:  # what pods are given, as everywhere on AWS; boto3 itself reads the other name only
        os.environ.setdefault("AWS_DEFAULT_REGION", os.environ["AWS_REGION"])
    try:
        code = int(module.run(options))
        sys.stdout.flush()
    except ArtifactError as error:
        tell(error)
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except ToldToStop:
        code = BY_SIGNAL + signal.SIGTERM
        say("told to stop (SIGTERM)", level="warning", change=AGAIN, exit_code=code)
    except BrokenPipeError:  # whoever read the lines is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BY_SIGNAL + signal.SIGPIPE
    return code


def _stop(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough: what is under way now lets go of what is held
    raise ToldToStop


def _overview() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tandem.artifacts", description=ABOUT, epilog=EPILOG)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, does in COMMANDS.items():
        commands.add_parser(name, help=does, add_help=False)
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)  # a container's first process ignores a signal that it has no handler for
    sys.exit(main())
