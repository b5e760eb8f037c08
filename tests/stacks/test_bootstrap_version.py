"""What the synthesized stacks ask of a bootstrap is what the doctor looks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandem.ops.doctor.identity import BOOTSTRAP_VERSION

pytestmark = pytest.mark.cdk


def test_the_newest_bootstrap_that_any_stack_needs_is_the_one_looked_for(assembly: Path) -> None:
    asked = {
        artifact["properties"]["requiresBootstrapStackVersion"]
        for manifest in assembly.rglob("manifest.json")
        for artifact in json.loads(manifest.read_text())["artifacts"].values()
        if "requiresBootstrapStackVersion" in artifact.get("properties", {})
    }

    assert max(asked) == BOOTSTRAP_VERSION
