"""The native plugin's compile cache: files that a server leaves in its root, and for a warm start.

Source: aws-neuron/aws-neuron-sdk vllm-neuron/docs/design/compilation/compilation_cache.md (place,
key, locks, the fatal miss) and issue 1368 (.compilation_complete, graph_<key>.neff). The second
cache of the native route, that of traces, is not written: no source that was read gives its place
under the root.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rehearsal.runtime.settings import StandInSettings

VERSIONS = ("vllm-neuron 1.2.0", "neuronx-cc 2.28.7631.0")  # of the 2.33.0 release
DEFAULT_ROOT = "~/.cache/vllm"


class CacheMissError(Exception):
    """A graph is not in the cache, and the server may not compile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeCompileCache:
    """The compile cache of one server.

    Args:
        settings: all that shapes a graph.
        graphs: one for prefill, one for each batch bucket of decoding, and the head's with
            speculation.
    """

    settings: Mapping[str, Any]
    graphs: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Return the folder of the entries."""
        return (
            Path(os.environ.get("VLLM_CACHE_ROOT", DEFAULT_ROOT)).expanduser()
            / "neuron"
            / "compile_cache"
        )

    def warm_up(self, settings: StandInSettings, attempt: int) -> int:
        """Compile the missing graphs; return their number.

        Raises:
            CacheMissError: a graph is missing, and VLLM_NEURON_DISABLE_WARMUP_COMPILE says that
                this is fatal.
            OSError: the cache root cannot be written; even a warm server keeps locks there.
        """
        _require_writable(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        graph_count = 0
        for graph in self.graphs:
            key = self._graph_key(graph)
            with self._lock_key(key):
                if (self.folder / key / ".compilation_complete").exists():
                    continue
                if os.environ.get("VLLM_NEURON_DISABLE_WARMUP_COMPILE") == "1":
                    raise CacheMissError(
                        f"RuntimeError: compile cache miss for graph {key} with"
                        " VLLM_NEURON_DISABLE_WARMUP_COMPILE=1"
                    )
                self._compile_graph(graph, key, settings, attempt)
                graph_count += 1
        return graph_count

    def _graph_key(self, graph: str) -> str:
        """Return the MD5 of graph, inputs, versions, compiler arguments, not environment."""
        plain = json.dumps([graph, self.settings, VERSIONS], sort_keys=True)
        return hashlib.md5(plain.encode(), usedforsecurity=False).hexdigest()

    @contextmanager
    def _lock_key(self, key: str) -> Iterator[None]:
        with (self.folder / f"{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _compile_graph(self, graph: str, key: str, settings: StandInSettings, attempt: int) -> None:
        entry = self.folder / key
        entry.mkdir(exist_ok=True)
        neff = b"NEFF" + key.encode()
        (entry / "graph.hlo").write_text(graph)
        (entry / "command.txt").write_text(
            f"neuronx-cc compile graph.hlo --output graph_{key}.neff"
        )
        if graph != self.graphs[0]:
            settings.crash_if_due(attempt)
        (entry / f"graph_{key}.neff").write_bytes(neff)
        (entry / ".compilation_complete").write_text(f"completed:0\nneff_size:{len(neff)}\n")
        sys.stdout.write(f"compiled graph {graph} ({key})\n")
        sys.stdout.flush()


def _require_writable(folder: Path) -> None:
    """Refuse a folder without any write bit, which means a read-only mount, also for root."""
    while not folder.exists():
        folder = folder.parent
    if not stat.S_IMODE(folder.stat().st_mode) & 0o222:
        raise OSError(30, "Read-only file system", str(folder))
