"""`tandem bench report DIR`: read the records, then print the verdict, a table and its limits.

Invariant: nothing is printed before all is computed and written, for the reader may be gone; the
last line is the report's path where one was written.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tandem.bench.figures.summary_csv import write_csv
from tandem.cli.console import count_columns, format_count, print_json
from tandem.errors import ExitCode
from tandem.report import run_report
from tandem.shell_command import quote_command

if TYPE_CHECKING:
    from tandem.judge.verdict import JudgeOptions


def report_run(
    folder: Path,
    options: JudgeOptions | None,
    *,
    as_json: bool,
    verbose: bool = False,
    csv_file: Path | None = None,
) -> ExitCode:
    """Print what a run's records say; `run_report` says what is written, and which code it gives.

    Args:
        folder: what `tandem bench run --out` wrote.
        options: by which the run is judged; None prints the figures alone.
        as_json: print the verdict as JSON, or the summary where there is no verdict, instead of
            tables.
        verbose: print the figures of each arm and what stands behind the verdict, too.
        csv_file: gets the figures as CSV.

    Raises:
        InputError: a file is missing, a line is not what it must be, or `csv_file` cannot be
            written.
    """
    report = run_report.report_run(folder, options)
    if csv_file is not None:
        write_csv(report.summary, csv_file)
    for fault in report.faults:
        print(f"warning: {fault}", file=sys.stderr)
    if as_json:
        document = report.verdict or report.knee or report.summary
        print_json(msgspec.to_builtins(document), report.exit_code)
    else:
        print(*report.format_lines(width=count_columns(), verbose=verbose), sep="\n")
        if report.verdict and not verbose:
            from tandem.judge.text_format import list_notes  # noqa: PLC0415

            notes = format_count(len(list_notes(report.verdict)), "note")
            command = quote_command("tandem", "bench", "report", str(folder), "--verbose")
            print(f"more ({notes}, controls, cost): {command}")
    if report.note:
        print(report.note, file=sys.stderr if as_json else sys.stdout)
    if report.arm_page:
        print(report.arm_page, file=sys.stderr if as_json else sys.stdout)
    return report.exit_code
