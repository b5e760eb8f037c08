"""The page of a run of one server: every figure and no verdict.

Invariant: no word of a verdict stands on it, and nothing is compared; the sections are those of a
report, without the ones that need a second server.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tandem.bench.figures.request_table import RequestTable
from tandem.bench.figures.summary import FILE, RecordSummary, SummaryCell
from tandem.bench.plan.schedule import LoadLevel
from tandem.bench.records.simulation import SIMULATED_BAND
from tandem.judge import text_format as fmt
from tandem.judge.equal_length import describe_forced_lengths
from tandem.judge.schema import Verdict
from tandem.report import acceptance, appendix, distributions, time_series
from tandem.report.chart_page import PageHeader, render_page
from tandem.report.charts import ReportSection
from tandem.report.header import build_arms_table
from tandem.report.markup import build_table, render_template
from tandem.report.page import write_page

MAX_ROWS = 400
_MAX_NOTES = 3  # more notes are folded


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
    page = render_page(_build_header(figures, requests), sections)
    band = SIMULATED_BAND if figures.simulated else None
    return write_page(page, sections, requests.folder, band=band)


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
    manifest = requests.run
    failure_text = f", {figures.failed:,} failed" if figures.failed else ", none failed"
    facts = {
        "Model": fmt.shorten_text(manifest.arms[0].model),
        "Servers run on": manifest.instance_type or "not stated",
        "Suites": fmt.describe_suites(figures) or fmt.ABSENT,
        "Measured": figures.created_utc,
        "Requests": f"{figures.requests:,}{failure_text}",
        "Run": figures.run,
    }
    counted_rows = ~requests.control_round_mask()
    forced_texts = describe_forced_lengths(requests, counted_rows, (figures.baseline,))
    title = f"Figures of {fmt.shorten_text(figures.baseline)}"
    body = render_template(
        "arm",
        arms=build_arms_table(figures, (figures.baseline,)),
        reasons=_list_void_reasons(figures),
        notes=fmt.list_notes(figures),
        max_notes=_MAX_NOTES,
        facts=list(facts.items()),
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


def _list_void_reasons(figures: Verdict) -> Sequence[str]:
    return [f"{reason.rstrip('.')}." for reason in figures.controls.void]
