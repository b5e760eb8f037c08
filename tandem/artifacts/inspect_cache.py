"""What compilers left in a cache: finished graphs, and those that are not.

Invariant: a cache that passes has a finished graph and no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tandem.artifacts.driver import find_graphs

ENTRY_PATTERN = re.compile(r"MODULE_.*|[0-9a-f]{32,}")
UNPROVEN_NOTE = "that a second server starts from this cache root without compiling is shown only by one that has"


def list_graph_failures(folder: Path) -> Iterator[str]:
    """Yield one sentence per graph of a compiler's cache that failed.

    A graph that is merely half is no fault of the artifact: the compiler may have met it again under another name.
    """
    for graph in find_graphs(folder):
        if graph.state == "failed":
            yield f"{graph.folder}: {graph.reason}"


def inspect_cache_root(folder: Path) -> Iterator[str]:
    """Yield one sentence per fault of a native artifact: a vLLM cache root on local disk.

    A folder that has no entry's name, such as a library's own for what it is about to write, is none of a graph.
    """
    states = {"finished": 0, "failed": 0, "half": 0}
    for graph in find_graphs(folder):
        states[graph.state] += 1
        if graph.state != "finished" and ENTRY_PATTERN.fullmatch(graph.folder.name):
            yield f"{graph.folder}: a {graph.state} graph: {graph.reason}"
    if not states["finished"]:
        yield f"{folder}: it holds no finished graph"
