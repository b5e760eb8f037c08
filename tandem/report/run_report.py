"""Results of a run's records, computed at once, for callers to print or store.

Invariant: every figure comes from the records; a run in a read-only folder is reported too. scipy
and the chart library are loaded only for a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.bench.figures import summary
from tandem.bench.figures.request_table import RequestTable, read_request_table
from tandem.bench.figures.summary import RecordSummary
from tandem.bench.figures.summary_table import format_lines
from tandem.bench.records.manifest import RunManifest
from tandem.bench.records.terminal_table import WIDTH
from tandem.errors import ExitCode, ExternalError
from tandem.post.schema import ClaimAnswers, read_answers

if TYPE_CHECKING:
    from tandem.judge.knee import KneeFinding
    from tandem.judge.schema import Verdict
    from tandem.judge.verdict import JudgeOptions

    StoreClaims = Callable[[RequestTable, Verdict], None]


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """Results of a run's records.

    Args:
        summary: every figure.
        verdict: None if none was requested, or the run has none.
        knee: of a run that searched one, if a verdict was requested; None of other runs.
        claims: the answers to the post's claims; None where the run was asked none.
        note: the page's path, or why there is no verdict; empty for neither.
        arm_page: path of the page of a run of one server; empty for none.
        faults: of files that could not be written.
        exit_code: as in `report_run`.
    """

    summary: RecordSummary
    verdict: Verdict | None
    claims: ClaimAnswers | None
    note: str
    arm_page: str
    faults: tuple[ExternalError, ...]
    exit_code: ExitCode
    knee: KneeFinding | None = None

    def format_lines(self, *, width: int = WIDTH, verbose: bool = False) -> Iterator[str]:
        """Yield the verdict, or the figures if there is none; if verbose, all of it.

        Args:
            width: of a line, in columns.
            verbose: whether to yield the figures and the details of the verdict too.
        """
        if self.knee:
            from tandem.report.knee_text import render_knee_lines  # noqa: PLC0415 - scipy

            yield from render_knee_lines(
                self.knee,
                self.summary.notes,
                is_simulated=self.summary.simulated is True,
                width=width,
            )
        if verbose or not (self.verdict or self.knee):
            yield from format_lines(self.summary, width=width)
        if self.verdict:
            from tandem.report.terminal import render_lines  # noqa: PLC0415

            if verbose:
                yield ""
            yield from render_lines(self.verdict, width=width, verbose=verbose)
        if verbose and self.claims:
            from tandem.report.claims import render_claims  # noqa: PLC0415

            yield ""
            yield from render_claims(self.claims, width=width)


def report_run(
    folder: Path, options: JudgeOptions | None, store_claims: StoreClaims | None = None
) -> RunReport:
    """Compute the results of a run's records, and write summary.json, verdict.json and the report.

    The exit code is VOID if a control failed; else EXTERNAL_FAILURE if none of an arm's requests of
    a class at one concurrency succeeded; else STALE if some planned requests failed or are missing;
    else DONE. A request that an interrupt cut is no failure if the run later reached its end: the
    request was repeated.

    Args:
        folder: from `tandem bench run --out`.
        options: for the verdict; None for the figures only.
        store_claims: writes claims.json of the verdict; None leaves it as it is, if it is there.

    Raises:
        InputError: a file is missing, or a line is malformed.
    """
    table = read_request_table(folder)
    faults = []
    run_summary = summary.summarize_table(table)
    try:
        summary.save_summary(folder, run_summary)
    except ExternalError as fault:
        faults.append(fault)
    verdict = None
    knee = None
    claims = None
    note = ""
    arm_page = ""
    if options is not None and table.run.goodput_share is not None:
        from tandem.judge.knee import judge_knee  # noqa: PLC0415 - scipy

        knee = judge_knee(table)
        note = _save_knee(folder, knee, table.run, run_summary.notes, faults)
    elif options is not None:
        from tandem.judge.verdict import explain_unjudged, judge_run  # noqa: PLC0415 - scipy

        reason = explain_unjudged(table.run)
        if reason:
            note = f"no verdict: {reason}"
            arm_page = _save_arm_report(table, options, run_summary, faults)
        else:
            verdict = judge_run(table, options, run_summary)
            if store_claims:
                store_claims(table, verdict)
            claims = read_answers(folder)
            note = _save_results(table, verdict, claims, faults)

    code = _compute_exit_code(run_summary, table.run)
    return RunReport(
        summary=run_summary,
        verdict=verdict,
        claims=claims,
        note=note,
        arm_page=arm_page,
        faults=tuple(faults),
        exit_code=ExitCode.VOID if verdict and verdict.controls.void else code,
        knee=knee,
    )


def _save_results(
    table: RequestTable,
    verdict: Verdict,
    claims: ClaimAnswers | None,
    faults: list[ExternalError],
) -> str:
    """Write the verdict and the page; return the page's path, or add what prevented it."""
    from tandem.judge.verdict import save_verdict  # noqa: PLC0415 - scipy

    try:
        save_verdict(table.folder, verdict)
        from tandem.report.page import write_report  # noqa: PLC0415 - the chart library

        return str(write_report(verdict, table, table.folder, claims))
    except ExternalError as fault:
        faults.append(fault)
        return ""


def _save_knee(
    folder: Path,
    knee: KneeFinding,
    run: RunManifest,
    notes: Sequence[str],
    faults: list[ExternalError],
) -> str:
    """Write the knee and its page; return the page's path, or add what prevented it."""
    from tandem.judge.knee import save_knee  # noqa: PLC0415 - scipy

    try:
        save_knee(folder, knee)
        from tandem.report.knee_page import write_knee_report  # noqa: PLC0415 - the chart library

        return str(write_knee_report(knee, run, notes, folder))
    except ExternalError as fault:
        faults.append(fault)
        return ""


def _save_arm_report(
    table: RequestTable,
    options: JudgeOptions,
    run_summary: RecordSummary,
    faults: list[ExternalError],
) -> str:
    """Write the page of a run of one server; return its path, or add what prevented it."""
    if table.run.generator != "tandem" or len(table.run.arms) != 1:
        return ""
    from tandem.judge.verdict import describe_arm  # noqa: PLC0415 - scipy
    from tandem.report.arm_page import write_arm_report  # noqa: PLC0415 - the chart library

    figures = describe_arm(table, options, run_summary)
    try:
        return str(write_arm_report(figures, run_summary, table))
    except ExternalError as fault:
        faults.append(fault)
        return ""


def _compute_exit_code(run_summary: RecordSummary, run_manifest: RunManifest) -> ExitCode:
    if any(
        arm_requests.requests and not arm_requests.succeeded
        for arm_requests in run_summary.requests
    ):
        return ExitCode.EXTERNAL_FAILURE
    is_complete = run_manifest.ended is not None and run_manifest.ended.reason in {
        "done",
        "duration",
    }
    failure_count = sum(
        word.n for word in run_summary.errors if not (is_complete and word.word == "interrupted")
    )
    if run_manifest.goodput_share is not None:  # a failed request is an answer: no limit was kept
        return ExitCode.DONE if is_complete else ExitCode.STALE
    has_missing_records = (
        run_manifest.plan.requests is not None and run_summary.records < run_manifest.plan.requests
    )
    return ExitCode.STALE if failure_count or has_missing_records else ExitCode.DONE
