"""What the synthesized stacks ask of a bootstrap is what the doctor looks for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tandem.ops.doctor.identity import MIN_BOOTSTRAP_VERSION, MIN_LOOKUP_VERSION

pytestmark = pytest.mark.cdk
NEEDS = "requiresBootstrapStackVersion"


def properties(assembly: Path) -> Iterator[dict[str, Any]]:
    """The properties of every stack and every set of assets."""
    for manifest in assembly.rglob("manifest.json"):
        for artifact in json.loads(manifest.read_text())["artifacts"].values():
            yield artifact.get("properties", {})


def test_the_newest_bootstrap_that_a_stack_needs_is_the_one_looked_for(assembly: Path) -> None:
    assert max(each[NEEDS] for each in properties(assembly) if NEEDS in each) == MIN_BOOTSTRAP_VERSION


def test_the_newest_bootstrap_that_a_look_up_needs_is_the_one_warned_of(assembly: Path) -> None:
    assert max(each["lookupRole"][NEEDS] for each in properties(assembly) if "lookupRole" in each) == MIN_LOOKUP_VERSION
