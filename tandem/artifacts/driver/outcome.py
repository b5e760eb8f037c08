"""outcome.json: what was asked, every attempt, how it ended; it outlives this program and its container.

Invariant: the file is whole or not there; only the same request is ever gone on with.
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
# failed: of this attempt, another may follow; given up: no other follows
RESULT_RUNNING, RESULT_SUCCESS, RESULT_FAILURE, RESULT_GIVEN_UP = "running", "compiled", "failed", "given up"
# variables of the pod and of its neighbours, which no program here reads; a restart may see others
_IGNORED_VARIABLES = re.compile(
    r"^(HOSTNAME|PWD|OLDPWD|SHLVL|_|KUBERNETES_.*|.*_SERVICE_(HOST|PORT)(_.*)?|.*_PORT(_\d+_(TCP|UDP)(_\w+)?)?)$"
)


@dataclass
class CompileAttempt:
    """One run of the program.

    `kind` names its class; `exit` is its status, negative for a signal, None where nobody saw it.
    """

    kind: str
    exit: int | None
    seconds: float
    line: str


@dataclass
class CompileOutcome:
    """What outcome.json holds: it is written before an attempt begins and after it ends."""

    request: str
    result: str = RESULT_RUNNING
    began: float = field(default_factory=time.time)  # of the first attempt: the deadline counts from here
    boot: str = ""
    attempts: list[CompileAttempt] = field(default_factory=list)
    where: str = "device"
    unproven: list[str] = field(default_factory=list)

    @property
    def failure(self) -> dict[str, Any] | None:
        """What is said of a compile that was given up, by whoever says it: a log line's fields, and the exit code."""
        if self.result != RESULT_GIVEN_UP or not self.attempts:
            return None
        kind, line = KINDS.get(self.attempts[-1].kind, UNKNOWN), self.attempts[-1].line
        words = {"event": f"not compiled: {kind.name}", "line": line, "attempts": len(self.attempts)}
        return {**words, "change": kind.change, "exit_code": kind.code}

    def may_retry(self, max_attempts: int) -> bool:
        """Whether what failed so often and so may be tried once more; `max_attempts` attempts in all."""
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
    """Return what an earlier run wrote; None where there is nothing that can be read."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        attempts = [CompileAttempt(**attempt) for attempt in document.pop("attempts")]
        del document["schema_version"]
        return CompileOutcome(attempts=attempts, **document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def hash_request(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return one digest of what the program is asked: its arguments and the variables it may read."""
    variables = {name: value for name, value in environment.items() if not _IGNORED_VARIABLES.match(name)}
    return hashlib.sha256(json.dumps([list(argv), variables], sort_keys=True).encode()).hexdigest()


def read_boot_id() -> str:
    """Return the name of this start of the machine; empty where nobody says."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def resume_outcome(options: argparse.Namespace) -> CompileOutcome:
    """Return the outcome to go on with: an earlier one of the same request, or a new one.

    An attempt that was begun and never ended, on a machine that did not restart, was killed together with this
    program: nothing but SIGKILL ends it unseen, and that is what the kernel sends to all of a container that is out
    of memory.
    """
    outcome = read_outcome(options.outcome)
    if outcome is None or outcome.request != hash_request(options.program, os.environ):
        return create_outcome(options)
    if outcome.result == RESULT_RUNNING and outcome.boot == read_boot_id():
        line = "the container was killed in the middle of an attempt, which the kernel does for memory"
        outcome.attempts.append(CompileAttempt(OUT_OF_MEMORY.name, None, 0.0, line))
        outcome.result = RESULT_FAILURE
        outcome.write(options.outcome)
    outcome.boot = read_boot_id()
    return outcome


def create_outcome(options: argparse.Namespace) -> CompileOutcome:
    """Return the outcome of a request that nobody has begun."""
    device_kind = "device" if any(Path("/dev").glob("neuron[0-9]*")) else "cpu"
    unproven = list(options.unproven)
    if device_kind == "cpu":
        unproven.append("it was compiled where no Neuron device was seen: that it loads on one is not shown")
    request = hash_request(options.program, os.environ)
    return CompileOutcome(request=request, boot=read_boot_id(), where=options.where or device_kind, unproven=unproven)
