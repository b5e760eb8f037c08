"""How large a file of prompts may be, on disk and in the bucket.

Invariant: the size is asked before the file is read.
"""

from __future__ import annotations

from pathlib import Path

from tandem.errors import InputError, convert_os_errors

MAX_SUITE_BYTES = 64 * 1024**2  # it passes through the memory of a small pod


def read_suite_file(path: Path) -> bytes:
    """Return the content of a file of prompts.

    Raises:
        InputError: it cannot be read, or is too large to be stored.
    """
    with convert_os_errors("it cannot be read", path, "correct the path or its rights"):
        require_suite_size(path.stat().st_size, str(path))
        return path.read_bytes()


def require_suite_size(size: int, where: str) -> None:
    """Refuse a file of prompts that is too large to be stored.

    Raises:
        InputError: it is too large.
    """
    if size > MAX_SUITE_BYTES:
        problem = f"{size} bytes, and a file of prompts has at most {MAX_SUITE_BYTES}"
        change = "keep fewer prompts: a few hundred decide"
        raise InputError(problem, where=where, change=change)
