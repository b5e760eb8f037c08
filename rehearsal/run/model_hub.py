"""The models of an experiment as small random checkpoints, on a hub of this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

from rehearsal.checkpoint import ModelFamily, RandomCheckpoint
from rehearsal.hub.connection import LARGE_HOST, HubAccess, HubConnection
from rehearsal.hub.repositories import HubRepositories
from rehearsal.loopback import HOST
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.experiment import Experiment


def write_checkpoints(experiment: Experiment, catalogue: Catalogue, folder: Path) -> None:
    """Write a checkpoint for each model of an experiment, under its name and commit."""
    drafts = [variant.draft for variant in experiment.all_variants() if variant.draft]
    for seed, name in enumerate(dict.fromkeys([experiment.target, *drafts])):
        model = catalogue.models[name]
        family: ModelFamily = "llama" if model.family.value == "llama" else "qwen3"
        checkpoint = RandomCheckpoint(
            family=family, layers=2, seed=seed, embeddings="tied" if seed else "untied"
        )
        checkpoint.write(folder / model.id / model.revision_or_main())


@contextmanager
def serve_hub(folder: Path) -> Iterator[dict[str, str]]:
    """Serve a folder as a hub; yield the variables with which clients find this hub and no other.

    Args:
        folder: `<organisation>/<name>/<revision>/<files>`.
    """
    handler = partial(HubConnection, HubRepositories(folder=folder), HubAccess())
    server = ThreadingHTTPServer((HOST, 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True, name="hub").start()
    try:
        yield {
            "HF_ENDPOINT": f"http://{HOST}:{server.server_address[1]}",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": f"{HOST},{LARGE_HOST}",
        }
    finally:
        server.shutdown()
        server.server_close()
