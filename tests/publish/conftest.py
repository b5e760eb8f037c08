"""The endpoint of the artifacts' tests, and a run of this test's own that is published to it."""

from __future__ import annotations

import uuid

import pytest
from artifact_fixtures import aws, clients, front, impatient, proxy
from published_run import PublishedRun

__all__ = ["aws", "clients", "front", "impatient", "proxy"]


@pytest.fixture
def run(endpoint, clients, proxy, tmp_path):
    """A folder, an environment and a bucket of its own, and the way to the endpoint through the
    fault proxy."""
    endpoint.reset()  # it looks through all values at each request
    name = f"results-{uuid.uuid4().hex[:10]}"
    where = {"LocationConstraint": endpoint.region}
    clients[endpoint.url].create_bucket(Bucket=name, CreateBucketConfiguration=where)
    return PublishedRun(
        endpoint=endpoint, url=proxy.url, bucket=name, folder=tmp_path / "out"
    ).made()
