"""Folders of a compile: listed, cleaned before an attempt, opened to other users after the last.

Invariants: no attempt finds half files of a failed one; an entry of a compiler's cache is finished
only if it has the file that its library writes last, and the files that this last file promises.
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
        folder: of the entry.
        state: finished, failed or half.
        reason: missing file or other cause, for a person.
    """

    folder: Path
    state: str
    reason: str = ""


def walk_files(folder: Path) -> Iterator[Path]:
    """Yield every file below `folder`; a yielded file may be gone a moment later."""
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent) / name


def read_file_size(path: Path) -> int:
    """Return a file's size in bytes; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def measure_folder(folder: Path) -> int:
    """Return the bytes of all files below `folder`."""
    return sum(read_file_size(path) for path in walk_files(folder))


def find_graphs(folder: Path) -> Iterator[CacheGraph]:
    """Yield every entry of the compiler caches below `folder`.

    Two layouts: `MODULE_*` with model.done and model.neff, or model.log if it failed
    (libneuronxla's cache; its file names are in the logs of huggingface/optimum-neuron issue 698
    and aws-neuron-sdk issue 1023); and `compile_cache/<md5>` with graph_<md5>.neff and
    .compilation_complete, which is written last (the native plugin's: aws-neuron-sdk
    compilation_cache.md and issue 1368).
    """
    for parent, names, _ in os.walk(folder):
        is_native = Path(parent).name == "compile_cache"
        for name in sorted(names):
            if name.startswith("MODULE_") or is_native:
                read_graph = (
                    _read_xla_graph_state
                    if name.startswith("MODULE_")
                    else _read_native_graph_state
                )
                names.remove(name)  # there is no entry below an entry
                yield read_graph(Path(parent) / name)


def count_finished(folder: Path) -> int:
    """Return the number of finished graphs below `folder`."""
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
    except OSError:  # none yet, or a running compiler has just removed it
        return CacheGraph(folder, "half", "no .compilation_complete")
    # after the mark, which is written last
    sizes = {read_file_size(path) for path in folder.glob("graph*.neff")}
    if not any(sizes):
        return CacheGraph(folder, "half", ".compilation_complete without a graph's .neff")
    match = re.search(r"^neff_size:(\d+)$", mark, re.MULTILINE)
    if match and int(match[1]) not in sizes:
        return CacheGraph(
            folder, "half", f"its .neff is to have {match[1]} bytes, and has {max(sizes)}"
        )
    return CacheGraph(folder, "finished")


def clean_output(output: Path, cache: Path, *, keep_graphs: bool) -> None:
    """Remove files of an earlier attempt that would disturb this one.

    A program's output is emptied. A server's output is its own cache: `keep_graphs` keeps its
    finished graphs for a second attempt of the same request. Unfinished graphs are removed from
    output and cache, or the compiler would repeat an old failure; so are locks, for which a new
    compiler would wait for ever (nobody else compiles here).
    """
    if output.is_dir() and not keep_graphs:
        for path in output.glob("*"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    output.mkdir(parents=True, exist_ok=True)
    for folder in {output, cache}:
        for graph in list(find_graphs(folder)):
            if graph.state != "finished":
                shutil.rmtree(graph.folder, ignore_errors=True)
        _remove_locks(folder)


def finish_output(folder: Path) -> None:
    """Make the output readable for another user's program, which stores it.

    Libraries write temporary files that only their owner may read, and rename them. Locks are
    removed: their program has ended. This may be done twice.
    """
    _remove_locks(folder)
    for parent, _, names in os.walk(folder):
        for path, bits in (
            (Path(parent), 0o755),
            *((Path(parent) / name, 0o644) for name in names),
        ):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | bits)


def _remove_locks(folder: Path) -> None:
    for path in list(walk_files(folder)):
        if path.suffix == ".lock":
            path.unlink(missing_ok=True)
