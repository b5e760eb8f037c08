"""What tests of the artifacts share; it stands in modules of its own, which proofs/ share too."""

from __future__ import annotations

import pytest
from artifact_fixtures import (
    aws,
    blob,
    bucket,
    clients,
    command,
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
from compiled import variables

__all__ = [
    "aws",
    "blob",
    "bucket",
    "clients",
    "command",
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


@pytest.fixture
def upload(aws, bucket, tmp_path, monkeypatch, command):  # noqa: ARG001 - aws leads to the endpoint
    """Upload the artifact below the test's folder as its pod does; the code, the log lines."""
    for name, value in variables().items():
        monkeypatch.setenv(name, value)

    def act(*more, folder="artifact"):
        options = ("--bucket", bucket, "--work", tmp_path / "work")
        return command("upload", *options, "--artifact", tmp_path / folder, *more)

    return act
