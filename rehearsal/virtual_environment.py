"""Virtual environments next to `.venv`, each of one list of requirements.

Invariant: `ensure_environment` returns the interpreter of an environment that holds exactly its
list, or raises.
"""

from __future__ import annotations

import fcntl
import hashlib
import venv
from collections.abc import Callable
from pathlib import Path


def ensure_environment(directory: Path, requirements: Path, make: Callable[[Path], None]) -> Path:
    """Return the Python of an environment, made or renewed if it does not fit its list.

    Args:
        directory: of the environment.
        requirements: the list.
        make: creates the environment of this interpreter and installs the list, or raises.
    """
    with requirements.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test workers may want it at once
        interpreter = directory / "bin" / "python"
        stamp = directory / "requirements.sha256"
        wanted_digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
        if not (interpreter.exists() and stamp.exists() and stamp.read_text() == wanted_digest):
            make(interpreter)
            stamp.write_text(wanted_digest)
    return interpreter


def create_environment(directory: Path) -> None:
    """Create an empty environment with pip, as `python -m venv` does; clear what was there."""
    venv.create(directory, with_pip=True, clear=directory.exists(), symlinks=True)
