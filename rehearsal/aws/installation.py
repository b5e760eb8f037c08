"""Makes the endpoint's virtual environment.

MiniStack pins its own botocore, so its environment is next to `.venv`, never in it.
"""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable

from rehearsal.virtual_environment import create_environment, ensure_environment

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

    def make(interpreter: pathlib.Path) -> None:
        report(f"making {directory.name} for the local AWS endpoint (90 MB)")
        create_environment(directory)
        options = ["-qq", "--disable-pip-version-check", "--no-compile", "--require-hashes"]
        command = [str(interpreter), "-m", "pip", "install", *options, "-r", str(requirements)]
        if subprocess.run(command, check=False).returncode:
            raise EndpointError(f"pip could not install {requirements.name} into {directory}")
        report(f"{directory.name} is ready")

    return ensure_environment(directory, requirements, make)
