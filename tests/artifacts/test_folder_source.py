"""An air-gapped copy: held against its index, its lengths and, where it has one, its SHA256SUMS."""

from __future__ import annotations

import hashlib
import os

import pytest
from staging_inputs import COMMIT, snapshot

from tandem.artifacts.snapshot import open_folder
from tandem.errors import InputError

SHARD = "model-00002-of-00004.safetensors"


@pytest.fixture
def copy(tmp_path):
    return snapshot(tmp_path / "copy", extras=False)


def check(folder, name):
    source = open_folder(folder, COMMIT)
    source.check_entries([source.entries[name]])
    return source.receive(source.entries[name])[1]


def write_sums(folder, *, without=""):
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
        if path.name not in {without, "SHA256SUMS"}
    ]
    (folder / "SHA256SUMS").write_text("".join(lines))


def test_foreign_shard_is_refused_by_a_tensor_it_lacks(copy):
    (copy / SHARD).write_bytes((copy / SHARD.replace("2", "3", 1)).read_bytes())
    with pytest.raises(InputError, match="lacks the tensor"):
        check(copy, SHARD)


@pytest.mark.parametrize("marker", ["  ", " *"])
def test_sums_that_fit_are_taken(copy, marker):
    write_sums(copy)
    sums = copy / "SHA256SUMS"
    sums.write_text(sums.read_text().replace("  ", marker))

    assert check(copy, SHARD)
    assert "SHA256SUMS" in open_folder(copy, COMMIT).provenance["checked"]


def test_a_flipped_byte_is_found_by_the_sums(copy):
    write_sums(copy)
    body = bytearray((copy / SHARD).read_bytes())
    body[-5] ^= 1
    (copy / SHARD).write_bytes(body)

    with pytest.raises(InputError, match="it differs from SHA256SUMS"):
        check(copy, SHARD)


def test_a_file_that_the_sums_do_not_name_is_refused(copy):
    write_sums(copy, without=SHARD)
    with pytest.raises(InputError, match="SHA256SUMS does not name it"):
        check(copy, SHARD)


def test_sums_of_another_form_are_refused(copy):
    (copy / "SHA256SUMS").write_text("SHA256 (config.json) = 00\n")
    with pytest.raises(InputError, match="line 1 is not as sha256sum writes it"):
        open_folder(copy, COMMIT)


def test_a_link_is_refused_with_how_to_copy(copy):
    (copy / SHARD).rename(copy.parent / "blob")
    (copy / SHARD).symlink_to(copy.parent / "blob")

    with pytest.raises(InputError, match=f"{SHARD}: it is a symbolic link") as caught:
        open_folder(copy, COMMIT)

    assert "cp -rL" in caught.value.change


def test_a_name_that_cannot_be_carried_is_refused(copy):
    (copy / os.fsdecode(b"bad\xff.json")).write_bytes(b"{}")
    with pytest.raises(InputError, match="cannot hold"):
        open_folder(copy, COMMIT)
