"""The shipped files, read once for all tests that compare them with facts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from shipped import ENVIRONMENTS, load_examples, load_shipped

from tandem.declarations.catalogue import Catalogue, load_catalogue
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.workspace import Workspace

__all__ = ["ENVIRONMENTS", "EXPERIMENTS", "ROOT", "environment", "experiment", "known", "workspace"]

ROOT = Path(__file__).parent.parent.parent
EXPERIMENTS = tuple(load_shipped().experiments)


@cache
def workspace() -> Workspace:
    """Return every committed environment and experiment; the examples host what tests say."""
    return load_examples()


def experiment(name: str) -> Experiment:
    """Return one committed experiment."""
    return workspace().experiments[name].record


def environment(name: str) -> Environment:
    """Return one committed environment."""
    return workspace().environments[name].record


def known() -> Catalogue:
    """Return the committed data files."""
    return load_catalogue()
