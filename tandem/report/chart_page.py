"""A page of charts and tables in one file, without script; it names simulated servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.errors import ExternalError, convert_os_errors
from tandem.report.charts import ReportSection
from tandem.report.colors import build_css_variables
from tandem.report.markup import TEMPLATES, render_template


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHeader:
    """Head and foot of a page.

    Args:
        title: the answer.
        eyebrow: the subject.
        sentences: basis of the figures.
        source: of the figures, for the foot.
        is_simulated: whether a server was simulated.
        version: of Tandem.
    """

    title: str
    eyebrow: str
    sentences: tuple[str, ...]
    source: str
    is_simulated: bool
    version: str


def write_chart_page(header: PageHeader, sections: Sequence[ReportSection], path: Path) -> None:
    """Write a page.

    Args:
        header: head and foot.
        sections: in their order.
        path: of the file.

    Raises:
        ExternalError: the file cannot be written.
    """
    band = SIMULATED_BAND if header.is_simulated else None
    style = build_css_variables() + (TEMPLATES / "report.css").read_text(encoding="utf-8")
    opening = render_template(
        "plan_header",
        band=band,
        eyebrow=header.eyebrow,
        title=header.title,
        sentences=header.sentences,
    )
    text = render_template(
        "report",
        title=f"{'Simulated: ' if header.is_simulated else ''}{header.eyebrow}",
        style=Markup(style),  # noqa: S704 - ours
        header=opening,
        sections=sections,
        version=header.version,
        source=header.source,
    )
    with convert_os_errors("the page cannot be written", path, "name another file", ExternalError):
        path.write_text(text, encoding="utf-8")
