"""`tandem bench report DIR`: read the records again, write summary.json, print the table.

Invariant: every figure comes from the records; a folder that may not be written to is reported on all the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from tandem.bench import manifest, summary, table
from tandem.bench.fault import WorldError
from tandem.bench.manifest import Manifest
from tandem.bench.summary import Summary
from tandem.commands.outcome import Exit, print_json


def report(folder: Path, as_json: bool) -> Exit:
    """Recompute and print the summary of a run.

    Args:
        folder: what `tandem bench run --out` wrote.
        as_json: print the summary as JSON instead of the table.

    Returns:
        DONE when every recorded request succeeded, STALE when some failed, WORLD_FAILED when one arm has a class at
        one concurrency in which none succeeded. A request that an interrupt cut is no failure of a run that went on
        to its end: there it was asked again.

    Raises:
        BenchError: a file is missing, or a line is not what it must be.
    """
    found = summary.summarize(folder)
    try:
        summary.save(folder, found)
    except WorldError as fault:
        print(f"warning: {fault}", file=sys.stderr)
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        table.show(found, sys.stdout)
    return _code(found, manifest.read(folder))


def _code(found: Summary, run: Manifest) -> Exit:
    if any(asked.requests and not asked.succeeded for asked in found.requests):
        return Exit.WORLD_FAILED
    whole = run.ended is not None and run.ended.reason in {"done", "duration"}
    failed = sum(word.n for word in found.errors if not (whole and word.word == "interrupted"))
    return Exit.STALE if failed else Exit.DONE
