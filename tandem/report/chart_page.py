"""The form of every page: one file of charts and tables without script; it names simulated servers.

Invariant: no outside reference, which the page's content policy also forbids.
"""

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


@dataclass(frozen=True, kw_only=True)
class PageHeader:
    """Head and foot of a page.

    Args:
        title: the answer; empty where the body has it.
        eyebrow: the subject.
        sentences: basis of the figures.
        source: of the figures, for the foot.
        is_simulated: whether a server was simulated.
        version: of Tandem.
        tab: name of the browser's tab; empty for the eyebrow.
        body: what stands under the sentences.
    """

    title: str
    eyebrow: str
    sentences: tuple[str, ...]
    source: str
    is_simulated: bool
    version: str
    tab: str = ""
    body: Markup | None = None


def render_page(header: PageHeader, sections: Sequence[ReportSection]) -> str:
    """Return a page.

    Args:
        header: head and foot.
        sections: in their order.
    """
    band = SIMULATED_BAND if header.is_simulated else None
    style = build_css_variables() + (TEMPLATES / "report.css").read_text(encoding="utf-8")
    return render_template(
        "report",
        title=f"{'Simulated: ' if header.is_simulated else ''}{header.tab or header.eyebrow}",
        style=Markup(style),  # noqa: S704 - ours
        header=render_template("opening", band=band, header=header),
        sections=sections,
        version=header.version,
        source=header.source,
    )


def write_chart_page(header: PageHeader, sections: Sequence[ReportSection], path: Path) -> None:
    """Write a page; arguments as for `render_page`.

    Raises:
        ExternalError: the file cannot be written.
    """
    text = render_page(header, sections)
    with convert_os_errors("the page cannot be written", path, "name another file", ExternalError):
        path.write_text(text, encoding="utf-8")
