"""The environments of this repository, by name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tandem.spec.environment import Environment
from tandem.spec.workspace import load_workspace

ROOT = Path(__file__).parents[3]


@cache
def committed() -> dict[str, Environment]:
    declared = load_workspace(ROOT / "environments", ROOT / "experiments", ()).environments
    return {name: file.record for name, file in declared.items()}
