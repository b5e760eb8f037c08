"""What is a fault of a page; `make look` asks a real browser, which is not there in the tests."""

from __future__ import annotations

from typing import Any

import pytest
from browser import PAINT_MS, list_faults

FINE: dict[str, Any] = {"paint_ms": 200.0, "too_wide": 0, "wider": []}


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        ({"too_wide": 3}, "3 px wider than the screen"),
        ({"wider": ["<table>"]}, "stands out on the right: <table>"),
        ({"paint_ms": PAINT_MS + 1.0}, f"painted after {PAINT_MS + 1} ms, not {PAINT_MS}"),
        ({"paint_ms": float("nan")}, f"painted after nan ms, not {PAINT_MS}"),
    ],
)
def test_a_page_beyond_a_limit_has_a_fault(state, fault):
    assert list(list_faults({**FINE, **state})) == [fault]
