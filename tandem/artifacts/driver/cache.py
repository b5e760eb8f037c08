"""The entries of compilers' caches: finished, failed, or half.

Invariant: an entry is finished only with the file that its own library writes last, and with what that file promises.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tandem.artifacts.driver.folders import read_file_size


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
    reason: str


def find_graphs(folder: Path) -> Iterator[CacheGraph]:
    """Yield every entry of the compiler caches below `folder`.

    Two layouts: `MODULE_*` with model.done and model.neff, or model.log where it failed (libneuronxla's cache, whose
    file names stand in the logs of huggingface/optimum-neuron issue 698 and aws-neuron-sdk issue 1023); and
    `compile_cache/<md5>` with graph_<md5>.neff and .compilation_complete, which is written last (the native plugin's:
    aws-neuron-sdk compilation_cache.md and issue 1368).
    """
    for parent, folders, _ in os.walk(folder):
        parent_path = Path(parent)
        graph_names = [name for name in folders if name.startswith("MODULE_") or parent_path.name == "compile_cache"]
        for name in sorted(graph_names):
            yield (
                _read_xla_graph(parent_path / name)
                if name.startswith("MODULE_")
                else _read_native_graph(parent_path / name)
            )
        folders[:] = [name for name in folders if name not in graph_names]


def _read_xla_graph(folder: Path) -> CacheGraph:
    if (folder / "model.done").exists():
        if read_file_size(folder / "model.neff"):
            return CacheGraph(folder, "finished", "")
        return CacheGraph(folder, "half", "model.done without a model.neff")
    if (folder / "model.log").exists():
        return CacheGraph(folder, "failed", "the compiler marked it as failed (model.log)")
    return CacheGraph(folder, "half", "no model.done")


def _read_native_graph(folder: Path) -> CacheGraph:
    mark_path = folder / ".compilation_complete"
    if not mark_path.exists():
        return CacheGraph(folder, "half", "no .compilation_complete")
    sizes = {path.name: read_file_size(path) for path in folder.glob("graph*.neff")}
    if not any(sizes.values()):
        return CacheGraph(folder, "half", ".compilation_complete without a graph's .neff")
    try:
        size_match = re.search(r"^neff_size:(\d+)$", mark_path.read_text(errors="replace"), re.MULTILINE)
    except OSError:  # a compiler that is at work has just removed it
        return CacheGraph(folder, "half", "no .compilation_complete")
    if size_match and int(size_match[1]) not in sizes.values():
        return CacheGraph(folder, "half", f"its .neff is to have {size_match[1]} bytes, and has {max(sizes.values())}")
    return CacheGraph(folder, "finished", "")
