"""Templates of the committed environments and of every variant, synthesized once per process."""

from __future__ import annotations

import json
from pathlib import Path

import assemblies
import pytest
from constructs import IConstruct

import app
from stacks import finding
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment


@pytest.fixture(scope="session")
def synth(tmp_path_factory):
    """Return the folder of the cloud assembly of some environments."""

    def run(
        *places: Environment, experiments: list[Experiment] | None = None, validate: bool = False
    ) -> Path:
        folder = tmp_path_factory.mktemp("assembly")
        hosts = [(place, experiments or assemblies.hosted(place)) for place in places]
        app.build_app(
            hosts, assemblies.inputs().catalogue, outdir=str(folder), validate=validate
        ).synth()
        return folder

    return run


@pytest.fixture(scope="session")
def assembly(tmp_path_factory):
    """The cloud assembly of all committed environments and all variants, and beside it what cdk-nag
    found in it."""
    from aws_cdk import Validations  # noqa: PLC0415  # seconds, which the process that makes no assembly saves
    from cdk_nag import AwsSolutionsChecks  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("all")
    hosts = [(place, assemblies.hosted(place)) for place in assemblies.places()]
    accepted_values: list[tuple[str, str]] = []

    def record(construct: IConstruct, id_: str, reason: str) -> None:
        """Note what is accepted, and leave it among the findings: test_policies.py compares the
        two."""
        assert reason
        accepted_values.append((construct.node.path, id_))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finding, "acknowledge_finding", record)
        root = app.build_app(
            hosts, assemblies.inputs().catalogue, outdir=str(folder), validate=False
        )
    (folder / "accepted_findings.json").write_text(json.dumps(accepted_values))
    Validations.of(root).add_plugins(AwsSolutionsChecks(root, verbose=False))
    try:
        root.synth()
    # a finding, when all is written: for test_policies.py to tell, not for every test
    except RuntimeError as error:
        if not str(error).startswith("ValidationFailed"):
            raise
    return folder


@pytest.fixture(scope="session")
def stacks(assembly):
    """Stack name to template, over committed environments and variants."""
    return assemblies.templates(assembly)
