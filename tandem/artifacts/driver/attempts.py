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

from tandem.artifacts.driver.cache import graphs
from tandem.artifacts.driver.failure import (
    BAD_ARGUMENTS,
    DEADLINE,
    NOTHING_LEFT,
    STOPPED,
    UNKNOWN,
    Kind,
    another,
    classify,
)
from tandem.artifacts.driver.folders import existing, files_in, size_of
from tandem.artifacts.driver.lines import LINE_BYTES
from tandem.artifacts.driver.log import say
from tandem.artifacts.driver.outcome import COMPILED, FAILED, GIVEN_UP, RUNNING, Attempt, Outcome
from tandem.artifacts.driver.output import clean, finish
from tandem.artifacts.driver.program import POLL_S, Program, oom_kills

DONE = 0
STOP_GRACE_S = 20.0  # of an attempt that is thrown away
ASK_TIMEOUT_S = 5.0
LEAST_S = 60.0  # an attempt needs more time than this


@dataclass
class Driver:
    """One run: the options as given, and whether somebody asked it to end."""

    options: argparse.Namespace
    outcome: Outcome
    stopped: str = ""
    _last_beat: float = field(default_factory=time.monotonic)
    _last_question: float = 0.0

    @cached_property
    def _ask(self) -> Any:
        """What asks the server on this machine, past any proxy."""
        import urllib.request  # noqa: PLC0415 - a third of the driver's start, and of use to a server's compile alone

        return urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def left_s(self) -> float:
        """Return the seconds until the deadline, over all attempts and restarts."""
        return float(self.options.deadline_s) - max(0.0, time.time() - self.outcome.began)

    def run(self) -> int:
        """Try until it is compiled or another try would be in vain; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._told_to_stop)
        while True:
            if self.left_s < min(LEAST_S, self.options.deadline_s / 2):
                return give_up(self.options, self.outcome, DEADLINE, f"{self.options.deadline_s:g} s are over")
            kind, line = self._attempt()
            if kind is None:
                return self._compiled()
            if kind is STOPPED:
                say("stopped", level="warning", line=line, change=STOPPED.change, exit_code=STOPPED.code)
                return STOPPED.code
            if not may_go_on(self.outcome, self.options.attempts):
                return give_up(self.options, self.outcome, kind, line)
            say("trying again", level="warning", failure=kind.name, line=line, left_s=round(self.left_s))

    def _attempt(self) -> tuple[Kind | None, str]:
        """Run the program once from a clean start; the class of its failure, None for none."""
        keep = bool(self.options.until_healthy and self.outcome.attempts)
        clean(self.options.output, self.options.cache, keep_graphs=keep)
        counted = len([one for one in self.outcome.attempts if one.kind != STOPPED.name])
        say("compiling", attempt=counted + 1, attempts=self.options.attempts, left_s=round(self.left_s))
        began, killed = time.monotonic(), oom_kills(self.options.memory_events)
        self.outcome.result = RUNNING
        self.outcome.write(self.options.outcome)
        try:
            program = Program(self.options.program)
        except OSError as error:
            return self._noted(BAD_ARGUMENTS, f"{self.options.program[0]}: {error.strerror}", None, 0.0)
        try:
            kind, line = self._watch(program)
        finally:
            program.clear()
        status, seconds = program.status(), time.monotonic() - began
        self.outcome.tail = list(program.lines.tail)
        if kind is None and not line:
            return self._noted(None, "", status, seconds)
        if kind is None:
            free = shutil.disk_usage(existing(self.options.output)).free
            said = program.lines
            more_kills = oom_kills(self.options.memory_events) - killed
            kind, shown = classify(
                said.found, said.tail[-1] if said.tail else "", status or 0, oom_kills=more_kills, free=free
            )
            line = shown if kind is not UNKNOWN else f"{line}: {shown}"
        return self._noted(kind, line, status, seconds)

    def _watch(self, program: Program) -> tuple[Kind | None, str]:
        """Wait for the end of an attempt: (None, "") if it went well, (None, why) where its log must tell the class."""
        healthy = self.options.until_healthy
        while True:
            status = program.status()
            if status is not None and healthy:
                return None, f"the server ended with status {status} before it was healthy"
            if status is not None:
                return self._judge(status)
            if self.stopped or self.left_s <= 0:
                program.ask_to_end(min(STOP_GRACE_S, self.options.grace_s), all_of_it=True)
                over = f"{self.options.deadline_s:g} s are over"
                return (STOPPED, f"{self.stopped} arrived") if self.stopped else (DEADLINE, over)
            if healthy and self._is_healthy(healthy):
                return self._end_server(program)
            self._beat()
            program.wait(POLL_S)

    def _judge(self, status: int) -> tuple[Kind | None, str]:
        """Judge a program that ended by itself, as `_watch` says it."""
        if status:
            return None, f"the program ended with status {status}"
        if not any(True for _ in files_in(self.options.output)):
            return NOTHING_LEFT, f"the program ended well and left nothing in {self.options.output}"
        return None, ""

    def _end_server(self, program: Program) -> tuple[Kind | None, str]:
        """End a healthy server in its own order, so that it writes its caches."""
        say("healthy", url=self.options.until_healthy, grace_s=self.options.grace_s)
        if not program.ask_to_end(self.options.grace_s, all_of_it=False):
            self.outcome.unproven.append(
                f"the server was killed because it did not end within {self.options.grace_s:g} s of being asked to: "
                "what it writes at its end may be missing"
            )
            say("the server does not end", level="warning", grace_s=self.options.grace_s)
        if not any(graph.state == "finished" for graph in graphs(self.options.output)):
            return NOTHING_LEFT, f"the server was healthy and left no finished graph in {self.options.output}"
        return None, ""

    def _is_healthy(self, url: str) -> bool:
        if time.monotonic() - self._last_question < self.options.ask_s:
            return False
        self._last_question = time.monotonic()
        import http.client  # noqa: PLC0415 - as of `_ask`

        try:
            with self._ask.open(url, timeout=ASK_TIMEOUT_S) as answer:
                return int(answer.status) == 200  # noqa: PLR2004 - HTTP's own
        except (OSError, ValueError, http.client.HTTPException):  # a URLError is an OSError; what is no HTTP is not
            return False

    def _beat(self) -> None:
        if time.monotonic() - self._last_beat < self.options.heartbeat_s:
            return
        self._last_beat = time.monotonic()
        say(
            "still compiling", seconds=round(self.options.deadline_s - self.left_s), left_s=round(self.left_s),
            output_bytes=sum(size_of(path) for path in files_in(self.options.output)),
            cache_bytes=sum(size_of(path) for path in files_in(self.options.cache)),
            finished_graphs=sum(graph.state == "finished" for graph in graphs(self.options.cache)),
        )  # fmt: skip

    def _noted(self, kind: Kind | None, line: str, status: int | None, seconds: float) -> tuple[Kind | None, str]:
        name = kind.name if kind else COMPILED
        self.outcome.attempts.append(Attempt(name, status, round(seconds, 1), line[:LINE_BYTES]))
        self.outcome.result = FAILED if kind else COMPILED
        self.outcome.write(self.options.outcome)
        if kind:
            say("attempt failed", level="warning", failure=name, exit=status, seconds=round(seconds, 1), line=line)
        return kind, line

    def _compiled(self) -> int:
        finish(self.options.output)
        size = sum(size_of(path) for path in files_in(self.options.output))
        say("compiled", seconds=round(time.time() - self.outcome.began), bytes=size, where=self.outcome.where,
            unproven=self.outcome.unproven)  # fmt: skip
        return DONE

    def _told_to_stop(self, number: int, _frame: object) -> None:
        self.stopped = signal.Signals(number).name


def may_go_on(outcome: Outcome, most: int) -> bool:
    """Whether what failed so often and so may be tried once more."""
    return another([one.kind for one in outcome.attempts], most)


def give_up(options: argparse.Namespace, outcome: Outcome, kind: Kind, line: str) -> int:
    """Note that nothing is tried any more and say it; the exit code.

    With `--defer` that is 0: the pod's next container reads the outcome, frees what the compile held and ends with
    the failure's own code.
    """
    if not outcome.attempts or outcome.attempts[-1].kind != kind.name:
        outcome.attempts.append(Attempt(kind.name, None, 0.0, line[:LINE_BYTES]))
    outcome.result = GIVEN_UP
    outcome.write(options.outcome)
    say(**(outcome.failure or {}), level="error")
    return DONE if options.defer else kind.code
