"""Before a compile: nobody compiles what is stored or under way; models come whole, once, and named
where they lack."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from made import key_of, staged
from stored_sets import list_files

from tandem.artifacts import fetch, files
from tandem.artifacts.__main__ import main
from tandem.artifacts.fetch import build_driver_archive
from tandem.artifacts.lease import parse_lease
from tandem.artifacts.manifest import LEASE_NAME, MANIFEST_NAME, Manifest
from tandem.artifacts.s3_transfer import upload_file
from tandem.declarations import disk
from tandem.declarations.artifact_key import ArtifactKey

pytestmark = pytest.mark.endpoint
STAGE = "tandem run post --env prod --until stage"


class Job:
    """The first container of a compile."""

    def __init__(self, folder, store, monkeypatch):
        self.store = store
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.key: ArtifactKey = key_of()
        self.named = [name for name in (self.key.target, self.key.draft) if name]
        self.models = folder / "models"
        self.work = folder / "work"
        self.lease = f"{self.key.prefix}/{LEASE_NAME}"
        monkeypatch.setenv("TANDEM_ARTIFACT_KEY", json.dumps(self.key.as_fields()))
        monkeypatch.setenv("TANDEM_STAGE_COMMAND", STAGE)
        self.holder("compile-1")

    def holder(self, name):
        self.monkeypatch.setenv("TANDEM_HOLDER", name)

    def stage(self):
        """Lay the models into the bucket."""
        manifests = {}
        for name in self.named:
            manifests[name] = staged(self.folder / "hub", name)
            prefix = f"models/{name.replace('@', '/')}"
            source = self.folder / "hub" / name.replace("@", "/")
            for file in manifests[name].files:
                upload_file(self.store, source / file.path, f"{prefix}/{file.path}", file.sha256)
            assert self.store.create(f"{prefix}/{MANIFEST_NAME}", manifests[name].to_bytes())
        return manifests

    def store_artifact(self, **changes):
        folder = self.folder / "made"
        folder.mkdir()
        (folder / "model.pt").write_text("x")
        manifest = Manifest(
            schema_version=1,
            kind="artifact",
            name=self.key.name,
            folder="run",
            fields=replace(self.key, **changes).as_fields(),
            files=list_files(folder),
            made={},
        )
        assert self.store.create(f"{self.key.prefix}/{MANIFEST_NAME}", manifest.to_bytes())

    def run(self, *more):
        models = [word for name in self.named for word in ("--model", name)]
        return main(
            [
                "fetch",
                "--bucket",
                self.store.bucket,
                *models,
                "--models",
                str(self.models),
                "--work",
                str(self.work),
                "--lease-s",
                "3600",
                *more,
            ]
        )


@pytest.fixture
def job(tmp_path, store, monkeypatch):
    return Job(tmp_path, store, monkeypatch)


def test_fetch_leaves_models_driver_and_a_lease(job):
    manifests = job.stage()

    assert job.run() == 0

    for name, manifest in manifests.items():
        assert list_files(job.models / name.replace("@", "/")) == manifest.files
    assert (job.work / "driver.pyz").read_bytes() == build_driver_archive()
    lease = job.store.read(job.lease)
    assert lease is not None
    assert parse_lease(lease, "").holder == "compile-1"
    assert parse_lease(lease, "").is_active


def test_a_present_key_is_skipped_and_asks_for_no_model(job):
    job.store_artifact()

    assert job.run() == 0

    assert (job.work / "present").exists()
    assert (job.work / "driver.pyz").exists()
    assert not job.models.exists()
    assert job.store.read(job.lease) is None


def test_a_word_of_an_earlier_run_is_not_believed(job):
    job.stage()
    job.work.mkdir()
    (job.work / "present").touch()

    job.run()

    assert not (job.work / "present").exists()


def test_missing_model_names_the_command_and_frees_the_lease(job, log_lines):
    assert job.run() == 2
    assert log_lines()[-1]["change"].endswith(STAGE)
    assert not job.models.exists()

    job.holder("compile-2")
    job.stage()
    assert job.run() == 0


def test_second_job_of_a_key_names_the_first(job, log_lines):
    job.stage()
    job.run()
    job.holder("compile-2")
    job.models = job.folder / "models-2"
    job.work = job.folder / "work-2"
    log_lines()

    assert job.run() == 3
    line = log_lines()[-1]
    assert "held by compile-1 until" in line["event"]
    assert f"aws s3 rm {job.store.url(job.lease)}" in line["change"]
    assert not job.models.exists()


def test_disk_without_room_for_models_and_artifact_is_said_beforehand(job, monkeypatch, log_lines):
    size = sum(manifest.size for manifest in job.stage().values())
    free = (1 + fetch.DISK_SPACE_FACTOR) * size + files.SPARE_BYTES - 1
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: type("Usage", (), {"free": free})())

    assert job.run() == 3
    assert "bringing the models and making the artifact needs" in log_lines()[-1]["event"]
    assert list(job.models.rglob("*.safetensors")) == []


def test_the_room_is_what_the_node_is_asked_for():
    assert fetch.DISK_SPACE_FACTOR == disk.ARTIFACT_FACTOR
