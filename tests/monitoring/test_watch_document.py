"""docs/reference/metrics.md and docs/watch.md tell every graph."""

from __future__ import annotations

import re

import pytest
from hosted import ENVIRONMENTS, ROOT, drawn, graphs

DOCUMENT = (ROOT / "docs" / "reference" / "metrics.md").read_text() + (
    ROOT / "docs" / "watch.md"
).read_text()
TITLES = sorted(
    {
        (
            re.split(r", | \[", graph.title)[0]
            if not graph.title.startswith("Figure 4")
            else graph.title.split(", p50")[0]
        )
        for environment in ENVIRONMENTS
        for dashboard in drawn(environment).values()
        for graph in graphs(dashboard)
    }
)


@pytest.mark.parametrize("title", TITLES)
def test_every_graph_is_told(title):
    assert title in DOCUMENT
