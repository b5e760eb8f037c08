"""The endpoint of the artifacts' tests, and a run of this test's own that is published to it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "artifacts"))

import pytest
from artifact_fixtures import aws, bucket, clients, endpoint, front, impatient, proxied, proxy, store
from publishing import Published

__all__ = ["aws", "bucket", "clients", "endpoint", "front", "impatient", "proxied", "proxy", "store"]


@pytest.fixture
def published(endpoint, proxy, bucket, tmp_path) -> Published:
    """A folder, an environment of its own, and the way to the endpoint through the fault proxy."""
    return Published(endpoint=endpoint, url=proxy.url, bucket=bucket, folder=tmp_path / "out").made()
