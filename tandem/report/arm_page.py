"""The page of a run of one server: every figure and no verdict.

Invariant: no word of a verdict stands on it, and nothing is compared; the sections are those of a
report, without the ones that need a second server.
"""

from __future__ import annotations

from pathlib import Path

from tandem.bench.figures.request_table import RequestTable
from tandem.bench.figures.summary import FILE, RecordSummary, SummaryCell
from tandem.bench.plan.schedule import LoadLevel
from tandem.judge import text_format as fmt
from tandem.judge.equal_length import describe_forced_lengths
from tandem.judge.schema import Verdict
from tandem.report import acceptance, appendix, distributions, time_series
from tandem.report.chart_page import PageHeader
from tandem.report.charts import ReportSection
from tandem.report.header import MAX_NOTES, build_arms_table, describe_run, end_sentences
from tandem.report.markup import build_table, render_template
from tandem.report.page import write_page

MAX_ROWS = 400


def write_arm_report(figures: Verdict, summary: RecordSummary, requests: RequestTable) -> Path:
    """Write report.html and charts/*.png of a run of one server into its folder; return the page.

    Args:
        figures: of the server, of `describe_arm`.
        summary: of the run.
        requests: of the run.

    Raises:
        ExternalError: the folder cannot be written to.
    """
    sections = [
        build_figures_section(summary),
        distributions.build_distribution_section(figures, requests),
        time_series.build_time_series_section(figures, requests),
    ]
    if fmt.filter_speculation(figures):
        sections.append(acceptance.build_acceptance_section(figures))
    sections.append(appendix.build_cost_section(figures))
    sections.append(appendix.build_controls_section(figures))
    names = [metric.name for metric in summary.metrics]
    sections += appendix.build_closing_sections(figures, names)
    return write_page(_build_header(figures, requests), sections, requests.folder)


def build_figures_section(summary: RecordSummary) -> ReportSection:
    """Return the section with every figure of a run's records, by class and load."""
    cells = summary.cells[:MAX_ROWS]
    note = None
    if len(cells) < len(summary.cells):
        note = f"{len(cells):,} of {len(summary.cells):,} figures; all are in {FILE}."
    heads = ("Class", "Load", "Metric", "Values", "p50", "p90", "p99", "Mean")
    rows = list(map(_format_cell, cells))
    table = build_table("Every figure", heads, rows, numbers=range(3, len(heads)), class_="cells")
    card = render_template("card", summary=None, table=table, sentences=(), note=note)
    return ReportSection(name="figures", short="Figures", title="Every figure", parts=(card,))


def _format_cell(cell: SummaryCell) -> list[str]:
    load = LoadLevel(concurrency=cell.concurrency, rate_per_s=cell.rate_per_s)
    values = map(fmt.format_number, (cell.p50, cell.p90, cell.p99, cell.mean))
    place = [cell.class_, fmt.format_load(load), fmt.format_metric_unit(cell.metric)]
    return [*place, f"{cell.n:,}", *values]


def _build_header(figures: Verdict, requests: RequestTable) -> PageHeader:
    counted_rows = ~requests.control_round_mask()
    forced_texts = describe_forced_lengths(requests, counted_rows, (figures.baseline,))
    title = f"Figures of {fmt.shorten_text(figures.baseline)}"
    body = render_template(
        "arm",
        arms=build_arms_table(figures, (figures.baseline,)),
        reasons=end_sentences(figures.controls.void),
        notes=fmt.list_notes(figures),
        max_notes=MAX_NOTES,
        facts=list(describe_run(figures, requests.run).items()),
    )
    return PageHeader(
        title=title,
        eyebrow=f"Tandem figures of {figures.folder}",
        sentences=(
            "One server was measured, so nothing is compared and there is no verdict.",
            *(f"{text}." for text in forced_texts),
        ),
        source="the records of the run",
        is_simulated=figures.simulated is True,
        version=figures.version,
        tab=title,
        body=body,
    )
