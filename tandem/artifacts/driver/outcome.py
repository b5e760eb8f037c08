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

from tandem.artifacts.driver.failure import KINDS, OUT_OF_MEMORY, UNKNOWN

SCHEMA_VERSION = 1
RUNNING, COMPILED, FAILED = "running", "compiled", "failed"  # failed: of this attempt, another may follow
GIVEN_UP = "given up"  # no other follows
# variables of the pod and of its neighbours, which no program here reads; a restart may see others
_PASSING = re.compile(
    r"^(HOSTNAME|PWD|OLDPWD|SHLVL|_|KUBERNETES_.*|.*_SERVICE_(HOST|PORT)(_.*)?|.*_PORT(_\d+_(TCP|UDP)(_\w+)?)?)$"
)


@dataclass
class Attempt:
    """One run of the program.

    `class` in the file; `exit` is its status, negative for a signal, None where nobody saw it.
    """

    kind: str
    exit: int | None
    seconds: float
    line: str

    def as_json(self) -> dict[str, Any]:
        """Return the mapping that outcome.json holds."""
        plain = asdict(self)
        return {"class": plain.pop("kind"), **plain}


@dataclass
class Outcome:
    """What outcome.json holds: it is written before an attempt begins and after it ends."""

    request: str
    result: str = RUNNING  # or COMPILED, FAILED, GIVEN_UP
    began: float = field(default_factory=time.time)  # of the first attempt: the deadline counts from here
    boot: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    where: str = "device"
    unproven: list[str] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)

    @property
    def failure(self) -> dict[str, Any] | None:
        """What is said of a compile that was given up, by whoever says it: a log line's fields, and the exit code."""
        if self.result != GIVEN_UP or not self.attempts:
            return None
        last = self.attempts[-1]
        kind = KINDS.get(last.kind, UNKNOWN)
        return {"event": f"not compiled: {kind.name}", "line": last.line, "attempts": len(self.attempts),
                "change": kind.change, "exit_code": kind.code}  # fmt: skip

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        plain = {**asdict(self), "schema_version": SCHEMA_VERSION, "attempts": [one.as_json() for one in self.attempts]}
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + ".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(plain, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.chmod(0o666)
        fresh.replace(path)


def read_outcome(path: Path) -> Outcome | None:
    """Return what an earlier run wrote; None where there is nothing that can be read."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        attempts = [
            Attempt(one["class"], one["exit"], float(one["seconds"]), str(one["line"])) for one in plain["attempts"]
        ]
        return Outcome(
            request=str(plain["request"]), result=str(plain["result"]), began=float(plain["began"]),
            boot=str(plain["boot"]), attempts=attempts, where=str(plain["where"]),
            unproven=[str(sentence) for sentence in plain["unproven"]], tail=[str(line) for line in plain["tail"]],
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return None


def request_of(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return one digest of what the program is asked: its arguments and the variables it may read."""
    kept = {name: value for name, value in environment.items() if not _PASSING.match(name)}
    return hashlib.sha256(json.dumps([list(argv), kept], sort_keys=True).encode()).hexdigest()


def boot() -> str:
    """Return the name of this start of the machine; empty where nobody says."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def resume(options: argparse.Namespace) -> Outcome:
    """Return the outcome to go on with: an earlier one of the same request, or a new one.

    An attempt that was begun and never ended, on a machine that did not restart, was killed together with this
    program: nothing but SIGKILL ends it unseen, and that is what the kernel sends to all of a container that is out
    of memory.
    """
    request = request_of(options.program, os.environ)
    before = read_outcome(options.outcome)
    if before is None or before.request != request:
        return fresh(options, request)
    if before.result == RUNNING and before.boot == boot():
        line = "the container was killed in the middle of an attempt, which the kernel does for memory"
        before.attempts.append(Attempt(OUT_OF_MEMORY.name, None, 0.0, line))
        before.result = FAILED
        before.write(options.outcome)
    before.boot = boot()
    return before


def fresh(options: argparse.Namespace, request: str) -> Outcome:
    """Return the outcome of a request that nobody has begun."""
    seen = "device" if any(Path("/dev").glob("neuron[0-9]*")) else "cpu"
    unproven = list(options.unproven)
    if seen == "cpu":
        unproven.append("it was compiled where no Neuron device was seen: that it loads on one is not shown")
    return Outcome(request=request, boot=boot(), where=options.where or seen, unproven=unproven)
