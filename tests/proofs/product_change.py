"""A change of the product in other processes: a proof whose processes have it must turn red.

A process takes its change from a `sitecustomize.py` on its path, which Python imports before
anything else.
"""

from __future__ import annotations

from pathlib import Path


def write_change(folder: Path, source: str) -> dict[str, str]:
    """Write a change of the product; return the variables of a process that has it."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(source)
    return {"PYTHONPATH": str(folder)}
