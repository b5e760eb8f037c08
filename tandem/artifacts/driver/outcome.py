"""outcome.json: the request, every attempt and the result; it outlives the program's container.

Invariant: the file is whole or absent; only the same request is continued.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tandem.artifacts.driver.failure import KINDS, OUT_OF_MEMORY, STOP_REQUEST, UNKNOWN

SCHEMA_VERSION = 1
# failed: another attempt may follow; given up: none follows
RESULT_RUNNING = "running"
RESULT_SUCCESS = "compiled"
RESULT_FAILURE = "failed"
RESULT_GIVEN_UP = "given up"
# variables of the pod and of its neighbours, which no program here reads; a restart may have other
# values
_IGNORED_VARIABLES = re.compile(
    r"^(HOSTNAME|PWD|OLDPWD|SHLVL|_|KUBERNETES_.*|.*_SERVICE_(HOST|PORT)(_.*)?|.*_PORT(_\d+_(TCP|UDP)(_\w+)?)?)$"
)


@dataclass
class CompileAttempt:
    """One run of the program.

    `kind` is the name of its class; `exit` is its status, negative for a signal, None if unknown.
    """

    kind: str
    exit: int | None
    seconds: float
    line: str


@dataclass
class CompileOutcome:
    """Content of outcome.json; the file is written before an attempt begins and after it ends."""

    request: str
    result: str = RESULT_RUNNING
    began: float = field(default_factory=time.time)  # the deadline of all attempts counts from here
    boot: str = ""
    attempts: list[CompileAttempt] = field(default_factory=list)
    where: str = "device"
    unproven: list[str] = field(default_factory=list)

    @property
    def failure(self) -> dict[str, Any] | None:
        """Fields of the log line on a compile that was given up; None for any other."""
        if self.result != RESULT_GIVEN_UP or not self.attempts:
            return None
        last_attempt = self.attempts[-1]
        kind = KINDS.get(last_attempt.kind, UNKNOWN)
        return {
            "event": f"not compiled: {kind.name}",
            "line": last_attempt.line,
            "attempts": len(self.attempts),
            "change": kind.change,
            "exit_code": kind.code,
        }

    def may_retry(self, max_attempts: int) -> bool:
        """Return whether the attempts so far allow one more; `max_attempts` attempts in all."""
        names = [attempt.kind for attempt in self.attempts if attempt.kind != STOP_REQUEST.name]
        if not names or len(names) >= max_attempts:
            return not names
        last_kind = KINDS.get(names[-1], UNKNOWN)
        return not last_kind.tries or names.count(last_kind.name) < last_kind.tries

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        document = {**asdict(self), "schema_version": SCHEMA_VERSION}
        path.parent.mkdir(parents=True, exist_ok=True)
        new_path = path.with_name(path.name + ".new")
        with new_path.open("w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        new_path.chmod(0o666)
        new_path.replace(path)


def read_outcome(path: Path) -> CompileOutcome | None:
    """Return the outcome of an earlier run; None if none is readable and of this schema."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.pop("schema_version") != SCHEMA_VERSION:
            return None
        attempts = [CompileAttempt(**attempt) for attempt in document.pop("attempts")]
        return CompileOutcome(attempts=attempts, **document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def hash_request(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return one digest of a request: the program's arguments and the variables it may read."""
    variables = {
        name: value for name, value in environment.items() if not _IGNORED_VARIABLES.match(name)
    }
    return hashlib.sha256(json.dumps([list(argv), variables], sort_keys=True).encode()).hexdigest()


def read_boot_id() -> str:
    """Return the id of this boot of the machine; empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def resume_outcome(options: argparse.Namespace) -> CompileOutcome:
    """Return the outcome to continue: an earlier one of the same request, or a new one.

    If an attempt began and has no end, and the machine did not restart, the attempt was killed
    together with this program: only SIGKILL ends it without a record, and the kernel sends SIGKILL
    to a whole container that is out of memory.
    """
    outcome = read_outcome(options.outcome)
    if outcome is None or outcome.request != hash_request(options.program, os.environ):
        return create_outcome(options)
    if outcome.result == RESULT_RUNNING and outcome.boot == read_boot_id():
        line = (
            "the container was killed in the middle of an attempt, which the kernel does for memory"
        )
        outcome.attempts.append(CompileAttempt(OUT_OF_MEMORY.name, None, 0.0, line))
        outcome.result = RESULT_FAILURE
        outcome.write(options.outcome)
    outcome.boot = read_boot_id()
    return outcome


def create_outcome(options: argparse.Namespace) -> CompileOutcome:
    """Return the outcome of a new request."""
    device_kind = "cpu"
    if any(Path("/dev").glob("neuron[0-9]*")):
        device_kind = "device"
    unproven = list(options.unproven)
    if device_kind == "cpu":
        unproven.append(
            "it was compiled where no Neuron device was seen: that it loads on one is not shown"
        )
    request = hash_request(options.program, os.environ)
    return CompileOutcome(
        request=request, boot=read_boot_id(), where=options.where or device_kind, unproven=unproven
    )
