"""The dashboard of money and capacity: nodes that were seen, times a stated price."""

from __future__ import annotations

import pytest
from hosted import by_part, changed, graph, graphs, words

from tandem.monitoring.widget import Dashboard, GraphMark

ENVIRONMENT = "post-us-east-2"
BLOCK = {"starts": "2026-12-01T11:30:00Z", "ends": "2026-12-08T11:30:00Z"}
RESERVED = {"reservation_id": "cr-0123456789abcdef0"}


def money(**capacity: object) -> Dashboard:
    """The post's environment's dashboard with some values of its capacity changed."""
    return by_part(changed(ENVIRONMENT, capacity=capacity))["money"]


@pytest.mark.parametrize("title", ["Accelerator nodes alive", "Node-hours since", "Cost since"])
def test_start_and_end_of_the_block_are_marked_over_time(title):
    marks = graph(money(**RESERVED, block=BLOCK), title).marks
    assert GraphMark(label="block starts", moment="2026-12-01T11:30:00Z") in marks
    assert GraphMark(label="block ends", moment="2026-12-08T11:30:00Z") in marks


@pytest.mark.parametrize(
    ("capacity", "said"),
    [
        ({"reservation_id": None}, "No Capacity Block is bought yet"),
        (RESERVED, "Start and end of the block are not stated"),
        (RESERVED | {"block": BLOCK}, "from 2026-12-01T11:30:00Z to 2026-12-08T11:30:00Z"),
        ({"kind": "on-demand", "reservation_id": None}, "There is no Capacity Block"),
        ({"kind": "spot", "reservation_id": None}, "A spot price moves"),
    ],
)
def test_what_is_known_of_the_block_is_said(capacity, said):
    assert said in words(money(**capacity))


def test_without_container_insights_no_node_is_counted_and_that_is_said():
    dashboard = by_part(changed(ENVIRONMENT, observability={"container_insights": False}))["money"]
    assert {item.publisher for item in graphs(dashboard)} == {"guard", "bench"}
    assert "Nodes, hours and USD are not drawn" in words(dashboard)
