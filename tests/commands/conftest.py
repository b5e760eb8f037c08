"""The endpoint of the artifacts' tests, for the commands that speak to a bucket."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "artifacts"))

from artifact_fixtures import aws, bucket, clients, endpoint, front, proxied, proxy, store

__all__ = ["aws", "bucket", "clients", "endpoint", "front", "proxied", "proxy", "store"]
