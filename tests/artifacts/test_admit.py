"""Admission: a server starts with its own whole artifact, or the field, the file and the command
are named."""

from __future__ import annotations

import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from made import (
    edit_manifest,
    key_of,
    native_artifact,
    native_key,
    nxdi_artifact,
    staged,
    stored,
)
from stored_sets import read_folder

from tandem.artifacts import files
from tandem.artifacts.__main__ import main
from tandem.artifacts.manifest import MANIFEST_NAME

COMPILE = "tandem run post --env prod --until compile --hours H"
STAGE = "tandem run post --env prod --until stage"


class Node:
    """The mounts of one server's pod, and its admission."""

    def __init__(self, folder, key, monkeypatch):
        self.key = key
        self.monkeypatch = monkeypatch
        self.stored = folder / "stored"
        self.models = folder / "models"
        self.local = folder / "artifact"
        for line in (self.stored, self.local):
            line.mkdir()
        self.named = [name for name in (key.target, key.draft) if name]
        for name in self.named:
            staged(self.models, name)
        self.ask(key)

    @property
    def current(self):
        return self.local / "current"

    def ask(self, key):
        """Render the Deployment of another key onto the same mounts."""
        self.variables = {
            "TANDEM_ARTIFACT_KEY": json.dumps(key.as_fields()),
            "TANDEM_COMPILE_COMMAND": COMPILE,
            "TANDEM_STAGE_COMMAND": STAGE,
        }
        for name, value in self.variables.items():
            self.monkeypatch.setenv(name, value)

    def arguments(self, *more):
        models = [word for name in self.named for word in ("--model", name)]
        return [
            "admit",
            "--stored",
            str(self.stored),
            "--models",
            str(self.models),
            *models,
            "--artifact",
            str(self.local),
            *more,
        ]

    def admit(self, *more):
        return main(self.arguments(*more))


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "cache"))
    monkeypatch.setenv("BASE_COMPILE_WORK_DIR", str(tmp_path / "work"))
    node = Node(tmp_path, key_of(), monkeypatch)
    stored(node.stored, node.key, nxdi_artifact(tmp_path / "made/current"))
    return node


@pytest.fixture
def native(tmp_path, monkeypatch):
    node = Node(tmp_path, native_key(), monkeypatch)
    stored(node.stored, node.key, native_artifact(tmp_path / "made"))
    return node


def test_whole_artifact_of_the_key_is_linked_to_the_mount(node):
    assert node.admit() == 0
    assert node.current.readlink() == node.stored / "run-1"
    assert (node.current / "model.pt").exists()


def test_copy_has_the_same_bytes_and_open_modes(native):
    umask = os.umask(0o077)
    try:
        assert native.admit("--copy") == 0
    finally:
        os.umask(umask)

    assert read_folder(native.current) == read_folder(native.stored / "run-1")
    modes = {
        path.is_dir(): stat.S_IMODE(path.stat().st_mode)
        for path in (native.current, *native.current.rglob("*"))
    }
    assert modes == {True: 0o777, False: 0o666}


def test_differing_field_of_the_key_is_named(node, log_lines):
    edit_manifest(node.stored, fields={**node.key.as_fields(), "sdk": "1.0"})

    assert node.admit() == 1
    assert not node.current.exists()
    assert log_lines()[0]["event"].startswith("sdk: artifact 1.0, deployment ")


def test_manifest_that_the_runtimes_own_file_contradicts_is_refused(node, log_lines):
    other_key = replace(node.key, num_speculative_tokens=15)
    edit_manifest(node.stored, fields=other_key.as_fields(), name=other_key.name)
    node.ask(other_key)

    assert node.admit() == 1
    assert log_lines()[0]["event"].startswith(
        "num_speculative_tokens: artifact 7, deployment 15 (neuron_config.json"
    )


def test_a_missing_artifact_names_the_command_that_makes_it(node, log_lines):
    (node.stored / MANIFEST_NAME).unlink()
    assert node.admit() == 1
    assert COMPILE in log_lines()[-1]["change"]


@pytest.mark.parametrize("draft", [False, True])
def test_a_missing_model_names_the_command_that_stages_it(node, draft, log_lines):
    identity, _, revision = node.named[draft].partition("@")
    (node.models / identity / revision / MANIFEST_NAME).unlink()

    assert node.admit() == 1
    (line,) = [line for line in log_lines() if line["level"] == "error"]
    assert f"the model {node.named[draft]} is not staged" in line["event"]
    assert STAGE in line["change"]


def test_a_model_with_a_file_cut_off_is_refused(node, log_lines):
    identity, _, revision = node.named[0].partition("@")
    (node.models / identity / revision / "config.json").write_text("{")
    assert node.admit() == 1
    assert "config.json has 1 bytes instead of" in log_lines()[-1]["event"]


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"schema_version": 2}, 2, "schema 2"),
        ({"folder": "/etc"}, 2, "leaves its folder"),
        ({"kind": "model"}, 1, "kind: artifact model"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused(node, changes, code, words, log_lines):
    edit_manifest(node.stored, **changes)
    assert node.admit() == code
    assert words in str(log_lines())


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("damage", ["missing", "shorter"])
def test_file_that_is_missing_or_of_another_size_is_named(node, copy, damage, log_lines):
    path = node.stored / "run-1/weights/tp1_sharded_checkpoint.safetensors"
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])

    assert node.admit(*(["--copy"] if copy else [])) == 1
    assert "weights/tp1_sharded_checkpoint.safetensors" in log_lines()[-1]["event"]
    assert not os.path.lexists(node.current)


def test_flipped_byte_in_any_file_is_found_by_a_copy(native, log_lines):
    files = [path for path in sorted((native.stored / "run-1").rglob("*")) if path.is_file()]
    for path in files:
        body = path.read_bytes()
        path.write_bytes(bytes([body[0] ^ 1]) + body[1:])

        assert native.admit("--copy") == 1
        assert log_lines()[-1]["where"] == str(path)
        assert not native.current.exists()
        path.write_bytes(body)
        for incoming in native.local.glob(".incoming-*"):  # what is whole there is not read again
            shutil.rmtree(incoming)

    assert native.admit("--copy") == 0


def test_a_second_admission_of_the_same_pod_copies_nothing(native, log_lines):
    native.admit("--copy")
    (native.current / "neuron/compile_cache/a.lock").touch()  # the server's
    log_lines()

    assert native.admit("--copy") == 0
    assert "copied" not in {line["event"] for line in log_lines()}
    assert (native.current / "neuron/compile_cache/a.lock").exists()


def test_what_a_server_overwrote_is_made_whole_again(native):
    native.admit("--copy")
    path = next(native.current.rglob("*.neff"))
    body = path.read_bytes()
    path.write_bytes(b"x")

    native.admit("--copy")

    assert path.read_bytes() == body


def test_a_disk_without_room_is_said_before_anything_is_copied(native, monkeypatch, log_lines):
    usage = os.statvfs(native.local)
    assert usage.f_bavail
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())

    assert native.admit("--copy") == 3
    assert "10 bytes are free" in log_lines()[-1]["event"]
    assert not native.current.exists()


def test_what_is_unproven_is_said_as_a_warning(native, log_lines):
    edit_manifest(native.stored, made={"unproven": ["nobody has started a second server from it"]})
    native.admit("--copy")
    (line,) = [line for line in log_lines() if line["event"] == "unproven"]
    assert (line["level"], line["sentence"]) == (
        "warning",
        "nobody has started a second server from it",
    )


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_mount_that_can_be_written_is_a_warning(node, monkeypatch, log_lines, is_writable):
    monkeypatch.setattr(
        os, "access", lambda path, mode: (path, mode, is_writable) == (node.stored, os.W_OK, True)
    )
    node.admit()
    levels = [
        line["level"]
        for line in log_lines()
        if line["event"] == "the stored artifact is mounted writable"
    ]
    assert levels == ["warning"] * is_writable


def test_mount_that_hangs_up_is_a_fault_of_the_world(node, monkeypatch, log_lines):
    def disconnected(self):
        raise OSError(107, "Transport endpoint is not connected", str(self))

    monkeypatch.setattr(Path, "read_bytes", disconnected)

    assert node.admit() == 3
    assert "Transport endpoint is not connected" in log_lines()[-1]["event"]


def test_difference_that_a_person_accepted_is_said_and_not_refused(
    tmp_path, monkeypatch, log_lines
):
    node = Node(tmp_path, key_of(), monkeypatch)
    artifact = nxdi_artifact(tmp_path / "made/current", ctx_batch_size=4)
    stored(node.stored, node.key, artifact)
    first_code = node.admit()
    difference = next(line["event"] for line in log_lines() if "ctx_batch_size" in line["event"])

    stored(node.stored, node.key, artifact, accepted=[difference])
    assert (first_code, node.admit()) == (1, 0)
    assert ("warning", difference) in [(line["level"], line["event"]) for line in log_lines()]
