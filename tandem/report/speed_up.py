"""The section on speed: the forest plots of every variant, and every judged figure as a table.

Invariant: the table has the deciding metric first; so many rows that they can be read, the rest is counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from tandem.judge import text_format
from tandem.judge.schema import FILE, Headline, Verdict
from tandem.report import forest_plot
from tandem.report.charts import ReportChart
from tandem.report.markup import build_sentence, render_template
from tandem.report.section import ReportSection

MAX_ROWS = 160
MAX_VARIANTS = 6


def build_speed_section(verdict: Verdict) -> ReportSection:
    """Return the section."""
    parts = [
        part
        for variant_index, headline in enumerate(verdict.headlines[:MAX_VARIANTS])
        for part in _build_variant_parts(verdict, headline, variant_index)
    ]
    if len(verdict.headlines) > MAX_VARIANTS:
        omitted_count = len(verdict.headlines) - MAX_VARIANTS
        parts.append(build_sentence(f"{omitted_count:,} more variants are in {FILE}."))
    if not verdict.cells:
        parts.append(build_sentence("No figure could be judged: no prompt was answered by both arms."))
    return ReportSection(name="speed", short="Speed-up", title="Speed-up per class", parts=tuple(parts))


def _build_variant_parts(verdict: Verdict, headline: Headline, variant_index: int) -> Iterator[Markup | ReportChart]:
    yield from forest_plot.build_forest_charts(verdict, headline, variant_index)
    variant_cells = [cell for cell in verdict.cells if cell.variant == headline.variant]
    if not variant_cells:
        return
    sorted_cells = sorted(variant_cells, key=lambda cell: cell.metric != headline.metric)
    if len(sorted_cells) > MAX_ROWS:
        deciding_cells = text_format.choose_telling_cells(text_format.select_cells(verdict, headline), MAX_ROWS)
        other_cells = [cell for cell in sorted_cells if cell.metric != headline.metric]
        sorted_cells = [*deciding_cells, *other_cells][:MAX_ROWS]
    omission_note = (
        f"{len(sorted_cells):,} of {len(variant_cells):,} cells, those that say most; all are in {FILE}."
        if len(sorted_cells) < len(variant_cells)
        else None
    )
    title = f"Every judged figure of {headline.variant}"
    table = forest_plot.build_metrics_table(title, sorted_cells, verdict)
    yield render_template("card", summary=title, table=table, sentences=(), note=omission_note)
