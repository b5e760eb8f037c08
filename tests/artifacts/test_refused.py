"""What the inspection refuses after a compile that ended well is kept, and a person can take it all
the same."""

from __future__ import annotations

import pytest
from compiled import HOLDER, KEY, variables, write_artifact, write_outcome
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule

from tandem.artifacts.artifact_import import import_artifact
from tandem.artifacts.manifest import read_stored_manifest
from tandem.errors import InputError, StaleError

pytestmark = pytest.mark.endpoint
ODD = "weights/of-a-release-nobody-knew.json"
FAULT = "no rank of 2 has this name"


@pytest.fixture
def odd(tmp_path):
    """An artifact with one file more than the inspection knows of."""
    write_outcome(tmp_path / "work")
    folder = write_artifact(tmp_path / "artifact")
    (folder / ODD).write_text("{}")
    return folder


@pytest.fixture
def upload(aws, bucket, tmp_path, monkeypatch, command):  # noqa: ARG001 - aws leads to the endpoint
    for name, value in variables().items():
        monkeypatch.setenv(name, value)
    options = ("--bucket", bucket, "--work", tmp_path / "work")
    return lambda folder, *more: command("upload", *options, "--artifact", folder, *more)


def run_of(store):
    """The folder that a refused artifact lies in."""
    (run_name,) = {
        row.key.split("/")[2] for row in store.list(f"{KEY.prefix}/") if row.key.count("/") > 2
    }
    return run_name


def test_refused_artifact_is_stored_without_a_manifest(store, upload, odd):
    code, lines = upload(odd)

    local = {
        path.relative_to(odd).as_posix(): path.read_bytes()
        for path in odd.rglob("*")
        if path.is_file()
    }
    assert (code, read_stored_manifest(store, KEY.prefix)) == (1, None)
    objects = {name: store.read(f"{KEY.prefix}/{run_of(store)}/{name}") for name in local}
    assert {name: run_name.body for name, run_name in objects.items() if run_name} == local
    assert FAULT in lines[-1]["event"]


def test_restart_of_the_container_says_the_same_and_sends_nothing(proxy_store, proxy, upload, odd):
    assert proxy_store
    first = upload(odd)[1][-1]
    proxy.forget()
    code, lines = upload(odd)

    assert (code, lines[-1]["event"]) == (1, first["event"])
    assert not proxy.requests(
        "PutObject", f"/{proxy_store.bucket}/{KEY.prefix}/{HOLDER}-*/weights/*"
    )


def test_what_was_refused_can_be_adopted_without_another_upload(proxy_store, proxy, upload, odd):
    upload(odd)
    run = run_of(proxy_store)
    proxy.forget()
    is_new = import_artifact(proxy_store, run, KEY)[1]

    manifest = read_stored_manifest(proxy_store, KEY.prefix)
    assert manifest is not None
    assert (is_new, manifest.folder, {file.path for file in manifest.files} >= {ODD}) == (
        True,
        run,
        True,
    )
    assert not [request for request in proxy.requests("PutObject") if "/weights/" in request.path]
    assert [FAULT in sentence for sentence in manifest.made["accepted"]] == [True]
    assert any(
        "by hand" in sentence and FAULT in sentence for sentence in manifest.made["unproven"]
    )


@pytest.mark.parametrize("run", ["no-such-run", "../models"])
def test_a_run_that_was_not_refused_is_none(store, upload, odd, run):
    upload(odd)
    with pytest.raises(InputError, match="no upload refused this run"):
        import_artifact(store, run, KEY)


def test_a_refused_set_whose_file_is_gone_is_not_adopted(store, upload, odd):
    upload(odd)
    run = run_of(store)
    store.delete([f"{KEY.prefix}/{run}/model.pt"])

    with pytest.raises(StaleError, match="missing"):
        import_artifact(store, run, KEY)


def test_an_artifact_folder_that_is_a_link_is_refused(store, upload, odd, tmp_path):
    """The compiler could point it at what only the tools container can read."""
    (tmp_path / "current").symlink_to(odd)
    code, _ = upload(tmp_path / "current")
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
    code, lines = upload(odd, "--patience-s", "60")

    assert (code, lines[-1]["event"]) == (0, "stored")
    assert any(line["event"] == "trying again" for line in lines)
    assert read_stored_manifest(proxy_store, KEY.prefix) is not None
