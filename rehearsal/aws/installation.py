"""Makes the endpoint's virtual environment.

MiniStack pins its own botocore, so its environment is next to `.venv`, never in it.
"""

from __future__ import annotations

import fcntl
import hashlib
import pathlib
import subprocess
import venv
from collections.abc import Callable

PACKAGE_FOLDER = pathlib.Path(__file__).resolve().parent
REPOSITORY = PACKAGE_FOLDER.parents[1]
ENVIRONMENT = REPOSITORY / ".venv-aws"


class EndpointError(RuntimeError):
    """The endpoint cannot be set up or started."""


def ensure_python(
    directory: pathlib.Path = ENVIRONMENT, report: Callable[[str], None] = print
) -> pathlib.Path:
    """Return the Python of the endpoint's venv, made or renewed to fit requirements.txt.

    Raises:
        EndpointError: pip failed; its output is shown as it comes.
    """
    requirements = PACKAGE_FOLDER / "requirements.txt"
    with requirements.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test workers may want it at once
        return _ensure_environment(directory, requirements, report)


def _ensure_environment(
    directory: pathlib.Path, requirements: pathlib.Path, report: Callable[[str], None]
) -> pathlib.Path:
    interpreter = directory / "bin" / "python"
    stamp = directory / "requirements.sha256"
    wanted_digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if interpreter.exists() and stamp.exists() and stamp.read_text() == wanted_digest:
        return interpreter
    report(f"making {directory.name} for the local AWS endpoint (90 MB)")
    # as `python -m venv` does it
    venv.create(directory, with_pip=True, clear=directory.exists(), symlinks=True)
    command = [
        str(interpreter),
        "-m",
        "pip",
        "install",
        "-qq",
        "--disable-pip-version-check",
        "--no-compile",
        "--require-hashes",
        "-r",
        str(requirements),
    ]
    if subprocess.run(command, check=False).returncode:
        raise EndpointError(f"pip could not install {requirements.name} into {directory}")
    stamp.write_text(wanted_digest)
    report(f"{directory.name} is ready")
    return interpreter
