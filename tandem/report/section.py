"""A section of the page: a heading and what stands under it, charts among it.

Invariant: a section that has nothing to show says why; it is never left out in silence.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from tandem.report.charts import ReportChart, render_figure


@dataclass(frozen=True, kw_only=True)
class ReportSection:
    """One section.

    Args:
        name: where links lead: lower case and hyphens.
        short: in the list of sections.
        title: its heading.
        parts: HTML and charts, in their order.
    """

    name: str
    short: str
    title: str
    parts: tuple[Markup | ReportChart, ...]

    def render_parts(self) -> list[Markup]:
        """Return the HTML of the parts."""
        return [render_figure(part) if isinstance(part, ReportChart) else part for part in self.parts]
