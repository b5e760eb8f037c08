"""llmperf's checkout is known by git's own id of its files, and its tokenizer by its content."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from tandem.bench.llmperf import source
from tandem.errors import ExternalError, InputError


@pytest.fixture
def checkout(tmp_path):
    """A folder with all that git tells apart: folders, a program, a link, names whose order is
    git's own."""
    checkout = tmp_path / "checkout"
    for file in (
        "token_benchmark_ray.py",
        "src/llmperf/utils.py",
        "src.txt",
        "src-more/a",
        "run.sh",
    ):
        (checkout / file).parent.mkdir(parents=True, exist_ok=True)
        (checkout / file).write_text(f"{file}\n")
    (checkout / "run.sh").chmod(0o755)
    (checkout / "link").symlink_to("src.txt")
    return checkout


def gits_own(folder: Path) -> str:
    git = ["git", "-C", str(folder)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    return subprocess.run(
        [*git, "write-tree"], check=True, capture_output=True, text=True
    ).stdout.strip()


def packed(folder: Path, file: Path) -> str:
    """Pack a folder as GitHub does: all below one folder. Its address."""
    with tarfile.open(file, "w:gz") as archive:
        archive.add(folder, arcname=f"llmperf-{source.COMMIT}")
    return file.as_uri()


def test_the_id_of_a_checkout_is_gits_own(checkout):
    before = source.compute_tree_id(checkout)

    assert gits_own(checkout) == before
    (checkout / "src/llmperf/__pycache__").mkdir()
    (checkout / "src/llmperf/__pycache__/utils.pyc").write_bytes(b"x")
    assert source.compute_tree_id(checkout) == before


def test_another_or_no_checkout_is_refused(checkout, tmp_path):
    with pytest.raises(
        InputError, match=rf"{source.compute_tree_id(checkout)}, not {source.TREE_ID}"
    ):
        source.require_commit(checkout)
    with pytest.raises(InputError) as refusal:
        source.require_commit(tmp_path)
    assert "not on the Python package index" in refusal.value.change
    assert f"git -C DIR checkout {source.COMMIT}" in refusal.value.change


def test_an_archive_of_other_files_leaves_nothing(checkout, tmp_path, monkeypatch):
    url = packed(checkout, tmp_path / "a.tar.gz")
    folder = tmp_path / "to"

    assert (source.main(["--to", str(folder), "--url", url]), folder.exists()) == (2, False)
    monkeypatch.setattr(source, "TREE_ID", source.compute_tree_id(checkout))
    source.fetch_source(url, folder)
    assert source.compute_tree_id(folder) == source.TREE_ID


@pytest.mark.parametrize("name", ["page.html", "none"])
def test_what_is_no_archive_or_cannot_be_fetched_is_told(tmp_path, name):
    (tmp_path / "page.html").write_text("<html>")
    with pytest.raises(ExternalError, match="cannot be fetched or unpacked"):
        source.fetch_source((tmp_path / name).as_uri(), tmp_path / "to")


def package(tmp_path: Path, content: bytes) -> Path:
    file = tmp_path / source.PACKAGE_FILE
    with tarfile.open(file, "w:gz") as archive:
        member = tarfile.TarInfo("package/models/tokenizer.json")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return file


def test_another_tokenizer_or_no_package_is_refused(tmp_path):
    (tmp_path / "x.tgz").write_bytes(b"no")

    with pytest.raises(InputError, match=r"SHA-256 of package/models/tokenizer\.json is 44136fa3"):
        source.install_tokenizer(package(tmp_path, b"{}"), tmp_path / "home")
    with pytest.raises(InputError, match="it is no package"):
        source.install_tokenizer(tmp_path / "x.tgz", tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_the_tokenizer_stands_where_the_tool_looks_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(
        source,
        "TOKENIZER_SHA256",
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    )
    code = source.main(["--package", str(package(tmp_path, b"{}")), "--to", str(tmp_path / "home")])
    assert code == 0
    assert (
        tmp_path / "home/hf-internal-testing/llama-tokenizer/tokenizer.json"
    ).read_bytes() == b"{}"
