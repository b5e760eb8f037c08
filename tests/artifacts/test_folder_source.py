"""An air-gapped copy: held against its index, its lengths and, where it has one, its SHA256SUMS."""

from __future__ import annotations

import hashlib

import pytest
from staging_inputs import COMMIT, snapshot

from tandem.artifacts.snapshot import open_folder
from tandem.errors import InputError

SHARD = "model-00002-of-00004.safetensors"


@pytest.fixture
def copy(tmp_path):
    return snapshot(tmp_path / "copy", extras=False)


def check_shard(folder):
    source = open_folder(folder, COMMIT)
    source.check_entries([source.entries[SHARD]])
    return source.receive(source.entries[SHARD])[1]


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
        check_shard(copy)


@pytest.mark.parametrize("marker", ["  ", " *"])
def test_sums_that_fit_are_taken(copy, marker):
    write_sums(copy)
    sums = copy / "SHA256SUMS"
    sums.write_text(sums.read_text().replace("  ", marker))

    assert check_shard(copy)
    assert "SHA256SUMS" in open_folder(copy, COMMIT).provenance["checked"]


def test_a_flipped_byte_is_found_by_the_sums(copy):
    write_sums(copy)
    body = bytearray((copy / SHARD).read_bytes())
    body[-5] ^= 1
    (copy / SHARD).write_bytes(body)

    with pytest.raises(InputError, match="it differs from SHA256SUMS"):
        check_shard(copy)


def test_a_file_that_the_sums_do_not_name_is_refused(copy):
    write_sums(copy, without=SHARD)
    with pytest.raises(InputError, match="SHA256SUMS does not name it"):
        check_shard(copy)


def test_sums_of_another_form_are_refused(copy):
    (copy / "SHA256SUMS").write_text("SHA256 (config.json) = 00\n")
    with pytest.raises(InputError, match="line 1 is not as sha256sum writes it"):
        open_folder(copy, COMMIT)
