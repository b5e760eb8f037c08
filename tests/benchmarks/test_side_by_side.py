"""The table of `make side-by-side`: how far a tool is from the server's log of its requests."""

from __future__ import annotations

from side_by_side import ToolResult


def test_a_row_has_the_tools_median_the_logs_and_their_difference():
    stated = {"ttft_ms": 102.0, "tpot_ms": 10.0, "e2e_ms": 990.0}
    logged = {"ttft_ms": 100.0, "tpot_ms": 10.0, "e2e_ms": 1000.0}
    assert ToolResult("tandem", stated, logged).format_row() == (
        "| tandem | 102.00, 100.00 | +2.00% | 10.00, 10.00 | +0.00% | 990.00, 1000.00 | -1.00% |"
    )
