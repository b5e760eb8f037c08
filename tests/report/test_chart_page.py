"""Pages of charts: what stands over them, and what they hold without a figure."""

from __future__ import annotations

import pytest

from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.errors import ExternalError
from tandem.report.chart_page import PageHeader, write_chart_page
from tandem.report.plan_page import write_plan_page


def header(*, is_simulated=False):
    return PageHeader(
        title="2.0x",
        eyebrow="plan",
        sentences=(),
        source="a run",
        is_simulated=is_simulated,
        version="1",
    )


@pytest.mark.parametrize("is_simulated", [True, False])
def test_a_page_of_simulated_servers_says_so(tmp_path, is_simulated):
    write_chart_page(header(is_simulated=is_simulated), (), tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert (SIMULATED_BAND in html, "<title>Simulated: plan" in html) == (
        is_simulated,
        is_simulated,
    )


def test_a_page_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ExternalError, match="the page cannot be written"):
        write_chart_page(header(), (), tmp_path / "nowhere" / "page.html")


def test_a_plan_without_a_speed_up_has_no_chart(tmp_path):
    write_plan_page(header(), (), (), tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert ("Every figure" in html, "Speed-up by window" in html) == (True, False)
