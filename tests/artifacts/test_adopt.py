"""`import_artifact`: an artifact that was compiled elsewhere, taken in as if it had been compiled
here, or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compiled import KEY as TINY
from compiled import write_artifact
from stored_sets import keys

from tandem.artifacts.artifact_import import import_artifact
from tandem.artifacts.lease import LeaseConflictError, hold_lease
from tandem.artifacts.manifest import read_stored_manifest
from tandem.errors import InputError, StaleError

pytestmark = pytest.mark.endpoint
KEY = replace(TINY, mode="none")
LEASE = f"{KEY.prefix}/tandem-lease.json"


@pytest.fixture
def folder(tmp_path):
    return write_artifact(tmp_path / "compiled", key=KEY)


def test_the_manifest_says_that_it_was_adopted_and_is_unproven(store, folder):
    import_artifact(store, folder, KEY)

    manifest = read_stored_manifest(store, KEY.prefix)
    assert manifest is not None
    assert (manifest.fields, manifest.made["where"], manifest.made["run"]) == (
        KEY.as_fields(),
        "elsewhere",
        manifest.folder,
    )
    assert "compiled elsewhere" in manifest.made["unproven"][0]


def test_artifact_of_another_key_is_refused_by_its_field(store, folder):
    other_key = replace(KEY, tuning={"fused_qkv": False})
    with pytest.raises(StaleError, match=r"tuning\.fused_qkv: artifact true, deployment false"):
        import_artifact(store, folder, other_key)
    assert keys(store) == set()


def test_a_folder_that_is_not_there_is_refused_by_name(store, tmp_path):
    with pytest.raises(InputError, match="missing"):
        import_artifact(store, tmp_path / "missing", KEY)


def test_key_that_a_job_writes_is_refused_with_its_holder(store, folder):
    with (
        hold_lease(store, LEASE, "compile-1", 600, 0),
        pytest.raises(LeaseConflictError, match="held by compile-1"),
    ):
        import_artifact(store, folder, KEY)
