"""What of a folder can be stored."""

from __future__ import annotations

import hashlib
import os

import pytest
from stored_sets import list_files

from tandem.errors import InputError


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


@pytest.mark.parametrize("target", ["a", "nowhere"])
def test_a_symbolic_link_is_refused_by_name(tmp_path, target):
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(InputError, match=f"{tmp_path}/link: it is a symbolic link") as caught:
        list_files(tmp_path)
    assert "cp -rL" in caught.value.change


def test_a_pipe_is_refused_by_name(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: it is neither a file nor a folder"):
        list_files(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "a\nb",
        "back\\slash",
        b"\xff\xfe",
        "tandem-manifest.json",
        "sub/tandem-lease.json",
    ],
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
    with pytest.raises(
        InputError, match=f"{tmp_path}/f: the file cannot be read: Permission denied"
    ):
        list_files(tmp_path)
