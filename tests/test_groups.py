"""Tests of one group run in one process.

A pytest and a pytest-xdist that do not fit each other drop groups in silence, and what is dear is then made twice.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GROUPED = """
import os
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("group", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in "ab"])
def test_it(group, number):
    with Path(group).open("a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


def test_the_tests_of_a_group_run_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(GROUPED)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]

    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout
    workers = [(tmp_path / name).read_text().split() for name in "ab"]
    assert [(len(found), len(set(found))) for found in workers] == [(8, 1), (8, 1)]
