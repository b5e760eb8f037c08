"""docs/watch.md tells every graph."""

from __future__ import annotations

import re

import pytest
from hosted import ENVIRONMENTS, ROOT, drawn, graphs

from tandem.metrics import PUBLISHERS

DOCUMENT = (ROOT / "docs" / "watch.md").read_text()
NODE = re.compile(r"(CPU|Memory|Disk|Network) of each node")
TITLES = sorted(
    {
        re.split(r", | \[", graph.title)[0] if not graph.title.startswith("Figure 4") else graph.title.split(", p50")[0]
        for environment in ENVIRONMENTS
        for dashboard in drawn(environment).values()
        for graph in graphs(dashboard)
    }
)


@pytest.mark.parametrize("title", TITLES)
def test_every_graph_is_told(title: str) -> None:
    if NODE.fullmatch(title):
        assert title.split(maxsplit=1)[0] in DOCUMENT.split(" of each node |")[0].rsplit("|", 1)[1]
    else:
        assert title in DOCUMENT


@pytest.mark.parametrize("publisher", [name for name, one in PUBLISHERS.items() if one.sample])
def test_every_publisher_is_told(publisher: str) -> None:
    assert f"\n| {publisher} |" in DOCUMENT
