"""`tandem bench compare DIR_A DIR_B`: two runs beside each other, the earlier first.

Invariant: the comparison goes to standard output whatever it says; both folders are only read.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tandem.bench.compare.lines import lines
from tandem.bench.compare.runs import compare as compared
from tandem.bench.judge.form import MARGIN
from tandem.commands.outcome import Exit, print_json


def compare(before: Path, after: Path, *, margin: float | None, as_json: bool) -> Exit:
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
    found = compared(before, after, margin=MARGIN if margin is None else margin)
    code = Exit.VOID if found.before.void or found.after.void else Exit.DONE
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        print("\n".join(lines(found)))
    return code
