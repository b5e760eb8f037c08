"""Pages of charts: what they hold without a figure, and a disk that refuses them."""

from __future__ import annotations

import pytest

from tandem.errors import ExternalError
from tandem.report.chart_page import PageHeader, write_chart_page
from tandem.report.plan_page import write_plan_page

HEADER = PageHeader(
    title="2.0x", eyebrow="plan", sentences=(), source="a run", is_simulated=False, version="1"
)


def test_a_page_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ExternalError, match="the page cannot be written"):
        write_chart_page(HEADER, (), tmp_path / "nowhere" / "page.html")


def test_a_plan_without_a_speed_up_has_no_chart(tmp_path):
    write_plan_page(HEADER, (), (), tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert ("Every figure" in html, "Speed-up by window" in html) == (True, False)
