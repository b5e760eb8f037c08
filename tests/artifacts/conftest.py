"""What tests of the artifacts share; it stands in modules of its own, which proofs/ share too."""

from __future__ import annotations

from artifact_fixtures import aws, blob, bucket, clients, endpoint, front, impatient, module, proxied, proxy, store

__all__ = [
    "aws", "blob", "bucket", "clients", "endpoint", "front", "impatient", "module", "proxied", "proxy", "store",
]  # fmt: skip
