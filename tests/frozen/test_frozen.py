"""What a user or an account meets is as the golden files have it: see freeze.py, which writes them.

Templates are compared by tests/stacks/test_frozen_templates.py, which shares that folder's
assembly.
"""

from __future__ import annotations

import json
import re

import freeze
import pytest


def golden(files):
    """The frozen texts of these files."""
    return {name: (freeze.FOLDER / name).read_text() for name in files}


def test_artifact_keys_are_as_frozen():
    files = freeze.freeze_artifact_keys()
    assert files == golden(files)


@pytest.mark.parametrize("name", freeze.RUNS)
def test_recorded_run_gets_its_verdict(name, tmp_path):
    files = freeze.freeze_run(name, tmp_path)
    assert files == golden(files)


def test_every_command_says_its_help():
    files = freeze.freeze_help()
    assert files == golden(files)


@pytest.mark.parametrize("name", freeze.SCREENS)
def test_first_screen_is_as_frozen(name, tmp_path):
    files = freeze.freeze_screen(name, tmp_path)
    assert files == golden(files)


@pytest.mark.parametrize("name", freeze.SCREENS)
def test_first_screen_fits_eighty_columns(name):
    lines = (freeze.FOLDER / "screens" / f"{name}.txt").read_text().splitlines()
    assert [line for line in lines[1:] if len(line) > 80 and not is_verbatim(line)] == []


def is_verbatim(line):
    """Whether a line is a command, an address or what to change, which a reader copies whole."""
    return max(map(len, line.split())) > 50 or bool(
        re.match(r"  (change|allowed|why)  |(    )?(tandem|npx) ", line)
    )


@pytest.mark.parametrize("name", json.loads((freeze.FOLDER / "mistakes.json").read_text()))
def test_mistake_is_told_as_before(name, tmp_path):
    frozen = json.loads((freeze.FOLDER / "mistakes_told.json").read_text())
    assert freeze.freeze_mistake(name, tmp_path) == frozen[name]
