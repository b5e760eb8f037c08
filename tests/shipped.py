"""The environments and experiments that the repository ships, by name; an operator's own lie beside
them.

Invariant: no test lists `environments/` or `experiments/`, and none judges a file that is not named
here.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tandem.declarations.workspace import Workspace, load_workspace

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ("dev-trn2-3xlarge", "native-us-east-2", "post-us-east-2")
EXPERIMENTS = ("dev", "llama-eagle3", "post", "post-drafts-windows", "qwen3-native")
NAMES = {"environments": ENVIRONMENTS, "experiments": EXPERIMENTS}


def copy_shipped(folder: Path, *sources: str) -> None:
    """Copy shipped files.

    Args:
        folder: where the copies go; it exists.
        sources: folders of the repository; both when none is given.
    """
    for source in sources or NAMES:
        (folder / source).mkdir(parents=True)
        for name in NAMES[source]:
            shutil.copyfile(ROOT / source / f"{name}.yaml", folder / source / f"{name}.yaml")


def load_shipped() -> Workspace:
    """Load what the repository ships; its environments host every experiment of it."""
    return load_workspace(ROOT / "environments", ROOT / "experiments", ENVIRONMENTS)
