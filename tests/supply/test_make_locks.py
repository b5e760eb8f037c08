"""Which files of a package a lock takes; test_lock_proofs.py asks uv of them."""

from __future__ import annotations

from typing import Any

import pytest

from supply import make_locks

X86 = ((3, 11), "x86_64")
ARM = ((3, 13), "aarch64")


def entry(*files: str, source: bool = False, **more: str) -> dict[str, Any]:
    """A table of pylock.toml; each file's digest is its name."""
    wheels = [{"name": name, "hashes": {"sha256": name}} for name in files]
    sdist = {"sdist": {"name": "p-1.tar.gz", "hashes": {"sha256": "source"}}} if source else {}
    return {"name": "p", "version": "1", "wheels": wheels, **sdist, **more}


PURE = "p-1-py3-none-any.whl"
BINARY = "p-1-cp311-cp311-manylinux_2_17_x86_64.whl"
STABLE = "p-1-cp310-abi3-manylinux2014_aarch64.whl"
NEWER = "p-1-cp311-cp311-manylinux_2_28_x86_64.whl"


@pytest.mark.parametrize(
    ("files", "target", "picked"),
    [
        ((PURE, BINARY), X86, BINARY),
        ((PURE, BINARY), ARM, PURE),
        ((STABLE, "p-1-cp314-cp314-manylinux2014_aarch64.whl"), ARM, STABLE),
        ((BINARY, NEWER), X86, NEWER),
    ],
)
def test_a_target_takes_the_wheel_that_pip_takes(files, target, picked):
    assert make_locks.pick_file(entry(*files, source=True), target) == f"sha256:{picked}"


@pytest.mark.parametrize(
    "file",
    [
        "p-1-cp311-cp311-musllinux_1_2_x86_64.whl",
        "p-1-cp311-cp311-win_amd64.whl",
        "p-1-cp311-cp311-macosx_11_0_arm64.whl",
        "p-1-cp311-cp311-manylinux_2_39_x86_64.whl",
    ],
)
def test_where_no_wheel_fits_the_source_is_taken(file):
    assert make_locks.pick_file(entry(file, source=True), X86) == "sha256:source"


def test_a_package_without_a_file_for_a_target_is_refused():
    with pytest.raises(ValueError, match="p==1 has no file for"):
        make_locks.pick_file(entry("p-1-cp311-cp311-win_amd64.whl"), X86)


@pytest.mark.parametrize(
    ("marker", "written"),
    [
        ("sys_platform == 'linux'", ""),
        ("python_full_version < '3.14' and os_name == 'posix'", ""),
        ("python_full_version < '3.11.3'", "python_full_version < '3.11.3'"),
        ("platform_machine == 'x86_64'", "platform_machine == 'x86_64'"),
    ],
)
def test_a_marker_stays_where_targets_differ(marker, written):
    package = make_locks.build_locked_package(entry("p-1-py3-none-any.whl", marker=marker), {})
    assert package.marker == written


@pytest.mark.parametrize(
    "marker", ["sys_platform == 'win32'", "python_version < '3.11'", "extra == 'docs'"]
)
def test_what_no_target_installs_is_left_out(marker):
    assert make_locks.build_locked_package(entry("p-1-py3-none-any.whl", marker=marker), {}) is None


def test_a_hash_of_the_input_stands_before_the_index(tmp_path):
    source = tmp_path / "requirements.in"
    source.write_text("# --hash=sha256:no\nP==1 \\\n    --hash=sha256:own\nq==2\n")

    package = make_locks.build_locked_package(
        entry("p-1-py3-none-any.whl"), make_locks.read_own_hashes(source)
    )

    assert package.hashes == ("sha256:own",)
