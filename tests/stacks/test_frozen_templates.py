"""Templates of five environments are as tests/frozen has them: tests/frozen/freeze.py writes the
golden files.

Logical ids are not compared: nothing refers to a resource by them.
"""

from __future__ import annotations

import freeze
import pytest
from same_templates import list_differences, read_frozen


@pytest.fixture(scope="module")
def files(stacks):
    return freeze.freeze_templates(stacks)


def test_no_template_comes_or_goes(files):
    frozen = {f"templates/{path.name}" for path in (freeze.FOLDER / "templates").iterdir()}
    assert set(files) == frozen


@pytest.mark.parametrize("environment", freeze.ENVIRONMENTS)
def test_no_resource_changes(files, environment):
    differences = {
        name: list_differences(read_frozen((freeze.FOLDER / name).read_text()), read_frozen(text))
        for name, text in files.items()
        if name.startswith(f"templates/{environment}-")
    }

    assert {name: lines for name, lines in differences.items() if lines} == {}


def test_another_logical_id_is_no_difference():
    template = {
        "Resources": {
            "A": {"Type": "T", "Properties": {"P": 1}},
            "B": {"Type": "U", "DependsOn": "A"},
        }
    }
    renamed = {
        "Resources": {
            "D": {"Type": "U", "DependsOn": ["C"]},
            "C": {"Type": "T", "Properties": {"P": 1}},
        }
    }
    assert list_differences(template, renamed) == []


@pytest.mark.parametrize(
    "other",
    [
        {"A": {"Type": "T", "Properties": {"P": 2}}, "B": {"Type": "U", "DependsOn": "A"}},
        {"A": {"Type": "T", "Properties": {"P": 1}}, "B": {"Type": "U"}},
        {"A": {"Type": "T", "Properties": {"P": 1}}},
    ],
    ids=["property", "dependency", "resource"],
)
def test_anything_else_is_a_difference(other):
    template = {"A": {"Type": "T", "Properties": {"P": 1}}, "B": {"Type": "U", "DependsOn": "A"}}
    assert list_differences({"Resources": template}, {"Resources": other}) != []
