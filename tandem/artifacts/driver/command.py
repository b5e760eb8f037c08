"""The command: its options, what an earlier run of it left, and faults of its own files."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path

from tandem.artifacts.driver.attempts import EXIT_DONE, CompileDriver, give_up, may_try_again
from tandem.artifacts.driver.failure import DISK_FULL, KINDS, STOP_REQUEST, UNKNOWN
from tandem.artifacts.driver.folders import walk_files
from tandem.artifacts.driver.log import log_event
from tandem.artifacts.driver.outcome import (
    RESULT_SUCCESS,
    create_outcome,
    hash_request,
    read_outcome,
    resume_outcome,
)
from tandem.artifacts.driver.output import clean_output, finish_output
from tandem.artifacts.driver.program import adopt_orphans

GRACE_S = 300.0  # a server writes its caches when it ends
HEARTBEAT_S = 60.0
HEALTH_INTERVAL_S = 5.0  # between two questions to a server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `compile`."""
    parser.add_argument("--skip-if", type=Path, help="do nothing if this file exists")
    parser.add_argument("--outcome", type=Path, required=True, help="file that says how it went")
    parser.add_argument("--output", type=Path, required=True, help="folder that the program fills")
    parser.add_argument("--cache", type=Path, required=True, help="folder of the compiler's cache")
    parser.add_argument("--deadline-s", type=float, required=True, help="seconds for all attempts together")
    parser.add_argument("--attempts", type=int, default=3, help="most attempts")
    parser.add_argument("--until-healthy", default="", help="URL: the program is a server, end it when this answers")
    parser.add_argument("--grace-s", type=float, default=GRACE_S, help="seconds for a healthy server to end in")
    parser.add_argument(
        "--defer", action="store_true", help="exit 0 also where it was given up: the next container says so and fails"
    )
    parser.add_argument("--where", choices=("device", "cpu"), help="where it runs; left out: cpu without /dev/neuron*")
    parser.add_argument("--unproven", action="append", default=[], help="what of it nobody has shown; repeatable")
    parser.add_argument("--heartbeat-s", type=float, default=HEARTBEAT_S, help="seconds between two signs of life")
    parser.add_argument(
        "--ask-s", type=float, default=HEALTH_INTERVAL_S, help="seconds between two questions to the server"
    )
    parser.add_argument(
        "--memory-events", type=Path, default=Path("/sys/fs/cgroup/memory.events"), help="the control group's counters"
    )
    parser.add_argument("program", nargs="+", help="after --: the program and its arguments")


def run(options: argparse.Namespace) -> int:
    """Compile once, or say why not; the exit code."""
    if options.skip_if and options.skip_if.exists():
        log_event("the artifact is there already", file=options.skip_if)
        return EXIT_DONE
    try:
        return _run_driver(options)
    except OSError as error:  # of our own files: the program's failures are classed
        line = f"{error.filename or options.outcome}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _record_full_disk(options, line)
        log_event(
            f"not compiled: {UNKNOWN.name}", level="error", line=line, change=UNKNOWN.change, exit_code=UNKNOWN.code
        )
        return UNKNOWN.code


def _run_driver(options: argparse.Namespace) -> int:
    adopt_orphans()
    outcome = resume_outcome(options)
    last_attempt = outcome.attempts[-1] if outcome.attempts else None
    if outcome.result == RESULT_SUCCESS and any(True for _ in walk_files(options.output)):
        finish_output(options.output)
        log_event("compiled already", outcome=options.outcome, where=outcome.where)
        return EXIT_DONE
    if outcome.result == RESULT_SUCCESS:  # and the output is gone: the disk is a new one
        outcome = create_outcome(options, outcome.request)
    elif last_attempt and last_attempt.kind != STOP_REQUEST.name and not may_try_again(outcome, options.attempts):
        return give_up(options, outcome, KINDS.get(last_attempt.kind, UNKNOWN), last_attempt.line)
    return CompileDriver(options, outcome).run()


def _record_full_disk(options: argparse.Namespace, line: str) -> int:
    """Note a disk that had no room for our own files, once what the attempt left half is gone; the exit code."""
    with contextlib.suppress(OSError):
        clean_output(options.output, options.cache, keep_graphs=False)
        request = hash_request(options.program, os.environ)
        earlier_outcome = read_outcome(options.outcome)
        outcome = (
            earlier_outcome
            if earlier_outcome and earlier_outcome.request == request
            else create_outcome(options, request)
        )
        return give_up(options, outcome, DISK_FULL, line)
    log_event(
        f"not compiled: {DISK_FULL.name}", level="error", line=line, change=DISK_FULL.change, exit_code=DISK_FULL.code
    )
    return DISK_FULL.code


def main(argv: Sequence[str] | None = None) -> int:
    """Parse and run; the exit code."""
    parser = argparse.ArgumentParser(
        prog="driver", description="Run a runtime's own compiler under one deadline, with retries by class of failure.",
        epilog="exit codes: 0 compiled, or nothing to do, or given up with --defer; 2 bad input; 3 failed",
    )  # fmt: skip
    add_arguments(parser)
    return run(parser.parse_args(argv))
