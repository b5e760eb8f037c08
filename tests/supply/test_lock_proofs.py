"""Every lock against the package index, for each Python and machine: minutes, and the network."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from supply.lock_file import ROOT, LockedPackage, find_inputs, lock_path, read_lock, write_lock
from supply.make_locks import GLIBC, TARGETS, is_marker_true

Target = tuple[tuple[int, int], str]
PARTIAL_INPUTS = {
    "rehearsal/vllm_cpu/requirements.in",
    "benchmarks/guidellm-requirements.in",
    "benchmarks/foreign/requirements.in",
}
"""Installed with --no-deps: their locks leave out what no command here needs, or what PyTorch's own
index alone has."""
pytestmark = [
    pytest.mark.proof,
    pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"3.{target[0][1]}-{target[1]}"),
]


def on(target: Target, source: Path) -> list[LockedPackage]:
    """What a lock installs on a target; its torch is left out where PyTorch's own index would have
    to be asked."""
    packages = [
        replace(lock, marker="")
        for lock in read_lock(lock_path(source))
        if is_marker_true(lock.marker, target)
    ]
    return [package for package in packages if package.name != "torch"]


def test_every_lock_is_closed(tmp_path, target):
    """uv reads the metadata of each file for the target and refuses what a lock brings along and
    does not hold."""
    (major, minor), machine = target
    subprocess.run(["make", ".venv-lock/.ready"], cwd=ROOT, check=True, capture_output=True)
    where = [
        f"--python-version={major}.{minor}",
        f"--python-platform={machine}-manylinux_2_{GLIBC}",
    ]
    command = [
        str(ROOT / ".venv-lock" / "bin" / "uv"),
        "pip",
        "install",
        "--dry-run",
        "--require-hashes",
        *where,
    ]
    here = tmp_path / "requirements.txt"
    for source in find_inputs():
        write_lock(here, f"of {machine}", on(target, source))
        is_partial = source.relative_to(ROOT).as_posix() in PARTIAL_INPUTS
        alone = ["--no-deps"] if is_partial else []
        done = subprocess.run(
            [*command, *alone, f"--target={tmp_path / 't'}", "-r", str(here)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{source}: {done.stderr}"
