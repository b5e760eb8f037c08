"""Runs `tandem bench run` as its user does, in a process of its own."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OK = 0
FAILED = 1  # some requests failed
VOID = 4  # a control failed, as on a busy machine


class BenchError(Exception):
    """A client did not measure; the sentence says why."""


def write_suite(path: Path, prompts: Iterable[tuple[str, str]], max_tokens: int) -> Path:
    """Write a suite of (class, prompt) and return its path."""
    lines = []
    for number, (class_name, prompt) in enumerate(prompts):
        fields = {
            "id": f"p{number:04d}",
            "class": class_name,
            "prompt": prompt,
            "max_tokens": max_tokens,
        }
        lines.append(json.dumps(fields))
    path.write_text("\n".join(lines) + "\n")
    return path


def run_bench(urls: Mapping[str, str], model: str, suite: Path, out: Path, flags: str = "") -> int:
    """Measure servers and return the exit code.

    Args:
        urls: of the servers by name, the baseline first.
        model: as they serve it.
        suite: file of the prompts.
        out: new folder of the run.
        flags: further ones, as in a shell.

    Raises:
        BenchError: the run did not come to its end.
    """
    baseline, *variants = (f"{name}={url}" for name, url in urls.items())
    command = [
        sys.executable,
        "-m",
        "tandem",
        "bench",
        "run",
        "--baseline",
        baseline,
        "--model",
        model,
    ]
    for variant in variants:
        command += ["--variant", variant]
    command += ["--suite", str(suite), "--out", str(out), *shlex.split(flags)]
    print(shlex.join(command), file=sys.stderr)
    # a signal from the keyboard reaches the bench too, which then writes its records
    code = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode
    if code not in {OK, FAILED, VOID}:
        raise BenchError(
            f"`tandem bench run` ended with exit code {code}; what it recorded is in {out}"
        )
    return code
