"""`list`: what stands in the bucket, told by listing it."""

from __future__ import annotations

import hashlib
import json

import pytest
from doubles.fault_proxy.rules import INTERNAL_ERROR_FAULT, FaultRule

from tandem.artifacts.__main__ import main
from tandem.artifacts.lease import hold_lease
from tandem.artifacts.manifest import Manifest, ManifestFile, write_stored_manifest

pytestmark = pytest.mark.endpoint
MODEL = "models/org/name/main"


@pytest.fixture
def stage(store):
    """Store a model of two files with its manifest."""

    def act(prefix=MODEL, **changes):
        bodies = {"config.json": b"{}", "w.safetensors": b"weights"}
        for name, body in bodies.items():
            store.create(f"{prefix}/{name}", body)
        files = tuple(ManifestFile(path=name, size=len(body), sha256=hashlib.sha256(body).hexdigest())
                      for name, body in bodies.items())  # fmt: skip
        identity, _, revision = prefix.removeprefix("models/").rpartition("/")
        plain = {"schema_version": 1, "kind": "model", "name": f"{identity}@{revision}", "folder": "", "fields": {}}
        write_stored_manifest(store, prefix, Manifest(**(plain | {"files": files, "made": {}} | changes)))

    return act


@pytest.fixture
def rows(store, capsys):
    """What `list --json` prints."""

    def act():
        main(["list", "--bucket", store.bucket, "--json"])
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return act


def test_a_set_with_its_manifest_and_files_is_whole(store, stage, rows):
    stage()
    (row,) = rows()
    assert (row["kind"], row["name"], row["state"], row["why"]) == ("model", "org/name@main", "whole", "")
    assert row["size"] == sum(listed.size for listed in store.list(""))
    assert 0 <= row["age_s"] < 60


def test_a_set_with_a_file_of_another_size_is_damaged(store, stage, rows):
    stage()
    store.client.put_object(Bucket=store.bucket, Key=f"{MODEL}/config.json", Body=b"{ }")
    assert [(row["state"], row["why"]) for row in rows()] == [("damaged", "config.json of another size")]


def test_files_without_a_manifest_are_partial_and_held_by_their_writer(store, rows):
    store.create(f"{MODEL}/config.json", b"{}")
    with hold_lease(store, f"{MODEL}/tandem-lease.json", "job-a", 60, 0):
        (held,) = rows()
    (free,) = rows()

    assert (held["state"], held["why"].startswith("held by job-a until 20")) == ("partial", True)
    assert (free["state"], free["why"]) == ("partial", "nobody writes it, job-a was the last")


def test_a_manifest_that_s3_does_not_give_is_unread_and_ends_in_3(proxied, proxy, stage, capsys):
    stage()
    proxy.use(FaultRule(operation="GetObject", path="*/tandem-manifest.json", fault=INTERNAL_ERROR_FAULT))
    code = main(["list", "--bucket", proxied.bucket, "--json"])

    row, fault = map(json.loads, capsys.readouterr().out.splitlines())
    assert (code, row["state"], fault["exit_code"]) == (3, "unread", 3)
    assert row["why"] == fault["event"]
    assert "GetObject failed at every try" in row["why"]


def test_the_command_prints_a_line_for_each(store, stage, capsys):
    stage()
    code = main(["list", "--bucket", store.bucket])
    said = capsys.readouterr().out
    assert (code, said.startswith("whole    model    org/name@main  "), len(said.splitlines())) == (0, True, 1)


def test_the_command_says_that_there_is_nothing(store, capsys):
    main(["list", "--bucket", store.bucket])
    assert capsys.readouterr().out == "nothing is stored\n"
