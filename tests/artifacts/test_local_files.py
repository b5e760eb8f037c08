"""What of a folder can be stored, and how a file is cut."""

from __future__ import annotations

import base64
import hashlib
import os

import pytest

from tandem.artifacts.files import LocalFiles, compute_sha256, hash_files, list_files
from tandem.artifacts.parts import MAX_OBJECT_BYTES, MAX_PARTS, MIB, FileSpan, part_size, split_parts
from tandem.errors import ExternalError, InputError


def test_every_file_is_found_with_its_size_and_sha256(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.y").write_bytes(b"abc")
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / ".hidden").write_bytes(b"h")

    assert [(file.path, file.size, file.sha256) for file in list_files(tmp_path)] == [
        (".hidden", 1, hashlib.sha256(b"h").hexdigest()),
        ("a", 0, hashlib.sha256(b"").hexdigest()),
        ("b/x.y", 3, hashlib.sha256(b"abc").hexdigest()),
    ]


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, 3 * MIB + 1])
def test_a_digest_is_of_the_whole_file(tmp_path, size):
    (tmp_path / "f").write_bytes(body := os.urandom(size))

    assert compute_sha256(tmp_path / "f") == hashlib.sha256(body).hexdigest()


def test_a_file_is_hashed_by_the_parts_that_s3_is_sent_too(tmp_path):
    (tmp_path / "f").write_bytes(body := os.urandom(2 * 16 * MIB + 5))
    (hashed,) = hash_files(tmp_path)

    stretches = [body[: 16 * MIB], body[16 * MIB : 32 * MIB], body[32 * MIB :]]
    assert hashed.part_digests == tuple(base64.b64encode(hashlib.sha256(one).digest()).decode() for one in stretches)
    assert (hashed.file.size, hashed.file.sha256) == (len(body), hashlib.sha256(body).hexdigest())


def test_a_hash_that_nobody_waits_for_any_more_ends_before_the_next_part(tmp_path):
    (tmp_path / "f").write_bytes(bytes(3 * 16 * MIB))
    files, asked = LocalFiles(tmp_path), []

    def going():
        asked.append(1)
        if len(asked) == 2:
            raise ExternalError("another file failed", change="x")

    with pytest.raises(ExternalError):
        files.hash_file("f", going)
    assert len(asked) == 2
    assert files.hash_file("f") == hash_files(tmp_path)[0]


@pytest.mark.parametrize("target", ["a", "/etc/passwd", "nowhere", "."])
def test_a_symbolic_link_is_refused_by_name(tmp_path, target):
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "link").symlink_to(target)

    with pytest.raises(InputError, match=f"{tmp_path}/link: it is a symbolic link"):
        list_files(tmp_path)


def test_a_pipe_is_refused_by_name(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(InputError, match="pipe: it is neither a file nor a folder"):
        list_files(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["a\nb", "a\x7f", "back\\slash", b"\xff\xfe", "tandem-manifest.json", "tandem-lease.json", "sub/tandem-lease.json"],
)
def test_a_name_that_cannot_be_carried_is_refused(tmp_path, name):
    path = os.path.join(os.fsencode(tmp_path), os.fsencode(name))  # noqa: PTH118 - a name that is no text
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    with open(path, "wb"):  # noqa: PTH123
        pass

    with pytest.raises(InputError, match="rename it or take it out"):
        list_files(tmp_path)


def test_a_path_too_long_for_a_key_is_refused(tmp_path):
    deep = tmp_path.joinpath(*["d" * 200] * 5)
    deep.mkdir(parents=True)
    (deep / "f").touch()

    with pytest.raises(InputError, match="more than 800 bytes"):
        list_files(tmp_path)


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_a_folder_without_files_is_refused(tmp_path, name):
    with pytest.raises(InputError):
        list_files(tmp_path / name)


def test_a_file_that_cannot_be_opened_is_told(tmp_path, monkeypatch):
    (tmp_path / "f").touch()

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", denied)
    with pytest.raises(InputError, match=f"{tmp_path}/f: the file cannot be read \\(Permission denied\\)"):
        list_files(tmp_path)


@pytest.mark.parametrize(
    "size", [1, 16 * MIB, 16 * MIB + 1, 65 << 30, MAX_PARTS * 16 * MIB, MAX_OBJECT_BYTES - 1, MAX_OBJECT_BYTES]
)
def test_every_size_that_s3_takes_is_cut_into_parts_that_it_takes(size):
    length = part_size(size)

    assert -(-size // length) <= MAX_PARTS
    assert 5 * MIB <= length <= 5 << 30


@pytest.mark.parametrize("size", [0, 1, 16 * MIB, 16 * MIB + 1, 50 * MIB])
def test_the_parts_are_the_whole_file_in_order(size):
    parts = list(split_parts(size))

    assert [part.number for part in parts] == list(range(1, len(parts) + 1))
    assert [part.offset for part in parts] == [sum(part.length for part in parts[:i]) for i in range(len(parts))]
    assert sum(part.length for part in parts) == size


def test_a_span_reads_its_stretch_again_from_its_start(tmp_path):
    (tmp_path / "f").write_bytes(b"0123456789")
    with (tmp_path / "f").open("rb") as file:
        span = FileSpan(file.fileno(), 2, 5)
        first = (span.read(3), span.read(3), span.read(3))
        length = span.seek(0, os.SEEK_END)
        span.seek(0)

        assert (first, length, span.read()) == ((b"234", b"56", b""), 5, b"23456")


def test_a_span_of_a_file_that_has_become_shorter_is_no_shorter_body(tmp_path):
    (tmp_path / "f").write_bytes(b"0123456789")
    with (tmp_path / "f").open("rb") as file:
        span = FileSpan(file.fileno(), 0, 10)
        os.truncate(tmp_path / "f", 4)
        span.read(4)

        with pytest.raises(OSError, match="shorter"):
            span.read(1)
