"""What the parts of `benchmarks/load.py` share: servers in processes of their own, and clients that are held to them.

Invariant: a server logs what it did on the clock that its client reads, in another process; a client is started as
its user starts it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tandem.bench.truth import Served, read_log

ROOT = Path(__file__).resolve().parent.parent
MODEL = "independent"
SERVER_UP_S = 30


class PartError(Exception):
    """A server or a client did not do what it is held to; the sentence says where its words are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server: where it answers, what it calls its model, and the log of what it did."""

    url: str
    model: str
    log: Path

    def served(self) -> dict[str, Served]:
        """Return its honest answers by request id."""
        return {key: one for key, one in read_log(self.log).items() if one.fault is None}


def schedule(**fields: Any) -> str:
    """Return a prompt that asks the independent server for a schedule."""
    return f"#schedule {json.dumps(fields)}"


@contextlib.contextmanager
def independent(folder: Path, *flags: str) -> Iterator[Server]:
    """Start the server that shares no code with the twin or the bench; flags are a prompt's default schedule."""
    program = [sys.executable, str(ROOT / "tests/bench/independent_server.py"), *flags]
    with _started(program, folder / "independent.jsonl") as (url, log):
        yield Server(url=url, model=MODEL, log=log)


@contextlib.contextmanager
def twin(folder: Path, knobs: Mapping[str, Any]) -> Iterator[Server]:
    """Start the twin with `knobs`."""
    file = folder / "knobs.yaml"
    file.write_text(yaml.safe_dump({"model": MODEL, **knobs}))
    program = [sys.executable, "-m", "tandem.twin.server", "--knobs", str(file)]
    with _started(program, folder / "twin.jsonl") as (url, log):
        yield Server(url=url, model=MODEL, log=log)


@contextlib.contextmanager
def _started(program: Sequence[str], log: Path) -> Iterator[tuple[str, Path]]:
    log.unlink(missing_ok=True)
    server = subprocess.Popen([*program, "--port", "0", "--log", str(log)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        line = server.stdout.readline()
        if "http://" not in line:
            raise PartError(f"{program[-1]} did not start; its words stand above")
        yield "http://" + line.split("http://", 1)[1].strip(), log
    finally:
        server.terminate()
        server.wait(SERVER_UP_S)


def write_suite(path: Path, prompts: Sequence[tuple[str, str]], max_tokens: int) -> Path:
    """Write a suite of (class, prompt) and return its path."""
    lines = [
        {"id": f"p{number:04d}", "class": class_, "prompt": prompt, "max_tokens": max_tokens}
        for number, (class_, prompt) in enumerate(prompts)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def bench_run(server: Server, suite: Path, out: Path, *flags: str) -> Path:
    """Measure one server as a user does, in a process of its own; return the folder."""
    command = [
        sys.executable, "-m", "tandem", "bench", "run", "--baseline", f"measured={server.url}", "--model", server.model,
        "--suite", str(suite), "--out", str(out), *flags,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PartError(f"tandem bench run ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return out
