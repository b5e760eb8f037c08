"""The page: built from its sections, written whole; and the charts as pictures next to it.

Invariant: one file without script and without any outside reference, which its content policy also
forbids; the same verdict and records give the same bytes. If a report cannot be written whole, the
report of an earlier verdict stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tandem.bench.figures.request_table import RequestTable
from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.errors import ExternalError, convert_os_errors
from tandem.judge.schema import REPORT_FILE, Verdict
from tandem.judge.text_format import filter_speculation
from tandem.post.schema import ClaimAnswers
from tandem.report import acceptance, appendix, distributions, output, speed_up, time_series
from tandem.report.chart_page import PageHeader, render_page
from tandem.report.charts import ReportSection, write_png
from tandem.report.claims import build_claims_section
from tandem.report.header import build_header

CHARTS_FOLDER = "charts"


def write_report(
    verdict: Verdict, requests: RequestTable, folder: Path, claims: ClaimAnswers | None = None
) -> Path:
    """Write a verdict's report into a folder, report.html and charts/*.png; return the page.

    Args:
        verdict: to show.
        requests: records of the verdict.
        folder: to write to; charts of an earlier report there are replaced.
        claims: the answers to the post's claims; None where the run was asked none.

    Raises:
        ExternalError: the folder cannot be written to.
    """
    sections = _build_sections(verdict, requests, claims)
    return write_page(build_header(verdict, requests.run), sections, folder)


def write_page(header: PageHeader, sections: Sequence[ReportSection], folder: Path) -> Path:
    """Write a report's page and the charts of its sections; return the page.

    Args:
        header: head and foot.
        sections: that it shows.
        folder: to write to; charts of an earlier report there are replaced.

    Raises:
        ExternalError: the folder cannot be written to.
    """
    page = render_page(header, sections)
    band = SIMULATED_BAND if header.is_simulated else None
    html = folder / REPORT_FILE
    charts = folder / CHARTS_FOLDER
    change = "make room, or report a copy of the folder that may be written to"
    with convert_os_errors("the report cannot be written", folder, change, ExternalError):
        charts.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".report-") as scratch:
            new_pictures = []
            for section in sections:
                slides = section.list_slides()
                new_pictures += [write_png(chart, Path(scratch), band) for chart in slides]
            new_html = Path(scratch) / REPORT_FILE
            new_html.write_text(page, encoding="utf-8")
            for old_picture in charts.glob("*.png"):
                old_picture.unlink()
            for picture in new_pictures:
                picture.replace(charts / picture.name)
            new_html.replace(html)
    return html


def _build_sections(
    verdict: Verdict, requests: RequestTable, claims: ClaimAnswers | None
) -> list[ReportSection]:
    """Return the sections in their order; those on speculation and on the post only if asked."""
    sections = [
        speed_up.build_speed_section(verdict),
        distributions.build_distribution_section(verdict, requests),
        time_series.build_time_series_section(verdict, requests),
        output.build_output_section(verdict),
    ]
    if filter_speculation(verdict):
        sections.append(acceptance.build_acceptance_section(verdict))
    sections.append(appendix.build_cost_section(verdict))
    sections.append(appendix.build_controls_section(verdict))
    if claims:
        sections.append(build_claims_section(claims))
    names = [cell.metric for cell in verdict.cells]
    return sections + appendix.build_closing_sections(verdict, names)
