"""Shared by all tests: Node from the virtual environment, and folders that copy the committed specs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import _node  # noqa: E402, F401  # before anything imports jsii


@pytest.fixture
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    """A folder with copies of environments/ and experiments/, free to be spoilt."""
    for name in ("environments", "experiments"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path
