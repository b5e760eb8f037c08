"""The environments and experiments that the repository ships, and the examples that tests copy.

Invariant: what must hold of each is asked of every committed environment of the example account, so
a new one needs no edit of a test. An exact fact is asked of EXAMPLES, which host what stands here,
whatever the committed files host besides. An operator's own files are neither.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tracked_files import list_tracked

from tandem.declarations.workspace import Workspace, load_workspace

ROOT = Path(__file__).resolve().parent.parent
# the account of every environment that the repository ships; one that is filled in names its own
EXAMPLE_ACCOUNT = 'account: "111122223333"'
EXAMPLES = {
    "dev-trn2-3xlarge": ("dev",),
    "native-us-east-2": ("qwen3-native", "llama-eagle3"),
    "post-us-east-2": ("post", "post-drafts-windows"),
}


def list_environments() -> tuple[str, ...]:
    """Return the names of the committed environments of the example account, in order."""
    files = [ROOT / name for name in list_tracked("environments/*.yaml")]
    texts = {file.stem: file.read_text() for file in files}
    return tuple(sorted(name for name, text in texts.items() if EXAMPLE_ACCOUNT in text))


ENVIRONMENTS = list_environments()


def copy_shipped(folder: Path) -> None:
    """Copy every committed environment and experiment into a folder, which exists."""
    workspace = load_shipped()
    _copy_files(folder / "environments", workspace.environments)
    _copy_files(folder / "experiments", workspace.experiments)


def copy_examples(folder: Path, *names: str) -> None:
    """Copy examples and the experiments that they host into a folder, which exists.

    Args:
        folder: where the copies go.
        names: of EXAMPLES; all when none is given.
    """
    chosen = names or tuple(EXAMPLES)
    _copy_files(folder / "environments", chosen)
    for name in chosen:
        path = folder / "environments" / f"{name}.yaml"
        hosts = f"experiments: [{', '.join(EXAMPLES[name])}]"
        path.write_text(re.sub(r"(?m)^experiments: .*$", hosts, path.read_text()))
    copy_experiments(folder, *chosen)


def copy_experiments(folder: Path, *names: str) -> None:
    """Copy the experiments of examples into a folder, which exists; of all when none is given."""
    for name in names or EXAMPLES:
        _copy_files(folder / "experiments", EXAMPLES[name])


def _copy_files(folder: Path, names: Iterable[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copyfile(ROOT / folder.name / f"{name}.yaml", folder / f"{name}.yaml")


def load_shipped() -> Workspace:
    """Load what the repository ships; its environments host every experiment of it."""
    return load_workspace(ROOT / "environments", ROOT / "experiments", ENVIRONMENTS)


def load_examples() -> Workspace:
    """Load what the repository ships, but EXAMPLES host what stands there."""
    shipped = load_shipped()
    environments = dict(shipped.environments)
    for name, hosted in EXAMPLES.items():
        file = environments[name]
        record = file.record.model_copy(update={"experiments": hosted})
        environments[name] = replace(file, record=record)
    return replace(shipped, environments=environments)
