"""The environments of this folder: legal, and deployed by the real CDK CLI to the local endpoint as
they say.

Their templates are linted by tests/stacks/test_policies.py, their manifests held against the strict
schemas by tests/charts/test_schemas.py.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from declared_environments import ARGOCD_DELIVERY, ARGOCD_NAME, FOLDER, read_environments
from shipped import copy_experiments

from rehearsal.aws import deploy_cycle
from rehearsal.aws.deploy_cycle import RehearsalRequest, run_rehearsal
from tandem.cli.inputs import read_inputs
from tandem.cli.selection import Selection

NAMES = sorted(read_environments())
APP_OF_ONE_RANGE = """
import runpy
import _node
import stacks.network as network
def refuse_ranges(declared):
    raise SystemExit(f"a second range, {declared.secondary_cidrs[0]}, is not known")
network.import_network = refuse_ranges
runpy.run_path("app.py", run_name="__main__")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files of this folder, and private-charts.yaml a second time with Argo CD as its tool."""
    base = tmp_path_factory.mktemp("declared")
    copies = Path(
        shutil.copytree(
            FOLDER, base / "environments", ignore=shutil.ignore_patterns("*.py", "__pycache__")
        )
    )
    copy_experiments(base)
    document = yaml.safe_load((FOLDER / "private-charts.yaml").read_text())
    document["delivery"].update(ARGOCD_DELIVERY)
    (copies / f"{ARGOCD_NAME}.yaml").write_text(yaml.safe_dump(document))
    return copies


@pytest.fixture(scope="module")
def inputs(folder):
    return read_inputs(Selection(environments=folder, experiments=folder.parent / "experiments"))


def test_the_files_declare_what_the_other_tests_take(inputs):
    assert {place.name: place for place in inputs.environments()} == read_environments()


def test_the_rules_refuse_none_of_them(inputs):
    assert [fault for fault in inputs.faults if fault.severity == "refusal"] == []


@pytest.mark.proof
@pytest.mark.endpoint
@pytest.mark.xdist_group("endpoint")
@pytest.mark.parametrize("name", NAMES)
def test_a_rehearsed_life_differs_in_no_property(folder, name):
    request = RehearsalRequest(
        name=name, environments=folder, experiments=folder.parent / "experiments"
    )

    rehearsal = run_rehearsal(request, print)

    assert [step.outcome for step in rehearsal.steps if step.is_failure] == []
    assert {
        item.logical_id: item.differences for item in rehearsal.resources if item.differences
    } == {}
    assert sum(len(item.matching_properties) for item in rehearsal.resources) > 0


@pytest.mark.proof
@pytest.mark.endpoint
@pytest.mark.xdist_group("endpoint")
def test_an_app_that_knows_one_range_is_caught(folder, monkeypatch):
    command = shlex.join([sys.executable, "-c", APP_OF_ONE_RANGE])

    failures = []

    def run_changed(request, report):
        rehearsal = deploy_cycle.run_rehearsal(
            replace(request, is_quick=True, app_command=command), report
        )
        failures.extend(step.outcome for step in rehearsal.steps if step.is_failure)
        return rehearsal

    monkeypatch.setitem(globals(), "run_rehearsal", run_changed)
    with pytest.raises(AssertionError):
        test_a_rehearsed_life_differs_in_no_property(folder, "customer-keys")
    assert "a second range, 100.64.0.0/16, is not known" in failures[0]
