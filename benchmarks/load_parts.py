"""Shared functions of the parts of `benchmarks/load.py`: prompts that request a schedule, and Tandem as their client.

Invariant: a client starts as its user starts it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servers_apart import ROOT, Server


class PartError(Exception):
    """A client failed; the sentence says where its output is."""


def schedule(**fields: Any) -> str:
    """Return a prompt that requests a schedule from the independent server."""
    return f"#schedule {json.dumps(fields)}"


def write_suite(path: Path, prompts: Sequence[tuple[str, str]], max_tokens: int) -> Path:
    """Write a suite of (class, prompt) and return its path."""
    lines = [
        {"id": f"p{number:04d}", "class": class_, "prompt": prompt, "max_tokens": max_tokens}
        for number, (class_, prompt) in enumerate(prompts)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def bench_run(server: Server, suite: Path, out: Path, *flags: str) -> Path:
    """Measure one server in one round and a control round, in a separate process; return the folder."""
    command = [
        sys.executable, "-m", "tandem", "bench", "run", "--baseline", f"measured={server.url}", "--model", server.model,
        "--suite", str(suite), "--rounds", "1", "--out", str(out), *flags,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PartError(f"tandem bench run ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return out
