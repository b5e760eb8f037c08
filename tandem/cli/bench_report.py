"""`tandem bench report DIR`: read the records again; figures, then the verdict, then the page to open.

Invariant: every figure comes from the records; a folder that may not be written to is reported on all the same; the
last line is the report's path where one was written. scipy and the chart library are loaded for a verdict alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tandem.bench import summary
from tandem.bench.manifest import RunManifest
from tandem.bench.request_table import RequestTable, read_request_table
from tandem.bench.summary import RecordSummary
from tandem.bench.summary_table import format_lines
from tandem.cli.console import print_json
from tandem.errors import ExitCode, ExternalError

if TYPE_CHECKING:
    from tandem.judge.schema import Verdict
    from tandem.judge.verdict import JudgeOptions


def report_run(folder: Path, options: JudgeOptions | None, *, as_json: bool) -> ExitCode:
    """Compute and print all that a run's records say, and write summary.json, verdict.json and the report.

    Args:
        folder: what `tandem bench run --out` wrote.
        options: by which the run is judged; None prints the figures alone.
        as_json: print the verdict as JSON, or the summary where there is no verdict, instead of tables.

    Returns:
        VOID when a control failed; else DONE when every request that was planned is recorded and succeeded, STALE when
        some failed or are missing, EXTERNAL_FAILURE when one arm has a class at one concurrency in which none
        succeeded. A request that an interrupt cut is no failure of a run that went on to its end: it was asked again.

    Raises:
        InputError: a file is missing, or a line is not what it must be.
    """
    table = read_request_table(folder)
    run_summary = summary.summarize_table(table)
    try:
        summary.save_summary(folder, run_summary)
    except ExternalError as fault:
        print(f"warning: {fault}", file=sys.stderr)
    code, verdict, note = _compute_exit_code(run_summary, table.run), None, ""
    if options is not None:
        verdict, note = _judge_run(table, options, run_summary)
    if as_json:
        print_json(msgspec.to_builtins(verdict or run_summary))
    else:
        print(*format_lines(run_summary), sep="\n")
        if verdict:
            from tandem.report.terminal import render_lines  # noqa: PLC0415

            print("", *render_lines(verdict), sep="\n")
    if note:
        print(note, file=sys.stderr if as_json else sys.stdout)
    return ExitCode.VOID if verdict and verdict.controls.void else code


def _judge_run(table: RequestTable, options: JudgeOptions, run_summary: RecordSummary) -> tuple[Verdict | None, str]:
    """Judge and write, before anything is printed, whose reader may be gone; return the verdict and the last line."""
    from tandem.judge.verdict import explain_unjudged, judge_run, save_verdict  # noqa: PLC0415 - scipy

    reason = explain_unjudged(table.run)
    if reason is not None:
        return None, f"no verdict: {reason}"
    verdict = judge_run(table, options, run_summary.notes)
    try:
        save_verdict(table.folder, verdict)
        from tandem.report.page import write_report  # noqa: PLC0415 - the chart library

        return verdict, str(write_report(verdict, table, table.folder))
    except ExternalError as fault:
        print(f"warning: {fault}", file=sys.stderr)
        return verdict, ""


def _compute_exit_code(run_summary: RecordSummary, run_manifest: RunManifest) -> ExitCode:
    if any(arm_requests.requests and not arm_requests.succeeded for arm_requests in run_summary.requests):
        return ExitCode.EXTERNAL_FAILURE
    is_complete = run_manifest.ended is not None and run_manifest.ended.reason in {"done", "duration"}
    failure_count = sum(word.n for word in run_summary.errors if not (is_complete and word.word == "interrupted"))
    has_missing_records = run_manifest.plan.requests is not None and run_summary.records < run_manifest.plan.requests
    return ExitCode.STALE if failure_count or has_missing_records else ExitCode.DONE
