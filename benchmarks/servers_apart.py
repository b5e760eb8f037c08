"""Servers in separate processes, for benchmarks: the simulator, and one that shares no code.

Invariant: a server logs its work on the clock that its client reads, in another process. At the end
of a server's block its process has ended and its log is whole.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tandem.bench.figures.ground_truth import ServerLogEntry, read_log
from tandem.errors import ExternalError

ROOT = Path(__file__).resolve().parent.parent
MODEL = "independent"
STOP_S = 30


class Server(NamedTuple):
    """One server: its address, its name for the model, and the log of its work."""

    url: str
    model: str
    log: Path

    def read_entries(self) -> dict[str, ServerLogEntry]:
        """Return its honest answers by request id."""
        return {key: entry for key, entry in read_log(self.log).items() if entry.fault is None}


def write_schedule(**fields: Any) -> str:
    """Return a prompt that requests a schedule from the independent server."""
    return f"#schedule {json.dumps(fields)}"


@contextlib.contextmanager
def independent(folder: Path) -> Iterator[Server]:
    """Start the server that shares no code with the simulator or the bench."""
    program = [str(ROOT / "tests/bench/independent_server.py")]
    with _start(program, folder / "independent.jsonl", MODEL) as server:
        yield server


@contextlib.contextmanager
def simulator(folder: Path, knobs: Mapping[str, Any]) -> Iterator[Server]:
    """Start the simulator with `knobs`; leave them as a file in `folder`."""
    model = knobs.get("model", MODEL)
    file = folder / "knobs.yaml"
    file.write_text(yaml.safe_dump({**knobs, "model": model}, sort_keys=False))
    program = ["-m", "tandem.simulator", "--knobs", str(file)]
    with _start(program, folder / "twin.jsonl", model) as server:
        yield server


@contextlib.contextmanager
def _start(program: list[str], log: Path, model: str) -> Iterator[Server]:
    log.unlink(missing_ok=True)
    command = [sys.executable, *program, "--port", "0", "--log", str(log)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            _, separator, address = process.stdout.readline().partition("http://")
            if not separator:
                raise ExternalError(
                    f"{' '.join(program[:2])} did not start", change="see what it said above"
                )
            yield Server(f"{separator}{address.strip()}", model, log)
        finally:
            process.terminate()
            process.wait(STOP_S)
