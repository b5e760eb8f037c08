"""A file of bad form is judged as far as its spoilt leaves do not matter."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from pathlib import Path

import pytest
from shipped import copy_examples

from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.workspace import load_workspace
from tandem.rules import check_workspace

ENVIRONMENT = "environments/post-us-east-2.yaml"
EXPERIMENT = "experiments/post.yaml"
NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.fixture
def specs(tmp_path):
    """Copies of one environment and its experiments."""
    copy_examples(tmp_path, "post-us-east-2")
    return tmp_path


def spoil(specs: Path, file: str, *changes: tuple[str, str]) -> None:
    text = (specs / file).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (specs / file).write_text(text)


def told(specs: Path) -> set[tuple[str | None, str]]:
    """Return (rule, path) of what is told."""
    workspace = load_workspace(specs / "environments", specs / "experiments")
    faults = (*workspace.faults, *check_workspace(workspace, load_catalogue(), NOW))
    return {(fault.rule, fault.path) for fault in faults if fault.severity == "refusal"}


def test_spoilt_leaf_raises_no_python_warning(specs):
    spoil(
        specs,
        ENVIRONMENT,
        ("111122223333", "210987654321"),
        ("zones: [use2-az1", "zones: [us-east-2a"),
    )

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (None, "network.zones[0]") in told(specs)


def test_what_depends_on_the_spoilt_leaf_is_not_told(specs):
    spoil(specs, EXPERIMENT, ("devices: 8", "devices: eight"), ("cpu: 90", "cpu: 120"))
    assert told(specs) == {(None, "serving.devices")}


def test_an_unknown_key_hides_no_rule(specs):
    spoil(specs, EXPERIMENT, ("suites:", "nonsense: 1\nsuites:"), ("shm_gib: 16", "shm_gib: 256"))
    assert told(specs) == {(None, "nonsense"), ("shm-in-memory", "serving.shm_gib")}


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ('account: "111122223333"', "account: 12", "account"),
        ("region: us-east-2", "region: Ohio", "region"),
        ("kind: capacity-block", "kind: block", "capacity.kind"),
    ],
)
def test_a_spoilt_leaf_of_an_environment_hides_no_rule(specs, old, new, path):
    spoil(specs, ENVIRONMENT, (old, new), ('kubernetes: "1.36"', 'kubernetes: "1.20"'))
    rules_and_paths = told(specs)
    assert {(None, path), ("kubernetes-floor", "cluster.kubernetes")} <= rules_and_paths
    assert not any(rule and at == path for rule, at in rules_and_paths)


def test_a_spoilt_environment_hides_no_fault_of_its_experiment(specs):
    spoil(specs, ENVIRONMENT, ('account: "111122223333"', "account: 12"))
    spoil(specs, EXPERIMENT, ("shm_gib: 16", "shm_gib: 256"))
    workspace = load_workspace(specs / "environments", specs / "experiments", ("post-us-east-2",))
    assert "shm-in-memory" in {fault.rule for fault in check_workspace(workspace, load_catalogue())}


def test_file_that_cannot_be_mended_is_judged_in_form_alone(specs):
    spoil(
        specs, EXPERIMENT, ("serving:", "serving: 3\nno_serving:"), ("shm_gib: 16", "shm_gib: 256")
    )
    assert {rule for rule, _ in told(specs)} == {None}


def test_no_command_builds_a_mended_file(specs):
    spoil(specs, EXPERIMENT, ("devices: 8", "devices: 20"))
    workspace = load_workspace(specs / "environments", specs / "experiments")
    assert set(workspace.experiments) == {"post-drafts-windows"}
