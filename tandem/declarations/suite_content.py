"""The content of a file of prompts on disk, as far as it can be stored.

Invariant: the size is asked before the file is read.
"""

from __future__ import annotations

from pathlib import Path

from tandem.errors import InputError, convert_os_errors

MAX_SUITE_BYTES = 64 * 1024**2  # it passes through the memory of a small pod
SIZE_ADVICE = "keep fewer prompts: a few hundred decide"


def read_suite_file(path: Path) -> bytes:
    """Return the content of a file of prompts.

    Raises:
        InputError: it cannot be read, or is too large to be stored.
    """
    with convert_os_errors("it cannot be read", path, "correct the path or its rights"):
        size = path.stat().st_size
        if size <= MAX_SUITE_BYTES:
            return path.read_bytes()
    raise build_size_error(size, str(path))


def build_size_error(size: int, where: str) -> InputError:
    """Return the refusal of a file of so many bytes."""
    problem = f"{size} bytes, and a file of prompts has at most {MAX_SUITE_BYTES}"
    return InputError(problem, where=where, change=SIZE_ADVICE)
