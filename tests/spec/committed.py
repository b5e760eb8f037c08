"""The committed files, read once for all tests that hold them against facts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tandem.spec.catalogue import Catalogue, load_catalogue
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment
from tandem.spec.workspace import Workspace, load_workspace

ROOT = Path(__file__).parent.parent.parent


@cache
def workspace() -> Workspace:
    """Return every committed environment and experiment."""
    return load_workspace(ROOT / "environments", ROOT / "experiments")


def experiment(name: str) -> Experiment:
    """Return one committed experiment."""
    return workspace().experiments[name].record


def environment(name: str) -> Environment:
    """Return one committed environment."""
    return workspace().environments[name].record


def known() -> Catalogue:
    """Return the committed data files."""
    return load_catalogue()


EXPERIMENTS = sorted(path.stem for path in (ROOT / "experiments").glob("*.yaml"))
ENVIRONMENTS = sorted(path.stem for path in (ROOT / "environments").glob("*.yaml"))
