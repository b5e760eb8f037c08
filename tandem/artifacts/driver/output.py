"""The folder that a program fills: cleaned before an attempt, opened to others after the last.

Invariant: no attempt meets what a failed one left half.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tandem.artifacts.driver.cache import find_graphs
from tandem.artifacts.driver.folders import find_locks


def clean_output(output: Path, cache: Path, *, keep_graphs: bool) -> None:
    """Remove what an earlier attempt left and this one must not meet.

    A program's output is emptied. A server's output is its own cache: graphs that are finished are kept for a second
    attempt of the same request, all others go. Failed graphs go from every cache, or the compiler would repeat its
    verdict unasked; so do locks, for which a new compiler would wait for ever (nobody else compiles in this pod).
    """
    if not keep_graphs:
        for path in output.glob("*") if output.is_dir() else ():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    output.mkdir(parents=True, exist_ok=True)
    for folder in {output, cache}:
        for graph in list(find_graphs(folder)):
            if graph.state != "finished":
                shutil.rmtree(graph.folder, ignore_errors=True)
        for lock in list(find_locks(folder)):
            lock.unlink(missing_ok=True)


def finish_output(folder: Path) -> None:
    """Make the output one that another user's program can store.

    Libraries write temporary files that only their owner may read, and rename them; locks are those of a program
    that has ended. May be done twice.
    """
    for lock in list(find_locks(folder)):
        lock.unlink(missing_ok=True)
    for parent, _, names in os.walk(folder):
        parent_path = Path(parent)
        parent_path.chmod(parent_path.stat().st_mode | 0o755)
        for name in names:
            path = parent_path / name
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | 0o644)
