"""`tandem bench report DIR`: read the records again; figures, then the verdict, then the page to open.

Invariant: nothing is printed before all is computed and written, for the reader may be gone; the last line is the
report's path where one was written.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tandem.cli.console import print_json
from tandem.errors import ExitCode
from tandem.report import run_report

if TYPE_CHECKING:
    from tandem.judge.verdict import JudgeOptions


def report_run(folder: Path, options: JudgeOptions | None, *, as_json: bool) -> ExitCode:
    """Print all that a run's records say; `run_report` says what is written, and which code it gives.

    Args:
        folder: what `tandem bench run --out` wrote.
        options: by which the run is judged; None prints the figures alone.
        as_json: print the verdict as JSON, or the summary where there is no verdict, instead of tables.

    Raises:
        InputError: a file is missing, or a line is not what it must be.
    """
    report = run_report.report_run(folder, options)
    for fault in report.faults:
        print(f"warning: {fault}", file=sys.stderr)
    if as_json:
        print_json(msgspec.to_builtins(report.verdict or report.summary))
    else:
        print(*report.format_lines(), sep="\n")
    if report.note:
        print(report.note, file=sys.stderr if as_json else sys.stdout)
    return report.exit_code
