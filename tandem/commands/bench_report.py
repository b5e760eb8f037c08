"""`tandem bench report DIR`: read the records again; figures, then the verdict, then the page to open.

Invariant: every figure comes from the records; a folder that may not be written to is reported on all the same; the
last line is the report's path where one was written. scipy and the chart library are loaded for a verdict alone.

Exit codes: 0 judged; 1 some requests failed, or are not recorded; 2 bad input; 3 an arm has a class in which nothing
succeeded; 4 void: a control failed, nothing may be concluded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tandem.bench import manifest, summary, table
from tandem.bench.fault import WorldError
from tandem.bench.manifest import Manifest
from tandem.bench.summary import Summary
from tandem.commands.outcome import Exit, print_json

if TYPE_CHECKING:
    from tandem.bench.judge.form import Verdict
    from tandem.bench.judge.verdict import Asked


def report(folder: Path, options: argparse.Namespace | None, as_json: bool) -> Exit:
    """Compute and print all that a run's records say, and write summary.json, verdict.json and the report.

    Args:
        folder: what `tandem bench run --out` wrote.
        options: of `tandem bench report`; None judges as the run was asked.
        as_json: print the verdict as JSON, or the summary where there is no verdict, instead of tables.

    Returns:
        VOID when a control failed; else DONE when every request that was planned is recorded and succeeded, STALE when
        some failed or are missing, WORLD_FAILED when one arm has a class at one concurrency in which none succeeded. A
        request that an interrupt cut is no failure of a run that went on to its end: there it was asked again.

    Raises:
        BenchError: a file is missing, or a line is not what it must be.
    """
    found = summary.summarize(folder)
    try:
        summary.save(folder, found)
    except WorldError as fault:
        print(f"warning: {fault}", file=sys.stderr)
    run = manifest.read(folder)
    code = _code(found, run)
    figures_alone = options is not None and options.figures
    if not as_json:
        table.show(found, sys.stdout)
    elif figures_alone:
        print_json(msgspec.to_builtins(found))
    return code if figures_alone else max(code, _judged(folder, options, found, run, as_json=as_json))


def _judged(folder: Path, options: argparse.Namespace | None, found: Summary, run: Manifest, *, as_json: bool) -> Exit:
    """Judge, print and write; whether it is void."""
    from tandem.bench.judge import terminal  # noqa: PLC0415 - scipy takes a second to load
    from tandem.bench.judge.observations import observe  # noqa: PLC0415
    from tandem.bench.judge.verdict import judge, save, unjudged  # noqa: PLC0415

    why = unjudged(run)
    if why is not None:
        if as_json:
            print_json(msgspec.to_builtins(found))
        print(f"no verdict: {why}", file=sys.stderr if as_json else sys.stdout)
        return Exit.DONE
    seen = observe(folder)
    verdict = judge(seen, _asked(options), found.notes)
    if as_json:
        print_json(msgspec.to_builtins(verdict))
    else:
        print("", *terminal.lines(verdict), sep="\n")
    try:
        save(folder, verdict)
        from tandem.bench.report import write  # noqa: PLC0415 - the chart library

        print(write(verdict, seen, folder).html, file=sys.stderr if as_json else sys.stdout)
    except WorldError as fault:
        print(f"warning: {fault}", file=sys.stderr)
    return Exit.VOID if _void(verdict) else Exit.DONE


def _asked(options: argparse.Namespace | None) -> Asked:
    from tandem.bench.judge.form import MARGIN  # noqa: PLC0415
    from tandem.bench.judge.verdict import Asked  # noqa: PLC0415 - scipy

    if options is None:
        return Asked()
    return Asked(
        margin=options.margin if options.margin is not None else MARGIN,
        usd_per_hour=options.price,
        tokenizer=options.tokenizer,
    )


def _void(verdict: Verdict) -> bool:
    return bool(verdict.controls.void)


def _code(found: Summary, run: Manifest) -> Exit:
    if any(asked.requests and not asked.succeeded for asked in found.requests):
        return Exit.WORLD_FAILED
    whole = run.ended is not None and run.ended.reason in {"done", "duration"}
    failed = sum(word.n for word in found.errors if not (whole and word.word == "interrupted"))
    missing = run.plan.requests is not None and found.records < run.plan.requests
    return Exit.STALE if failed or missing else Exit.DONE
