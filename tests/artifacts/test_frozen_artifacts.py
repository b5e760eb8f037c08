"""Manifests and leases that commit 59a2544 stored are read: tests/frozen/objects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandem.artifacts.inventory import read_inventory
from tandem.artifacts.lease import parse_lease
from tandem.artifacts.manifest import LEASE_NAME

pytestmark = pytest.mark.endpoint
OBJECTS = json.loads((Path(__file__).parents[1] / "frozen" / "objects" / "artifacts_59a2544.json").read_text())


@pytest.fixture
def stored(store):
    for key, found in OBJECTS.items():
        body = json.dumps(found["body"]).encode() if "body" in found else bytes(found["size"])
        store.client.put_object(Bucket=store.bucket, Key=key, Body=body, Metadata=found["metadata"])
    return store


def test_frozen_sets_are_whole(stored):
    states = {(found.kind, found.name.partition("@")[0], found.condition) for found in read_inventory(stored)}

    assert {("model", "acme/tiny", "whole"), ("artifact", "qwen3-0-6b-none-tp2-lnc2-b1-s128-a39864e1b644", "whole")} < (
        states
    )


def test_frozen_leases_are_read(stored):
    keys = [key for key in OBJECTS if key.endswith(LEASE_NAME)]
    held = {parse_lease(stored.read(key), key).holder: parse_lease(stored.read(key), key).is_active for key in keys}
    assert {holder for holder, state in held.items() if state} == {"job-1"}
    assert held["compile-tiny-0123"] is False
