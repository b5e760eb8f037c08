"""`tandem bench compare DIR_A DIR_B`: two runs beside each other, the earlier first.

Invariant: the comparison goes to standard output whatever it says; both folders are only read.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tandem.cli.outcome import print_json
from tandem.errors import ExitCode
from tandem.judge.compare.comparison import compare_runs as compared
from tandem.judge.schema import MARGIN
from tandem.report.comparison_table import render_lines


def print_comparison(before: Path, after: Path, *, margin: float | None, as_json: bool) -> ExitCode:
    """Print what changed from one run to another.

    Args:
        before, after: what `tandem bench run --out` wrote.
        margin: a difference within it is `same`; None is the report's own.
        as_json: print one document instead of the table.

    Returns:
        DONE when they were compared, VOID when a control of either failed, so that nothing may be concluded.

    Raises:
        BenchError: a folder is no run, or the two cannot be compared.
    """
    comparison = compared(before, after, margin=MARGIN if margin is None else margin)
    code = ExitCode.VOID if comparison.before.void or comparison.after.void else ExitCode.DONE
    if as_json:
        print_json(msgspec.to_builtins(comparison))
    else:
        print("\n".join(render_lines(comparison)))
    return code
