"""What the inspection refuses after a compile that ended well is kept, and a person can take it all
the same."""

from __future__ import annotations

import pytest
from compiled import HOLDER, KEY, write_artifact, write_outcome
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule
from stored_sets import read_folder

from tandem.artifacts.artifact_import import import_artifact
from tandem.artifacts.manifest import read_stored_manifest
from tandem.errors import InputError

pytestmark = pytest.mark.endpoint
ODD = "weights/of-a-release-nobody-knew.json"
FAULT = "no rank of 2 has this name"


@pytest.fixture(autouse=True)
def odd(tmp_path):
    """An artifact with one file more than the inspection knows of."""
    write_outcome(tmp_path / "work")
    folder = write_artifact(tmp_path / "artifact")
    (folder / ODD).write_text("{}")
    return folder


def run_of(store):
    """The folder that a refused artifact lies in."""
    (run_name,) = {
        row.key.split("/")[2] for row in store.list(f"{KEY.prefix}/") if row.key.count("/") > 2
    }
    return run_name


def test_refused_artifact_is_stored_without_a_manifest(store, upload, odd):
    code, lines = upload()

    assert (code, read_stored_manifest(store, KEY.prefix)) == (1, None)
    local = read_folder(odd)
    folder = f"{KEY.prefix}/{run_of(store)}"
    assert {name: store.read(f"{folder}/{name}").body for name in local} == local
    assert FAULT in lines[-1]["event"]


def test_restart_of_the_container_says_the_same_and_sends_nothing(proxy_store, proxy, upload):
    assert proxy_store
    first = upload()[1][-1]
    proxy.forget()
    code, lines = upload()

    assert (code, lines[-1]["event"]) == (1, first["event"])
    assert not proxy.requests(
        "PutObject", f"/{proxy_store.bucket}/{KEY.prefix}/{HOLDER}-*/weights/*"
    )


def test_what_was_refused_can_be_adopted_without_another_upload(proxy_store, proxy, upload):
    upload()
    run = run_of(proxy_store)
    proxy.forget()
    is_new = import_artifact(proxy_store, run, KEY)[1]

    manifest = read_stored_manifest(proxy_store, KEY.prefix)
    assert manifest is not None
    assert is_new
    assert manifest.folder == run
    assert {file.path for file in manifest.files} >= {ODD}
    assert proxy.requests("PutObject", "*/weights/*") == ()
    assert [FAULT in sentence for sentence in manifest.made["accepted"]] == [True]
    assert any(FAULT in sentence for sentence in manifest.made["unproven"])


@pytest.mark.parametrize("run", ["no-such-run", "../models"])
def test_a_run_that_was_not_refused_is_none(store, upload, run):
    upload()
    with pytest.raises(InputError, match="no upload refused this run"):
        import_artifact(store, run, KEY)


def test_an_artifact_folder_that_is_a_link_is_refused(store, upload, odd, tmp_path):
    """The compiler could point it at what only the tools container can read."""
    (tmp_path / "current").symlink_to(odd)
    code, _ = upload(folder="current")
    assert (code, [row.key for row in store.list(KEY.prefix) if "lease" not in row.key]) == (2, [])


def test_an_upload_outlasts_a_store_that_fails_for_a_while(
    proxy_store, proxy, upload, odd, monkeypatch
):
    """A pod whose container fails four times is removed, and with it the only copy of hours of
    compiling."""
    (odd / ODD).unlink()
    monkeypatch.setattr("tandem.artifacts.retry.RETRY_PAUSE_S", 0.01)
    proxy.use(
        FaultRule(operation="PutObject", path="*/model.pt", fault=ACCESS_DENIED_FAULT, times=1)
    )
    code, lines = upload("--patience-s", "60")

    assert (code, lines[-1]["event"]) == (0, "stored")
    assert any(line["event"] == "trying again" for line in lines)
    assert read_stored_manifest(proxy_store, KEY.prefix) is not None
