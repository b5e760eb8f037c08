"""What the steps of the nodes read of a node."""

from __future__ import annotations

import pytest

from tandem.run.fleet_nodes import is_node_ready

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
SILENT = {"conditions": [{"type": "Ready", "status": "Unknown"}]}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"status": READY}, True),
        ({"spec": {"unschedulable": True}, "status": READY}, False),
        ({"status": SILENT}, False),
        ({}, False),
    ],
    ids=["ready", "cordoned", "silent", "new"],
)
def test_node_that_takes_pods_is_ready(node, expected):
    assert is_node_ready(node) is expected
