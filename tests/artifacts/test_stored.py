"""Stored manifests: last, never over another one, and never before the files are whole."""

from __future__ import annotations

import pytest
from stored_sets import manifest_of, put

from tandem.artifacts.manifest import read_stored_manifest, write_stored_manifest
from tandem.errors import InputError, StaleError

pytestmark = pytest.mark.endpoint
PREFIX = "artifacts/key"


@pytest.fixture
def manifest(store):
    """A manifest whose files are in the bucket."""
    bodies = {"a": b"alpha", "sub/b": b"beta", "c": b""}
    for name, body in bodies.items():
        put(store, f"{PREFIX}/run/{name}", body)
    return manifest_of(PREFIX, "run", {}, bodies)


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("sub/b", None, "sub/b: the object is missing"),
        ("a", b"alph", "a: the object has 4 bytes, the manifest says 5"),
        ("a", b"ALPHA", "a: the object is marked with SHA-256"),
    ],
    ids=["missing", "size", "content"],
)
def test_a_set_that_is_not_whole_gets_no_manifest(store, manifest, name, body, words):
    key = {"Bucket": store.bucket, "Key": f"{PREFIX}/run/{name}"}
    if body is None:
        store.client.delete_object(**key)
    else:
        store.client.put_object(**key, Body=body)

    with pytest.raises(StaleError, match=words):
        write_stored_manifest(store, PREFIX, manifest)
    assert read_stored_manifest(store, PREFIX) is None


def test_another_manifest_is_never_replaced(store, manifest):
    first = manifest.model_copy(update={"made": {"run": "first"}})
    write_stored_manifest(store, PREFIX, first)

    assert not write_stored_manifest(store, PREFIX, manifest)
    assert read_stored_manifest(store, PREFIX).made == {"run": "first"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"schema_version": 1, "ki', "cut off"),
        (b'{"schema_version": 2}', "schema 2; this version of Tandem reads schema 1"),
        (b'{"schema_version": 0}', "schema 0; this version of Tandem reads schema 1"),
        (b"{}", "malformed at schema_version"),
    ],
    ids=["truncated", "newer", "older", "malformed"],
)
def test_a_manifest_that_cannot_be_read_names_its_object(store, endpoint, bucket, body, words):
    endpoint.client("s3").put_object(Bucket=bucket, Key=f"{PREFIX}/tandem-manifest.json", Body=body)
    with pytest.raises(InputError, match=f"s3://{bucket}/{PREFIX}/tandem-manifest.json: .*{words}"):
        read_stored_manifest(store, PREFIX)
