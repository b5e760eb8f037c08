"""Shared by all tests: Node from the virtual environment, copies of the committed specs, who runs beside whom.

What is dear to make is made in one of the processes that pytest starts: the tests that take it are one group.
"""

from __future__ import annotations

import gc
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import _node  # noqa: E402, F401  # before anything imports jsii

# fixtures of a whole session that are dear -> the group of the tests that take them; a module's need no name here
DEAR = {"assembly": "cdk", "synth": "cdk", "image_of": "cdk"}  # seconds of Node each, and one Node for all


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together what shares a dear fixture."""
    for item in items:
        if isinstance(item, pytest.Function) and not any(item.iter_markers("xdist_group")):
            group = group_of(item)
            if group:
                item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_finish() -> None:
    """Keep what collecting made out of every garbage collection: it lives as long as the tests do."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect once; pytest's own five collections after it then have little to look at."""
    gc.collect()
    gc.freeze()


def group_of(item: pytest.Function) -> str:
    """Return the group of a test: of a dear fixture, else its module's if it takes a fixture of module scope."""
    dear = next((DEAR[name] for name in item.fixturenames if name in DEAR), "")
    scopes = {found[-1].scope for found in item._fixtureinfo.name2fixturedefs.values()}
    return dear or (item.path.stem if "module" in scopes else "")


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
