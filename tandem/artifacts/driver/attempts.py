"""Attempts under one deadline: begin, watch, judge, and once more where that is not in vain.

Invariant: what is called compiled came from one attempt that began from a clean output and ended well.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tandem.artifacts.driver.cache import find_graphs
from tandem.artifacts.driver.failure import (
    BAD_ARGUMENTS,
    DEADLINE,
    NOTHING_LEFT,
    STOP_REQUEST,
    UNKNOWN,
    FailureKind,
    classify_failure,
    may_retry_failure,
)
from tandem.artifacts.driver.folders import find_existing_folder, read_file_size, walk_files
from tandem.artifacts.driver.lines import LINE_BYTES
from tandem.artifacts.driver.log import log_event
from tandem.artifacts.driver.outcome import (
    RESULT_FAILURE,
    RESULT_GIVEN_UP,
    RESULT_RUNNING,
    RESULT_SUCCESS,
    CompileAttempt,
    CompileOutcome,
)
from tandem.artifacts.driver.output import clean_output, finish_output
from tandem.artifacts.driver.program import POLL_INTERVAL_S, ProgramGroup, count_oom_kills

EXIT_DONE = 0
STOP_GRACE_S = 20.0  # of an attempt that is thrown away
HEALTH_TIMEOUT_S = 5.0
MIN_ATTEMPT_S = 60.0  # an attempt needs more time than this


@dataclass
class CompileDriver:
    """One run: the options as given, and whether somebody asked it to end."""

    options: argparse.Namespace
    outcome: CompileOutcome
    stop_signal: str = ""
    _last_heartbeat_s: float = field(default_factory=time.monotonic)
    _last_health_check_s: float = 0.0

    @cached_property
    def _url_opener(self) -> Any:
        """What asks the server on this machine, past any proxy."""
        import urllib.request  # noqa: PLC0415 - a third of the driver's start, and of use to a server's compile alone

        return urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def remaining_s(self) -> float:
        """Return the seconds until the deadline, over all attempts and restarts."""
        return float(self.options.deadline_s) - max(0.0, time.time() - self.outcome.began)

    def run(self) -> int:
        """Try until it is compiled or another try would be in vain; the exit code."""
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, self._on_stop_signal)
        while True:
            if self.remaining_s < min(MIN_ATTEMPT_S, self.options.deadline_s / 2):
                return give_up(self.options, self.outcome, DEADLINE, f"{self.options.deadline_s:g} s are over")
            kind, line = self._run_attempt()
            if kind is None:
                return self._finish_compile()
            if kind is STOP_REQUEST:
                log_event(
                    "stopped", level="warning", line=line, change=STOP_REQUEST.change, exit_code=STOP_REQUEST.code
                )
                return STOP_REQUEST.code
            if not may_try_again(self.outcome, self.options.attempts):
                return give_up(self.options, self.outcome, kind, line)
            log_event("trying again", level="warning", failure=kind.name, line=line, left_s=round(self.remaining_s))

    def _run_attempt(self) -> tuple[FailureKind | None, str]:
        """Run the program once from a clean start; the class of its failure, None for none."""
        keep_graphs = bool(self.options.until_healthy and self.outcome.attempts)
        clean_output(self.options.output, self.options.cache, keep_graphs=keep_graphs)
        attempt_count = len([attempt for attempt in self.outcome.attempts if attempt.kind != STOP_REQUEST.name])
        log_event(
            "compiling", attempt=attempt_count + 1, attempts=self.options.attempts, left_s=round(self.remaining_s)
        )
        start_s, kills_before = time.monotonic(), count_oom_kills(self.options.memory_events)
        self.outcome.result = RESULT_RUNNING
        self.outcome.write(self.options.outcome)
        try:
            program = ProgramGroup(self.options.program)
        except OSError as error:
            return self._record_attempt(BAD_ARGUMENTS, f"{self.options.program[0]}: {error.strerror}", None, 0.0)
        try:
            kind, line = self._wait_for_end(program)
        finally:
            program.kill_all()
        status, seconds = program.status(), time.monotonic() - start_s
        self.outcome.tail = list(program.lines.tail)
        if kind is None and not line:
            return self._record_attempt(None, "", status, seconds)
        if kind is None:
            free_bytes = shutil.disk_usage(find_existing_folder(self.options.output)).free
            output_lines = program.lines
            kill_count = count_oom_kills(self.options.memory_events) - kills_before
            kind, sign_line = classify_failure(
                output_lines.sign_lines,
                output_lines.tail[-1] if output_lines.tail else "",
                status or 0,
                oom_kills=kill_count,
                free_bytes=free_bytes,
            )
            line = sign_line if kind is not UNKNOWN else f"{line}: {sign_line}"
        return self._record_attempt(kind, line, status, seconds)

    def _wait_for_end(self, program: ProgramGroup) -> tuple[FailureKind | None, str]:
        """Wait for the end of an attempt: (None, "") if it went well, (None, why) where its log must tell the class."""
        health_url = self.options.until_healthy
        while True:
            status = program.status()
            if status is not None and health_url:
                return None, f"the server ended with status {status} before it was healthy"
            if status is not None:
                return self._judge_exit(status)
            if self.stop_signal or self.remaining_s <= 0:
                program.terminate(min(STOP_GRACE_S, self.options.grace_s), whole_group=True)
                deadline_text = f"{self.options.deadline_s:g} s are over"
                return (STOP_REQUEST, f"{self.stop_signal} arrived") if self.stop_signal else (DEADLINE, deadline_text)
            if health_url and self._is_healthy(health_url):
                return self._end_server(program)
            self._log_heartbeat()
            program.wait(POLL_INTERVAL_S)

    def _judge_exit(self, status: int) -> tuple[FailureKind | None, str]:
        """Judge a program that ended by itself, as `_watch` says it."""
        if status:
            return None, f"the program ended with status {status}"
        if not any(True for _ in walk_files(self.options.output)):
            return NOTHING_LEFT, f"the program ended well and left nothing in {self.options.output}"
        return None, ""

    def _end_server(self, program: ProgramGroup) -> tuple[FailureKind | None, str]:
        """End a healthy server in its own order, so that it writes its caches."""
        log_event("healthy", url=self.options.until_healthy, grace_s=self.options.grace_s)
        if not program.terminate(self.options.grace_s, whole_group=False):
            self.outcome.unproven.append(
                f"the server was killed because it did not end within {self.options.grace_s:g} s of being asked to: "
                "what it writes at its end may be missing"
            )
            log_event("the server does not end", level="warning", grace_s=self.options.grace_s)
        if not any(graph.state == "finished" for graph in find_graphs(self.options.output)):
            return NOTHING_LEFT, f"the server was healthy and left no finished graph in {self.options.output}"
        return None, ""

    def _is_healthy(self, url: str) -> bool:
        if time.monotonic() - self._last_health_check_s < self.options.ask_s:
            return False
        self._last_health_check_s = time.monotonic()
        import http.client  # noqa: PLC0415 - as of `_ask`

        try:
            with self._url_opener.open(url, timeout=HEALTH_TIMEOUT_S) as answer:
                return int(answer.status) == 200  # noqa: PLR2004 - HTTP's own
        except (OSError, ValueError, http.client.HTTPException):  # a URLError is an OSError; what is no HTTP is not
            return False

    def _log_heartbeat(self) -> None:
        if time.monotonic() - self._last_heartbeat_s < self.options.heartbeat_s:
            return
        self._last_heartbeat_s = time.monotonic()
        log_event(
            "still compiling",
            seconds=round(self.options.deadline_s - self.remaining_s),
            left_s=round(self.remaining_s),
            output_bytes=sum(read_file_size(path) for path in walk_files(self.options.output)),
            cache_bytes=sum(read_file_size(path) for path in walk_files(self.options.cache)),
            finished_graphs=sum(graph.state == "finished" for graph in find_graphs(self.options.cache)),
        )

    def _record_attempt(
        self, kind: FailureKind | None, line: str, status: int | None, seconds: float
    ) -> tuple[FailureKind | None, str]:
        name = kind.name if kind else RESULT_SUCCESS
        self.outcome.attempts.append(CompileAttempt(name, status, round(seconds, 1), line[:LINE_BYTES]))
        self.outcome.result = RESULT_FAILURE if kind else RESULT_SUCCESS
        self.outcome.write(self.options.outcome)
        if kind:
            log_event(
                "attempt failed", level="warning", failure=name, exit=status, seconds=round(seconds, 1), line=line
            )
        return kind, line

    def _finish_compile(self) -> int:
        finish_output(self.options.output)
        size = sum(read_file_size(path) for path in walk_files(self.options.output))
        log_event("compiled", seconds=round(time.time() - self.outcome.began), bytes=size, where=self.outcome.where,
            unproven=self.outcome.unproven)  # fmt: skip
        return EXIT_DONE

    def _on_stop_signal(self, signal_number: int, _frame: object) -> None:
        self.stop_signal = signal.Signals(signal_number).name


def may_try_again(outcome: CompileOutcome, max_attempts: int) -> bool:
    """Whether what failed so often and so may be tried once more."""
    return may_retry_failure([attempt.kind for attempt in outcome.attempts], max_attempts)


def give_up(options: argparse.Namespace, outcome: CompileOutcome, kind: FailureKind, line: str) -> int:
    """Note that nothing is tried any more and say it; the exit code.

    With `--defer` that is 0: the pod's next container reads the outcome, frees what the compile held and ends with
    the failure's own code.
    """
    if not outcome.attempts or outcome.attempts[-1].kind != kind.name:
        outcome.attempts.append(CompileAttempt(kind.name, None, 0.0, line[:LINE_BYTES]))
    outcome.result = RESULT_GIVEN_UP
    outcome.write(options.outcome)
    log_event(**(outcome.failure or {}), level="error")
    return EXIT_DONE if options.defer else kind.code
