"""The endpoint of the artifacts' tests, and a run of this test's own that is published to it."""

from __future__ import annotations

import pytest
from artifact_fixtures import aws, clients, front, impatient, proxy
from published_run import PublishedRun, make_results_bucket

__all__ = ["aws", "clients", "front", "impatient", "proxy"]


@pytest.fixture
def run(endpoint, clients, proxy, tmp_path):
    """A folder, an environment and a bucket of its own, and the way to the endpoint through the
    fault proxy."""
    name = make_results_bucket(endpoint, clients)
    return PublishedRun(
        endpoint=endpoint, url=proxy.url, bucket=name, folder=tmp_path / "out"
    ).made()
