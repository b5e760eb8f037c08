"""The entries of compilers' caches: finished, failed, or half.

Invariant: an entry is finished only with the file that its own library writes last, and with what that file promises.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tandem.artifacts.driver.folders import size_of


@dataclass(frozen=True)
class Graph:
    """One entry of a compiler's cache.

    Args:
        folder: where it lies.
        state: finished, failed or half.
        why: what is missing, for a person.
    """

    folder: Path
    state: str
    why: str


def graphs(folder: Path) -> Iterator[Graph]:
    """Yield every entry of the compiler caches below `folder`.

    Two layouts: `MODULE_*` with model.done and model.neff, or model.log where it failed (libneuronxla's cache, whose
    file names stand in the logs of huggingface/optimum-neuron issue 698 and aws-neuron-sdk issue 1023); and
    `compile_cache/<md5>` with graph_<md5>.neff and .compilation_complete, which is written last (the native plugin's:
    aws-neuron-sdk compilation_cache.md and issue 1368).
    """
    for parent, folders, _ in os.walk(folder):
        here = Path(parent)
        own = [name for name in folders if name.startswith("MODULE_") or here.name == "compile_cache"]
        for name in sorted(own):
            yield _xla_graph(here / name) if name.startswith("MODULE_") else _native_graph(here / name)
        folders[:] = [name for name in folders if name not in own]


def _xla_graph(folder: Path) -> Graph:
    if (folder / "model.done").exists():
        if size_of(folder / "model.neff"):
            return Graph(folder, "finished", "")
        return Graph(folder, "half", "model.done without a model.neff")
    if (folder / "model.log").exists():
        return Graph(folder, "failed", "the compiler marked it as failed (model.log)")
    return Graph(folder, "half", "no model.done")


def _native_graph(folder: Path) -> Graph:
    mark = folder / ".compilation_complete"
    if not mark.exists():
        return Graph(folder, "half", "no .compilation_complete")
    sizes = {path.name: size_of(path) for path in folder.glob("graph*.neff")}
    if not any(sizes.values()):
        return Graph(folder, "half", ".compilation_complete without a graph's .neff")
    try:
        said = re.search(r"^neff_size:(\d+)$", mark.read_text(errors="replace"), re.MULTILINE)
    except OSError:  # a compiler that is at work has just removed it
        return Graph(folder, "half", "no .compilation_complete")
    if said and int(said[1]) not in sizes.values():
        return Graph(folder, "half", f"its .neff is to have {said[1]} bytes, and has {max(sizes.values())}")
    return Graph(folder, "finished", "")
