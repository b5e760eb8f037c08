"""Servers in separate processes, for benchmarks: the simulator, and the server that shares no code with it.

Invariant: a server logs its work on the clock that its client reads, in another process. At the end of a server's block
its process has ended and its log is whole.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tandem.bench.ground_truth import ServerLogEntry, read_log  # noqa: E402
from tandem.errors import ExternalError  # noqa: E402

MODEL = "independent"
ENDS_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server: its address, its name for the model, and the log of its work."""

    url: str
    model: str
    log: Path

    def served(self) -> dict[str, ServerLogEntry]:
        """Return its honest answers by request id."""
        return {key: one for key, one in read_log(self.log).items() if one.fault is None}


@contextlib.contextmanager
def independent(folder: Path, *flags: str) -> Iterator[Server]:
    """Start the server that shares no code with the simulator or the bench; flags are a prompt's default schedule."""
    program = [sys.executable, str(ROOT / "tests/bench/independent_server.py"), *flags]
    with _started(program, folder / "independent.jsonl") as (url, log):
        yield Server(url=url, model=MODEL, log=log)


@contextlib.contextmanager
def simulator(folder: Path, knobs: Mapping[str, Any]) -> Iterator[Server]:
    """Start the simulator with `knobs`; leave them as a file in `folder`."""
    file = folder / "knobs.yaml"
    file.write_text(yaml.safe_dump({"model": MODEL, **knobs}, sort_keys=False))
    program = [sys.executable, "-m", "tandem.simulator", "--knobs", str(file)]
    with _started(program, folder / "twin.jsonl") as (url, log):
        yield Server(url=url, model=str(knobs.get("model", MODEL)), log=log)


@contextlib.contextmanager
def _started(program: Sequence[str], log: Path) -> Iterator[tuple[str, Path]]:
    log.unlink(missing_ok=True)
    command = [*program, "--port", "0", "--log", str(log)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            if "http://" not in line:
                raise ExternalError(f"{' '.join(program[1:3])} did not start", change="see what it said above")
            yield "http://" + line.split("http://", 1)[1].strip(), log
        finally:
            server.terminate()
            server.wait(ENDS_S)
