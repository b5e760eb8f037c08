"""`verify`: every byte of a stored set is read; what differs is named."""

from __future__ import annotations

import pytest
from compiled import KEY, write_artifact, write_outcome
from doubles.fault_proxy.rules import DropFault, FaultRule

from tandem.artifacts.manifest import read_stored_manifest

pytestmark = pytest.mark.endpoint
MANIFEST = f"{KEY.prefix}/tandem-manifest.json"


@pytest.fixture
def stored(tmp_path, upload):
    """A whole stored artifact."""
    write_artifact(tmp_path / "artifact")
    write_outcome(tmp_path / "work")
    assert upload()[0] == 0


@pytest.fixture
def verify(bucket, command):
    return lambda *words: command(
        "verify", *(words or ("--bucket", bucket, "--artifact", KEY.name))
    )


def keys_of(store):
    manifest = read_stored_manifest(store, KEY.prefix)
    return [f"{KEY.prefix}/{manifest.folder}/{file.path}" for file in manifest.files]


@pytest.mark.usefixtures("stored")
def test_a_whole_set_is_right(verify):
    code, lines = verify()
    assert (code, lines[-1]["event"], lines[-1]["wrong"]) == (0, "right", 0)


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("has_mark", [True, False], ids=["marked", "unmarked"])
def test_one_flipped_byte_of_a_file_is_found(store, verify, has_mark):
    key = keys_of(store)[-1]
    body = bytearray(store.read(key).body)
    body[-1] ^= 1
    marks = {"sha256": store.head(key).sha256} if has_mark else {}
    store.client.put_object(Bucket=store.bucket, Key=key, Body=bytes(body), Metadata=marks)

    code, lines = verify()

    assert (code, [line["where"] for line in lines if "where" in line]) == (1, [store.url(key)])


@pytest.mark.usefixtures("stored")
def test_one_flipped_byte_of_the_manifest_is_found(store, verify):
    head = store.head(MANIFEST)
    body = bytearray(store.read(MANIFEST).body)
    at = body.index(b'"where": "device"') + 12
    body[at] ^= 1
    store.client.put_object(
        Bucket=store.bucket, Key=MANIFEST, Body=bytes(body), Metadata={"sha256": head.sha256}
    )

    assert verify()[0] == 1


@pytest.mark.usefixtures("stored")
def test_missing_and_short_files_are_named_with_advice(store, verify):
    first, second, *_ = keys_of(store)
    store.delete([first])
    store.client.put_object(Bucket=store.bucket, Key=second, Body=b"short")
    code, lines = verify()

    wrong = {line["where"]: line for line in lines if "where" in line}
    assert (code, wrong.keys()) == (1, {store.url(first), store.url(second)})
    assert f"aws s3 rm {store.url(first)}" in wrong[store.url(first)]["change"]


@pytest.mark.usefixtures("stored")
def test_a_bucket_that_cannot_be_reached_is_no_verdict(proxy_store, proxy, verify):  # noqa: ARG001
    proxy.use(FaultRule(operation="GetObject", path="*/weights/*", fault=DropFault()))
    assert verify()[0] == 3


def test_what_has_no_manifest_is_told(verify, store):
    code, lines = verify()
    assert (code, lines[-1]["where"]) == (2, store.url(MANIFEST))
