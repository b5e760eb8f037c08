"""The files of the repository that Git tracks."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def list_tracked(*patterns: str) -> list[str]:
    """Return the tracked files that stand here, as paths below the repository.

    Args:
        patterns: of `git ls-files`, options too; all files when none is given.
    """
    command = ["git", "ls-files", "-z", *patterns]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listing.split("\0") if name and (ROOT / name).is_file()]
