"""What stands in a bucket, set by set, and what of one set never hides another."""

from __future__ import annotations

import pytest
from stored_sets import FILES, put, put_lease, put_set

from tandem.artifacts.inventory import find_set_prefix, read_inventory, read_stored_set
from tandem.artifacts.lease import hold_lease

pytestmark = pytest.mark.endpoint
KEY = "artifacts/tiny-000000000000"
BAD = {
    "truncated": b'{"schema_version": 1, "kind": "arti',
    "newer": b'{"schema_version": 2}',
    "leaves": (
        b'{"schema_version": 1, "kind": "artifact", "name": "leaves", "folder": "", "fields": {},'
        b' "made": {}, "files": [{"path": "../../secret", "size": 1, "sha256": "%s"}]}'
        % (b"0" * 64)
    ),
    "binary": b"\xff\xfe\x00",
}


def by_name(store):
    return {stored_set.name: stored_set for stored_set in read_inventory(store, with_uploads=False)}


def test_a_bad_manifest_hides_no_other_set(store):
    put_set(store, KEY, "run")
    for name, body in BAD.items():
        put(store, f"artifacts/{name}/tandem-manifest.json", body)

    stored_set = by_name(store)

    assert set(stored_set) == {"tiny-000000000000", *BAD}
    assert [name for name, entry in stored_set.items() if entry.damage == ""] == [
        "tiny-000000000000"
    ]


def test_a_manifest_under_another_name_is_damage(store):
    put_set(store, KEY, "run")
    body = store.read(f"{KEY}/tandem-manifest.json").body
    put(store, "artifacts/other/tandem-manifest.json", body)
    assert (
        read_stored_set(store, "artifacts/other").damage
        == "its manifest is of artifact tiny-000000000000"
    )


def test_a_file_of_another_size_is_damage(store):
    put_set(store, KEY, "run")
    put(store, f"{KEY}/run/config.json", b"{ }")
    stored_set = read_stored_set(store, KEY)
    assert (stored_set.condition, stored_set.damage) == ("damaged", "config.json of another size")


def test_files_without_a_manifest_are_partial_with_their_writer(store):
    put(store, f"{KEY}/run/config.json")
    with hold_lease(store, f"{KEY}/tandem-lease.json", "job-a", 60, 0):
        busy = read_stored_set(store, KEY)
    free = read_stored_set(store, KEY)
    assert busy.condition == "partial"
    assert busy.writer.startswith("held by job-a until 20")
    assert (free.condition, free.writer) == ("partial", "nobody writes it, job-a was the last")


def test_a_lease_that_is_none_hides_nothing(store):
    put_set(store, KEY, "run")
    put(store, f"{KEY}/tandem-lease.json", b"mine")
    stored_set = read_stored_set(store, KEY)
    assert stored_set.lease is None
    assert stored_set.lease_fault is not None
    assert stored_set.damage == ""


@pytest.mark.parametrize(
    ("key", "prefix"),
    [
        ("models/org/name/main/a/b", "models/org/name/main"),
        ("artifacts/x/run/a", "artifacts/x"),
        ("models/org/name/a", ""),
        ("artifacts/a", ""),
        ("models//name/main/a", ""),
        ("other/a/b/c/d", ""),
    ],
)
def test_only_what_has_the_layout_is_a_set(key, prefix):
    assert find_set_prefix(key) == prefix


def test_set_completed_during_the_listing_is_whole(store, proxy_store, proxy, monkeypatch):
    monkeypatch.setattr("tandem.artifacts.store.PAGE_ROWS", 1)
    put(store, f"{KEY}/run/weights/tp0.safetensors", FILES["weights/tp0.safetensors"])
    put_lease(store, KEY, is_held=True)
    writes: list[bool] = []

    def end(moment, request):
        if (moment, request.operation, request.query.get("prefix")) == (
            "done",
            "ListObjectsV2",
            "artifacts/",
        ):
            writes.extend([] if writes else [bool(put_set(store, KEY, "run"))])

    proxy.moment_callback = end
    stored_set = by_name(proxy_store)["tiny-000000000000"]
    assert (writes, stored_set.condition, stored_set.damage, len(stored_set.files)) == (
        [True],
        "whole",
        "",
        2,
    )
