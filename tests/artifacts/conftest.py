"""What tests of the artifacts share; it stands in modules of its own, which proofs/ share too."""

from __future__ import annotations

from artifact_fixtures import (
    aws,
    blob,
    bucket,
    clients,
    command,
    endpoint,
    front,
    impatient,
    log_lines,
    module,
    proxy,
    proxy_store,
    secret,
    start,
    store,
)

__all__ = [
    "aws",
    "blob",
    "bucket",
    "clients",
    "command",
    "endpoint",
    "front",
    "impatient",
    "log_lines",
    "module",
    "proxy",
    "proxy_store",
    "secret",
    "start",
    "store",
]
