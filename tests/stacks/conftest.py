"""Templates of the committed environments and of every variant, synthesized once per process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import assemblies
import pytest

import app
from tandem.spec.environment import Environment
from tandem.spec.experiment import Experiment

Synth = Callable[..., Path]


@pytest.fixture(scope="session")
def synth(tmp_path_factory: pytest.TempPathFactory) -> Synth:
    """Return the folder of the cloud assembly of some environments."""

    def run(*places: Environment, experiments: list[Experiment] | None = None, validate: bool = False) -> Path:
        folder = tmp_path_factory.mktemp("assembly")
        hosts = [(place, experiments or assemblies.hosted(place)) for place in places]
        app.app(hosts, assemblies.inputs().catalogue, outdir=str(folder), validate=validate).synth()
        return folder

    return run


@pytest.fixture(scope="session")
def assembly(synth: Synth) -> Path:
    """The cloud assembly of all committed environments and all variants."""
    return synth(*assemblies.places())


@pytest.fixture(scope="session")
def stacks(assembly: Path) -> assemblies.Templates:
    """Stack name to template, over committed environments and variants."""
    return assemblies.templates(assembly)
