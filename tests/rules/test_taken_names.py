"""An experiment may not be called as what stands beside its folder or its dashboard."""

from __future__ import annotations

import pytest
from known import judged


@pytest.mark.parametrize("name", ["gitops", "machine", "money", "people"])
def test_a_name_that_something_else_has_is_refused(name: str) -> None:
    assert "experiment-folder" in {fault.rule for fault in judged({"experiment.name": name})}
