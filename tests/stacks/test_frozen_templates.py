"""Templates of five environments are as tests/frozen has them: tests/frozen/freeze.py writes the golden files."""

from __future__ import annotations

import re

import freeze
import pytest


@pytest.fixture(scope="module")
def files(stacks):
    return freeze.freeze_templates(stacks)


def test_no_template_comes_or_goes(files):
    frozen = {f"templates/{path.name}" for path in (freeze.FOLDER / "templates").iterdir()}
    assert {name for name in files if name.startswith("templates/")} == frozen


def test_no_logical_id_comes_or_goes(files):
    assert files["logical_ids.txt"] == (freeze.FOLDER / "logical_ids.txt").read_text()


def sort_dependencies(text):
    """The lines of a template, each DependsOn sorted: its order means nothing to CloudFormation."""
    return [
        re.sub(r'"DependsOn": \[(.*?)\]', lambda match: str(sorted(match[1].split(", "))), line)
        for line in text.splitlines()
    ]


@pytest.mark.parametrize("environment", freeze.ENVIRONMENTS)
def test_no_resource_changes(files, environment):
    lines = {
        name: (sort_dependencies(text), sort_dependencies((freeze.FOLDER / name).read_text()))
        for name, text in files.items()
        if name.startswith(f"templates/{environment}-")
    }

    assert {name: sorted(set(now) ^ set(then)) for name, (now, then) in lines.items() if now != then} == {}
