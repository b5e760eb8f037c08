"""Writes the stand-ins into a folder under the names of the real programs, to stand first in PATH.

Invariant: a program there needs no environment variable to find this project.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

_PROGRAM_TEMPLATE = """#!{python} -I
import sys

sys.path.insert(0, {root!r})
from {module} import main

sys.exit(main({arguments}))
"""
ROOT = Path(__file__).resolve().parents[2]


def install_programs(folder: Path, runtime: Literal["nxdi-v0", "native"]) -> Path:
    """Write `vllm`, for nxdi-v0 `inference_demo` too, and `python` as the runtime's image has them.

    Args:
        folder: made if missing.
        runtime: whose programs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vllm = "vllm-nxdi" if runtime == "nxdi-v0" else "vllm-native"
    _write_program(folder / "vllm", "rehearsal.runtime.vllm", repr(vllm))
    if runtime == "nxdi-v0":
        _write_program(folder / "inference_demo", "rehearsal.runtime.inference_demo", "")
    python = folder / "python"
    python.unlink(missing_ok=True)
    python.symlink_to(getattr(sys, "_base_executable", sys.executable))
    return folder


def _write_program(path: Path, module: str, arguments: str) -> None:
    path.write_text(
        _PROGRAM_TEMPLATE.format(
            python=sys.executable, root=str(ROOT), module=module, arguments=arguments
        )
    )
    path.chmod(0o755)
