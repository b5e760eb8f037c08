"""The folders of a compile: what lies in them, cleaned before an attempt, opened to others after the last.

Invariants: no attempt meets what a failed one left half; an entry of a compiler's cache is finished only with the file
that its own library writes last, and with what that file promises.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CacheGraph:
    """One entry of a compiler's cache.

    Args:
        folder: where it lies.
        state: finished, failed or half.
        reason: what is missing, for a person.
    """

    folder: Path
    state: str
    reason: str = ""


def walk_files(folder: Path) -> Iterator[Path]:
    """Yield every file below `folder`, without a word about what is gone the moment after."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent) / name for name in names)


def read_file_size(path: Path) -> int:
    """Return a file's bytes; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def measure_folder(folder: Path) -> int:
    """Return the bytes of all files below `folder`."""
    return sum(read_file_size(path) for path in walk_files(folder))


def find_graphs(folder: Path) -> Iterator[CacheGraph]:
    """Yield every entry of the compiler caches below `folder`.

    Two layouts: `MODULE_*` with model.done and model.neff, or model.log where it failed (libneuronxla's cache, whose
    file names stand in the logs of huggingface/optimum-neuron issue 698 and aws-neuron-sdk issue 1023); and
    `compile_cache/<md5>` with graph_<md5>.neff and .compilation_complete, which is written last (the native plugin's:
    aws-neuron-sdk compilation_cache.md and issue 1368).
    """
    for parent, names, _ in os.walk(folder):
        is_native = Path(parent).name == "compile_cache"
        for name in sorted(names):
            if name.startswith("MODULE_") or is_native:
                read_graph = _read_xla_graph_state if name.startswith("MODULE_") else _read_native_graph_state
                names.remove(name)  # nothing below an entry is another
                yield read_graph(Path(parent) / name)


def count_finished(folder: Path) -> int:
    """Return how many graphs below `folder` are finished."""
    return sum(graph.state == "finished" for graph in find_graphs(folder))


def _read_xla_graph_state(folder: Path) -> CacheGraph:
    if (folder / "model.done").exists() and read_file_size(folder / "model.neff"):
        return CacheGraph(folder, "finished")
    if (folder / "model.log").exists():
        return CacheGraph(folder, "failed", "the compiler marked it as failed (model.log)")
    return CacheGraph(folder, "half", "no model.done with a model.neff")


def _read_native_graph_state(folder: Path) -> CacheGraph:
    try:
        mark = (folder / ".compilation_complete").read_text(errors="replace")
    except OSError:  # none yet, or a compiler that is at work has just removed it
        return CacheGraph(folder, "half", "no .compilation_complete")
    sizes = {read_file_size(path) for path in folder.glob("graph*.neff")}  # after the mark, which is written last
    if not any(sizes):
        return CacheGraph(folder, "half", ".compilation_complete without a graph's .neff")
    match = re.search(r"^neff_size:(\d+)$", mark, re.MULTILINE)
    if match and int(match[1]) not in sizes:
        return CacheGraph(folder, "half", f"its .neff is to have {match[1]} bytes, and has {max(sizes)}")
    return CacheGraph(folder, "finished")


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
        _remove_locks(folder)


def finish_output(folder: Path) -> None:
    """Make the output one that another user's program can store.

    Libraries write temporary files that only their owner may read, and rename them; locks are those of a program
    that has ended. May be done twice.
    """
    _remove_locks(folder)
    for parent, _, names in os.walk(folder):
        for path, bits in ((Path(parent), 0o755), *((Path(parent) / name, 0o644) for name in names)):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | bits)


def _remove_locks(folder: Path) -> None:
    for path in list(walk_files(folder)):
        if path.suffix == ".lock":
            path.unlink(missing_ok=True)
