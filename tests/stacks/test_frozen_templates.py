"""Templates of five environments are as tests/frozen/freeze.py has written them."""

from __future__ import annotations

import freeze
import pytest


@pytest.fixture(scope="module")
def files(stacks):
    return freeze.freeze_templates(stacks)


def test_no_template_comes_or_goes(files):
    frozen = {f"templates/{path.name}" for path in (freeze.FOLDER / "templates").iterdir()}
    assert set(files) == frozen


@pytest.mark.parametrize("environment", freeze.ENVIRONMENTS)
def test_no_resource_changes(files, environment):
    """A logical id too is compared: another one is another resource."""
    lines = [
        (name, line)
        for name, text in files.items()
        if name.startswith(f"templates/{environment}-")
        for line in set(text.splitlines()) ^ set((freeze.FOLDER / name).read_text().splitlines())
    ]
    assert lines == []
