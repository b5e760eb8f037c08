"""The command and its attempts under one deadline: start, watch, classify, retry where it helps.

Invariant: an output that is called compiled came from one attempt that began from a clean output
and ended well.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import http.client
import shutil
import signal
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tandem.artifacts.driver import failure, folders, outcome, program
from tandem.artifacts.driver.failure import DEADLINE, NOTHING_LEFT, STOP_REQUEST, FailureKind
from tandem.artifacts.driver.log import log_event
from tandem.artifacts.driver.outcome import CompileOutcome

EXIT_DONE = 0
GRACE_S = 300.0  # a server writes its caches when it ends
STOP_GRACE_S = 20.0  # of a discarded attempt
HEARTBEAT_S = 60.0
HEALTH_INTERVAL_S = 5.0  # between two health checks of a server
HEALTH_TIMEOUT_S = 5.0
HEALTHY_STATUS = 200  # of HTTP
# for a server on this machine: no proxy
URL_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
MIN_ATTEMPT_S = 60.0  # an attempt needs more time than this


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `compile`."""
    parser.add_argument("--skip-if", type=Path, help="do nothing if this file exists")
    parser.add_argument("--outcome", type=Path, required=True, help="file that says how it went")
    parser.add_argument("--output", type=Path, required=True, help="folder that the program fills")
    parser.add_argument("--cache", type=Path, required=True, help="folder of the compiler's cache")
    parser.add_argument(
        "--deadline-s", type=float, required=True, help="seconds for all attempts together"
    )
    parser.add_argument("--attempts", type=int, default=3, help="most attempts")
    parser.add_argument(
        "--until-healthy", default="", help="URL: the program is a server, end it when this answers"
    )
    parser.add_argument(
        "--grace-s", type=float, default=GRACE_S, help="seconds for a healthy server to end in"
    )
    defer_help = "exit 0 also where it was given up: the next container says so and fails"
    parser.add_argument("--defer", action="store_true", help=defer_help)
    parser.add_argument(
        "--where",
        choices=("device", "cpu"),
        help="where it runs; left out: cpu without /dev/neuron*",
    )
    parser.add_argument(
        "--unproven", action="append", default=[], help="what of it nobody has shown; repeatable"
    )
    parser.add_argument(
        "--heartbeat-s", type=float, default=HEARTBEAT_S, help="seconds between two signs of life"
    )
    ask_help = "seconds between two questions to the server"
    parser.add_argument("--ask-s", type=float, default=HEALTH_INTERVAL_S, help=ask_help)
    events_path = Path("/sys/fs/cgroup/memory.events")
    parser.add_argument(
        "--memory-events", type=Path, default=events_path, help="the control group's counters"
    )
    parser.add_argument("program", nargs="+", help="after --: the program and its arguments")


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="driver",
        description=(
            "Run a runtime's own compiler under one deadline, with retries by class of failure."
        ),
        epilog=(
            "exit codes: 0 compiled, or nothing to do, or given up with --defer; 2 bad input; 3"
            " failed"
        ),
    )
    add_arguments(parser)
    return run(parser.parse_args(argv))


def run(options: argparse.Namespace) -> int:
    """Compile, or log the reason for no artifact; return the exit code."""
    if options.skip_if and options.skip_if.exists():
        log_event("the artifact is there already", file=options.skip_if)
        return EXIT_DONE
    try:
        return _run_driver(options)
    except OSError as error:  # of our own files; failures of the program have their own classes
        kind = failure.UNKNOWN
        line = f"{error.filename or options.outcome}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            kind = failure.DISK_FULL
            with contextlib.suppress(OSError):  # there may be room once the half output is gone
                folders.clean_output(options.output, options.cache, keep_graphs=False)
                return _give_up(options, outcome.create_outcome(options), kind, line)
        log_event(
            f"not compiled: {kind.name}",
            level="error",
            line=line,
            change=kind.change,
            exit_code=kind.code,
        )
        return kind.code


def _run_driver(options: argparse.Namespace) -> int:
    program.adopt_orphans()
    current = outcome.resume_outcome(options)
    last_attempt = current.attempts[-1] if current.attempts else None
    if current.result == outcome.RESULT_SUCCESS and any(folders.walk_files(options.output)):
        folders.finish_output(options.output)
        log_event("compiled already", outcome=options.outcome, where=current.where)
        return EXIT_DONE
    if current.result == outcome.RESULT_SUCCESS:  # and the output is gone: the disk is new
        current = outcome.create_outcome(options)
    elif (
        last_attempt
        and last_attempt.kind != STOP_REQUEST.name
        and not current.may_retry(options.attempts)
    ):
        return _give_up(
            options,
            current,
            failure.KINDS.get(last_attempt.kind, failure.UNKNOWN),
            last_attempt.line,
        )
    return CompileDriver(options, current).run()


def _give_up(
    options: argparse.Namespace, current: CompileOutcome, kind: FailureKind, line: str
) -> int:
    """Record and log that no further attempt follows; return the exit code.

    With `--defer` that is 0: the pod's next container reads the outcome, releases the compile's
    lease and ends with the failure's own code.
    """
    if not current.attempts or current.attempts[-1].kind != kind.name:
        current.attempts.append(
            outcome.CompileAttempt(kind.name, None, 0.0, line[: program.LINE_BYTES])
        )
    current.result = outcome.RESULT_GIVEN_UP
    current.write(options.outcome)
    log_event(**(current.failure or {}), level="error")
    return EXIT_DONE if options.defer else kind.code


class CompileDriver:
    """One run of the driver: its options, its outcome, and a stop signal if one arrived."""

    def __init__(self, options: argparse.Namespace, current: CompileOutcome) -> None:
        self.options = options
        self.outcome = current
        self._stop_signal = ""
        self._last_heartbeat_s = time.monotonic()
        self._last_health_check_s = 0.0

    @property
    def remaining_s(self) -> float:
        """Return the seconds until the deadline, over all attempts and restarts."""
        return float(self.options.deadline_s) - max(0.0, time.time() - self.outcome.began)

    def run(self) -> int:
        """Try until an attempt succeeds or a further one cannot help; return the exit code."""
        options = self.options
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, self._on_stop_signal)
        while True:
            if self.remaining_s < min(MIN_ATTEMPT_S, options.deadline_s / 2):
                return _give_up(
                    options, self.outcome, DEADLINE, f"{options.deadline_s:g} s are over"
                )
            kind, line = self._run_attempt()
            if kind is None:
                folders.finish_output(options.output)
                size = folders.measure_folder(options.output)
                seconds = round(time.time() - self.outcome.began)
                log_event(
                    "compiled",
                    seconds=seconds,
                    bytes=size,
                    where=self.outcome.where,
                    unproven=self.outcome.unproven,
                )
                return EXIT_DONE
            if kind is STOP_REQUEST:
                log_event(
                    "stopped", level="warning", line=line, change=kind.change, exit_code=kind.code
                )
                return kind.code
            if not self.outcome.may_retry(options.attempts):
                return _give_up(options, self.outcome, kind, line)
            log_event(
                "trying again",
                level="warning",
                failure=kind.name,
                line=line,
                left_s=round(self.remaining_s),
            )

    def _run_attempt(self) -> tuple[FailureKind | None, str]:
        """Run the program once from a clean start; return its failure's class and a line."""
        options = self.options
        attempts = self.outcome.attempts
        keep_graphs = bool(options.until_healthy and attempts)
        folders.clean_output(options.output, options.cache, keep_graphs=keep_graphs)
        number = 1 + sum(attempt.kind != STOP_REQUEST.name for attempt in attempts)
        log_event(
            "compiling", attempt=number, attempts=options.attempts, left_s=round(self.remaining_s)
        )
        start_s = time.monotonic()
        kills_before = program.count_oom_kills(options.memory_events)
        self.outcome.result = outcome.RESULT_RUNNING
        self.outcome.write(options.outcome)
        try:
            group = program.ProgramGroup(options.program)
        except OSError as error:
            line = f"{options.program[0]}: {error.strerror}"
            return self._record_attempt(failure.BAD_ARGUMENTS, line, None, 0.0)
        try:
            kind, line = self._wait_for_end(group)
        finally:
            group.kill_all()
        status = group.status()
        if kind is None and line:
            folder = next(
                path for path in (options.output, *options.output.parents) if path.exists()
            )
            free_bytes = shutil.disk_usage(folder).free
            kills = program.count_oom_kills(options.memory_events) - kills_before
            kind, sign_line = failure.classify_failure(
                group.sign_lines,
                group.last_line,
                status or 0,
                oom_kills=kills,
                free_bytes=free_bytes,
            )
            line = sign_line if kind is not failure.UNKNOWN else f"{line}: {sign_line}"
        return self._record_attempt(kind, line, status, time.monotonic() - start_s)

    def _wait_for_end(self, group: program.ProgramGroup) -> tuple[FailureKind | None, str]:
        """Wait for an attempt: (None, "") on success, (None, why) if its log tells the class."""
        options = self.options
        while True:
            status = group.status()
            if status is not None and options.until_healthy:
                return None, f"the server ended with status {status} before it was healthy"
            if status:
                return None, f"the program ended with status {status}"
            if status == 0:
                if any(folders.walk_files(options.output)):
                    return None, ""
                return NOTHING_LEFT, f"the program ended well and left nothing in {options.output}"
            if self._stop_signal or self.remaining_s <= 0:
                group.terminate(min(STOP_GRACE_S, options.grace_s), whole_group=True)
                end: tuple[FailureKind, str] = (DEADLINE, f"{options.deadline_s:g} s are over")
                if self._stop_signal:
                    end = (STOP_REQUEST, f"{self._stop_signal} arrived")
                return end
            if options.until_healthy and self._is_healthy(options.until_healthy):
                return self._end_server(group)
            if time.monotonic() - self._last_heartbeat_s >= options.heartbeat_s:
                self._log_heartbeat()
            group.wait(program.POLL_INTERVAL_S)

    def _end_server(self, group: program.ProgramGroup) -> tuple[FailureKind | None, str]:
        """Stop a healthy server with SIGTERM to its main process, so that it writes its caches."""
        grace_s = self.options.grace_s
        output = self.options.output
        log_event("healthy", url=self.options.until_healthy, grace_s=grace_s)
        if not group.terminate(grace_s, whole_group=False):
            reason = (
                "the server was killed because it did not"
                f" end within {grace_s:g} s of being asked to"
            )
            self.outcome.unproven.append(f"{reason}: what it writes at its end may be missing")
            log_event("the server does not end", level="warning", grace_s=grace_s)
        if not folders.count_finished(output):
            return NOTHING_LEFT, f"the server was healthy and left no finished graph in {output}"
        return None, ""

    def _is_healthy(self, url: str) -> bool:
        if time.monotonic() - self._last_health_check_s < self.options.ask_s:
            return False
        self._last_health_check_s = time.monotonic()
        try:
            with URL_OPENER.open(url, timeout=HEALTH_TIMEOUT_S) as answer:
                return int(answer.status) == HEALTHY_STATUS
        # a URLError is an OSError; a non-HTTP answer is not
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def _log_heartbeat(self) -> None:
        self._last_heartbeat_s = time.monotonic()
        output_bytes = folders.measure_folder(self.options.output)
        cache_bytes = folders.measure_folder(self.options.cache)
        graphs = folders.count_finished(self.options.cache)
        left_s = round(self.remaining_s)
        log_event(
            "still compiling",
            left_s=left_s,
            finished_graphs=graphs,
            output_bytes=output_bytes,
            cache_bytes=cache_bytes,
        )

    def _record_attempt(
        self, kind: FailureKind | None, line: str, status: int | None, seconds: float
    ) -> tuple[FailureKind | None, str]:
        name = kind.name if kind else outcome.RESULT_SUCCESS
        seconds = round(seconds, 1)
        attempt = outcome.CompileAttempt(name, status, seconds, line[: program.LINE_BYTES])
        self.outcome.attempts.append(attempt)
        self.outcome.result = outcome.RESULT_FAILURE if kind else outcome.RESULT_SUCCESS
        self.outcome.write(self.options.outcome)
        if kind:
            log_event(
                "attempt failed",
                level="warning",
                failure=name,
                exit=status,
                seconds=seconds,
                line=line,
            )
        return kind, line

    def _on_stop_signal(self, signal_number: int, _frame: object) -> None:
        self._stop_signal = signal.Signals(signal_number).name
