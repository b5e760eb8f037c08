"""Admission: a server starts with its own whole artifact, or the field, the file and the command
are named."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from made import (
    ROOT,
    edit_manifest,
    key_of,
    native_artifact,
    native_key,
    nxdi_artifact,
    staged,
    stored,
)
from own_memory import peak_mib
from stored_sets import list_files

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
        for each in (self.stored, self.local):
            each.mkdir()
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

    def start(self, *more):
        return subprocess.Popen(
            [sys.executable, "-m", "tandem.artifacts", *self.arguments(*more)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], **self.variables},
        )


@pytest.fixture
def fused(tmp_path, monkeypatch):
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


def test_a_whole_artifact_of_the_key_is_linked_to_the_mount(fused):
    assert fused.admit() == 0
    assert fused.current.readlink() == fused.stored / "run-1"
    assert (fused.current / "model.pt").exists()


def test_a_copy_has_the_same_bytes_and_may_be_written_by_others(native):
    umask = os.umask(0o077)
    try:
        assert native.admit("--copy") == 0
    finally:
        os.umask(umask)

    below = list(native.current.rglob("*"))
    content = {
        str(path.relative_to(native.current)): path.read_bytes() for path in below if path.is_file()
    }
    source = native.stored / "run-1"
    assert content == {
        str(path.relative_to(source)): path.read_bytes()
        for path in source.rglob("*")
        if path.is_file()
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in below if path.is_file()} == {0o666}
    assert {
        stat.S_IMODE(path.stat().st_mode) for path in (native.current, *below) if path.is_dir()
    } == {0o777}


def changed(fields, field):
    """Another value of the same kind."""
    value = fields[field]
    if isinstance(value, dict):
        return {**value, "another": 1}
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"{value or ''}x"


@pytest.mark.parametrize("field", key_of().as_fields())
def test_every_field_of_the_key_is_named_when_it_alone_differs(fused, field, log_lines):
    fields = fused.key.as_fields()
    edit_manifest(fused.stored, fields={**fields, field: changed(fields, field)})

    code = fused.admit()

    line, *_ = [each["event"] for each in log_lines() if each["event"].startswith(field)]
    assert (code, fused.current.exists()) == (1, False)
    assert ": artifact " in line
    assert ", deployment " in line


def test_a_manifest_that_claims_what_the_runtimes_own_file_does_not_say_is_refused(
    fused, log_lines
):
    other = replace(fused.key, num_speculative_tokens=15)
    edit_manifest(fused.stored, fields=other.as_fields(), name=other.name)
    fused.ask(other)

    assert fused.admit() == 1
    assert log_lines()[0]["event"].startswith(
        "num_speculative_tokens: artifact 7, deployment 15 (neuron_config.json"
    )


def test_a_missing_artifact_names_the_command_that_makes_it(fused, log_lines):
    (fused.stored / MANIFEST_NAME).unlink()
    assert fused.admit() == 1
    assert COMPILE in log_lines()[-1]["change"]


@pytest.mark.parametrize("draft", [False, True])
def test_a_missing_model_names_the_command_that_stages_it(fused, draft, log_lines):
    identity, _, revision = fused.named[draft].partition("@")
    (fused.models / identity / revision / MANIFEST_NAME).unlink()

    assert fused.admit() == 1
    (line,) = [each for each in log_lines() if each["level"] == "error"]
    assert f"the model {fused.named[draft]} is not staged" in line["event"]
    assert STAGE in line["change"]


def test_a_model_with_a_file_cut_off_is_refused(fused, log_lines):
    identity, _, revision = fused.named[0].partition("@")
    (fused.models / identity / revision / "config.json").write_text("{")
    assert fused.admit() == 1
    assert "config.json has 1 bytes instead of" in log_lines()[-1]["event"]


@pytest.mark.parametrize(
    ("edit", "code", "words"),
    [
        (lambda body: body[: len(body) // 2], 2, "cut off or malformed"),
        (lambda body: body.replace(b'"schema_version": 1', b'"schema_version": 2'), 2, "schema 2"),
        (lambda body: body.replace(b'"model.pt"', b'"../model.pt"'), 2, "leaves its folder"),
        (
            lambda body: body.replace(b'"folder": "run-1"', b'"folder": "/etc"'),
            2,
            "leaves its folder",
        ),
        (
            lambda body: body.replace(b'"kind": "artifact"', b'"kind": "model"'),
            1,
            "kind: artifact model",
        ),
    ],
)
def test_a_manifest_that_cannot_be_is_refused(fused, edit, code, words, log_lines):
    body = (fused.stored / MANIFEST_NAME).read_bytes()
    assert edit(body) != body
    (fused.stored / MANIFEST_NAME).write_bytes(edit(body))

    assert fused.admit() == code
    assert words in " ".join(str(value) for each in log_lines() for value in each.values())


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("damage", ["missing", "shorter"])
def test_a_file_that_is_missing_or_of_another_size_is_named(fused, copy, damage, log_lines):
    path = fused.stored / "run-1/weights/tp1_sharded_checkpoint.safetensors"
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])

    assert fused.admit(*(["--copy"] if copy else [])) == 1
    assert "weights/tp1_sharded_checkpoint.safetensors" in log_lines()[-1]["event"]
    assert not os.path.lexists(fused.current)


def test_one_byte_flipped_in_any_file_is_found_by_a_copy(native, log_lines):
    files = [path for path in sorted((native.stored / "run-1").rglob("*")) if path.is_file()]
    for path in files:
        whole = path.read_bytes()
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])

        assert native.admit("--copy") == 1
        assert log_lines()[-1]["where"] == str(path)
        assert not native.current.exists()
        path.write_bytes(whole)
        for incoming in native.local.glob(".incoming-*"):  # what is whole there is not read again
            shutil.rmtree(incoming)

    assert native.admit("--copy") == 0


def test_a_second_admission_of_the_same_pod_copies_nothing(native, log_lines):
    native.admit("--copy")
    (native.current / "neuron/compile_cache/a.lock").touch()  # the server's
    log_lines()

    assert native.admit("--copy") == 0
    assert "copied" not in {each["event"] for each in log_lines()}
    assert (native.current / "neuron/compile_cache/a.lock").exists()


def test_what_a_server_overwrote_is_made_whole_again(native):
    native.admit("--copy")
    path = next(native.current.rglob("*.neff"))
    whole = path.read_bytes()
    path.write_bytes(b"x")

    native.admit("--copy")

    assert path.read_bytes() == whole


def test_a_copy_that_is_killed_is_never_found(tmp_path, monkeypatch):
    """Killed at six moments of its work, each time on what the last one left."""
    made = tmp_path / "made"
    native_artifact(made)
    for number in range(6):
        with (made / f"large-{number}").open("wb") as file:
            file.truncate(8 << 20)
    node = Node(tmp_path, native_key(), monkeypatch)
    manifest = stored(node.stored, node.key, made)

    for after_s in (0.3, *(0.3 + 0.06 * step for step in range(5))):
        process = node.start("--copy")
        time.sleep(after_s)
        process.kill()
        process.wait()
        if node.current.exists():
            assert all(
                (node.current / file.path).stat().st_size == file.size for file in manifest.files
            )

    assert node.admit("--copy") == 0
    assert sorted(path.name for path in node.local.iterdir()) == [".admitted", "current"]


def test_a_copy_takes_little_memory_whatever_the_size(tmp_path, monkeypatch):
    made = tmp_path / "made"
    native_artifact(made)
    with (made / "large").open("wb") as file:
        file.truncate(160 << 20)
    node = Node(tmp_path, native_key(), monkeypatch)
    stored_large(node, made)

    peak = peak_mib(node.arguments("--copy"), node.variables)

    assert peak < 110  # the interpreter alone takes a third of it


def stored_large(node, made):
    """Lay an artifact as the mount shows it, without reading it into this process."""
    stored(node.stored, node.key, native_artifact(made.parent / "small"))
    (node.stored / "run-2").symlink_to(made)
    files = [file.model_dump() for file in list_files(made)]
    edit_manifest(node.stored, folder="run-2", files=files)


def test_a_disk_without_room_is_said_before_anything_is_copied(native, monkeypatch, log_lines):
    usage = os.statvfs(native.local)
    assert usage.f_bavail
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())

    assert native.admit("--copy") == 3
    assert "10 bytes are free" in log_lines()[-1]["event"]
    assert not native.current.exists()


def test_another_artifact_takes_the_place_of_an_earlier_copy(native, tmp_path):
    native.admit("--copy")
    stored(native.stored, native.key, native_artifact(tmp_path / "other", graphs=3), run="run-2")
    assert native.admit("--copy") == 0
    assert len(list(native.current.rglob("*.neff"))) == 3


def test_what_is_unproven_is_said_as_a_warning(native, log_lines):
    edit_manifest(native.stored, made={"unproven": ["nobody has started a second server from it"]})
    native.admit("--copy")
    (line,) = [each for each in log_lines() if each["event"] == "unproven"]
    assert (line["level"], line["sentence"]) == (
        "warning",
        "nobody has started a second server from it",
    )


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_mount_that_can_be_written_is_a_warning(fused, monkeypatch, log_lines, is_writable):
    monkeypatch.setattr(
        os, "access", lambda path, mode: (path, mode, is_writable) == (fused.stored, os.W_OK, True)
    )
    fused.admit()
    levels = [
        line["level"]
        for line in log_lines()
        if line["event"] == "the stored artifact is mounted writable"
    ]
    assert levels == ["warning"] * is_writable


def test_a_mount_that_hangs_up_is_a_fault_of_the_world(fused, monkeypatch, log_lines):
    def disconnected(self):
        raise OSError(107, "Transport endpoint is not connected", str(self))

    monkeypatch.setattr(Path, "read_bytes", disconnected)

    assert fused.admit() == 3
    assert "Transport endpoint is not connected" in log_lines()[-1]["event"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TANDEM_ARTIFACT_KEY", "", "is not set"),
        ("TANDEM_ARTIFACT_KEY", "{", "is no JSON"),
        ("TANDEM_ARTIFACT_KEY", '{"runtime": "x"}', "no artifact key"),
    ],
)
def test_a_malformed_variable_is_bad_input(fused, name, value, words, monkeypatch, log_lines):
    monkeypatch.setenv(name, value)
    assert fused.admit() == 2
    assert words in log_lines()[-1]["event"]


@pytest.mark.parametrize(
    "name", ["Qwen3-32B", "Qwen/Qwen3-32B", "Qwen/../x@main", "/Qwen/x@main", "a/b@c/d"]
)
def test_a_malformed_model_is_bad_input(fused, name, log_lines):
    fused.named = [name]
    assert fused.admit() == 2
    assert re.search("is no (model|revision)", log_lines()[-1]["event"])


def test_admission_needs_no_aws():
    loaded = (
        "import sys, tandem.artifacts.admit; sys.exit('boto3' in sys.modules or 'botocore' in"
        " sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, check=False).returncode == 0


def test_a_difference_that_a_person_accepted_is_said_and_not_refused(
    tmp_path, monkeypatch, log_lines
):
    node = Node(tmp_path, key_of(), monkeypatch)
    made = nxdi_artifact(tmp_path / "made/current", ctx_batch_size=4)
    stored(node.stored, node.key, made)
    refused = node.admit()
    difference = next(line["event"] for line in log_lines() if "ctx_batch_size" in line["event"])

    stored(node.stored, node.key, made, accepted=[difference])
    assert (refused, node.admit()) == (1, 0)
    assert ("warning", difference) in [(line["level"], line["event"]) for line in log_lines()]
