"""Every object of five environments has the values in tests/frozen, which tests/frozen/freeze.py
writes."""

from __future__ import annotations

import freeze
import pytest
from chart_cases import render_tree


@pytest.mark.parametrize("environment", freeze.ENVIRONMENTS)
def test_no_object_changes(environment):
    golden_lines = (freeze.FOLDER / f"objects/{environment}.json").read_text().splitlines()
    trees = {environment: render_tree(environment)}
    lines = freeze.freeze_objects(trees)[f"objects/{environment}.json"].splitlines()

    assert sorted(set(lines) ^ set(golden_lines)) == []
