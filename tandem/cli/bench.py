"""`tandem bench`: measure servers, read a run again, verify, compare and publish it.

Invariant: plan and progress go to standard error, the table or JSON to standard output; whatever
ends a run, what it recorded is kept and reported on. aiohttp, numpy and uvloop are loaded by these
commands alone, and when they run.

Exit codes of `run`: 0 every request counted; 1 some failed, and every cell of every arm has data; 2
bad input; 3 an arm could not be measured, or a cell has no request that succeeded, or the disk took
no more, or with --publish not all is published; 130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from tandem.cli.bench_flags import NO_FLAGS, Headers, KeyVariables, RunFlags, restore_flags
from tandem.cli.console import count_columns, print_result
from tandem.cli.flags import Price, RunFolder, Share, require_range
from tandem.cli.selection import DEFAULTS, Selection
from tandem.errors import ExitCode
from tandem.shell_command import quote_command

if TYPE_CHECKING:
    from tandem.bench.load.run import RunOutcome

RUN_CODES = (
    "exit codes: 0 every request succeeded; 1 some failed, every cell has data; 2 bad input; 3 an"
    " arm was unreachable, a cell has no data, the disk is full, or with --publish something is"
    " not published; 4 void: a control failed; 130 interrupted"
)
REPORT_CODES = (
    "exit codes: 0 judged; 1 some requests failed or were not recorded; 2 bad input; 3 an arm has a"
    " class in which no request succeeded; 4 void: a control failed"
)
PROBE_CODES = (
    "exit codes: 0 it can be measured; 2 bad input, or it refuses what was asked for; 3 nothing"
    " answers, it is not ready, or it dies of a field"
)
COMPARE_CODES = "exit codes: 0 compared; 2 bad input; 4 one of the runs is void"

app = App(name="bench")
app.command(
    "tandem.cli.bench_probe:probe",
    name="probe",
    help="Say what a server is, takes and offers, before a run.",
    help_epilogue=PROBE_CODES,
    sort_key=1,
)
app.command(
    "tandem.cli.publish:publish",
    name="publish",
    help="Send figures to CloudWatch and records to S3; skip what is there.",
)


@app.command(name="run", help_epilogue=RUN_CODES, config=restore_flags, sort_key=0)
def measure(flags: RunFlags = NO_FLAGS, *, selection: Selection = DEFAULTS) -> ExitCode:
    """Measure OpenAI-compatible servers, side by side.

    Raises:
        TandemError: flags contradict each other, an arm cannot be measured, or the disk takes no
            more.
        KeyboardInterrupt: the run was interrupted; what it recorded is reported before.
    """
    from tandem.bench.load.run import MeasurementRun  # noqa: PLC0415 - the same
    from tandem.bench.measurement import run_until_end  # noqa: PLC0415 - aiohttp, numpy, uvloop
    from tandem.cli.bench_settings import build_flag_error, build_settings  # noqa: PLC0415

    settings = build_settings(selection, flags)
    folder = flags.resume or flags.out
    assert folder is not None, "the command line refuses a run without a folder"
    publisher = None
    if flags.publish is not None:
        from tandem.cli.publish import build_publisher  # noqa: PLC0415 - the rules of an environment

        publisher = build_publisher(selection, flags, settings.manifest, folder)
    elif flags.simulated:
        change = "add --publish, or drop it"
        raise build_flag_error(
            "--simulated without --publish", "both, for simulated servers", change
        )
    run = MeasurementRun(
        settings=settings,
        folder=folder,
        resume=flags.resume is not None,
        on_round=publisher,
        check=publisher.check if publisher else None,
    )
    outcome = run_until_end(run)
    publish_code = publisher.finish() if publisher else ExitCode.DONE
    return max(_report_outcome(outcome, folder, selection), publish_code)


@app.command(help_epilogue=REPORT_CODES)
def report(
    folder: RunFolder,
    /,
    *,
    margin: Share | None = None,
    price: Price | None = None,
    tokenizer: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    figures: bool = False,
    csv: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    verbose: bool = False,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Compute figures and verdict of a run again, and write its report.

    Args:
        folder: folder of the run
        margin: equivalence margin; smaller differences are `same` (default: 0.05)
        price: price of the hardware (default: as recorded)
        tokenizer: the target's tokenizer.json, for servers that send no token ids
        figures: print figures only, no verdict
        csv: also write p50, p90 and p99 of each arm, class and load to FILE
        verbose: also print controls, outputs, acceptance, cost, notes and each arm's figures
    """
    from tandem.cli.bench_report import report_run  # noqa: PLC0415 - numpy
    from tandem.judge.schema import MARGIN  # noqa: PLC0415
    from tandem.judge.verdict import JudgeOptions  # noqa: PLC0415 - scipy

    options = JudgeOptions(
        margin=MARGIN if margin is None else margin, usd_per_hour=price, tokenizer=tokenizer
    )
    return report_run(
        folder,
        None if figures else options,
        as_json=selection.as_json,
        verbose=verbose,
        csv_file=csv,
    )


@app.command(help_epilogue=COMPARE_CODES)
def compare(
    before: RunFolder,
    after: RunFolder,
    /,
    *later: RunFolder,
    margin: Share | None = None,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Compare two runs, or each run of a series with its first.

    Args:
        before: folder of the earlier run
        after: folder of the later run
        later: folders of still later runs; shows acceptance over time
        margin: equivalence margin; smaller differences are `same` (default: 0.05)
    """
    import msgspec  # noqa: PLC0415 - loaded when a run is read

    from tandem.judge.compare.comparison import compare_series  # noqa: PLC0415 - numpy, scipy
    from tandem.judge.schema import MARGIN  # noqa: PLC0415
    from tandem.report.comparison_table import render_lines, render_series  # noqa: PLC0415

    series = compare_series((before, after, *later), margin=MARGIN if margin is None else margin)
    comparison = series.comparisons[0]
    width = count_columns()
    is_void = any(entry.before.void or entry.after.void for entry in series.comparisons)
    code = ExitCode.VOID if is_void else ExitCode.DONE
    lines = render_series(series, width=width) if later else render_lines(comparison, width=width)
    return print_result(
        msgspec.to_builtins(series if later else comparison),
        lines,
        as_json=selection.as_json,
        code=code,
    )


@app.command
def quality(
    folder: RunFolder,
    /,
    *,
    items: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    lm_eval: Annotated[tuple[str, ...], Parameter(metavar="ARM=DIR", consume_multiple=1)] = (),
    chance: Annotated[float, Parameter(metavar="SHARE", validator=require_range(0, 0.99))] = 0,
    group: Annotated[str | None, Parameter(metavar="FIELD")] = None,
    api_key_env: KeyVariables = (),
    header: Headers = (),
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Compare the quality of a run's servers on tasks with known answers.

    Args:
        folder: folder of the run; its servers must still be up
        items: JSON lines with item, prompt and answer (default: 400 sums)
        lm_eval: send no request; read the samples that lm-eval wrote for each arm
        chance: share of items that guessing gets right
        group: field of lm-eval's documents that names items of one group, such as a passage
            (default: group)
        api_key_env: environment variable with the API key; NAME=VAR for one arm
        header: HTTP header of every request, such as api-version:2; env:VAR reads V from the
            environment
    """
    from tandem.bench.records.quality_rows import write_quality  # noqa: PLC0415 - loaded when it is needed
    from tandem.cli.task_answers import ask_task, read_samples  # noqa: PLC0415 - aiohttp

    if lm_eval:
        rows = read_samples(folder, lm_eval, chance, group)
    else:
        rows = ask_task(folder, items, chance, group, keys=api_key_env, headers=header)
    write_quality(folder, rows)
    tasks: dict[str, dict[str, dict[str, int]]] = {}
    for row in rows:
        count = tasks.setdefault(row.task, {}).setdefault(row.arm, {"right": 0, "answered": 0})
        count["right"] += row.right
        count["answered"] += 1
    lines = []
    for task, arms in tasks.items():
        for arm, count in arms.items():
            lines.append(f"{task}: {arm} {count['right']} of {count['answered']} right")
    lines.append(f"next: {quote_command('tandem', 'bench', 'report', str(folder))}")
    return print_result({"tasks": tasks}, lines, as_json=selection.as_json)


@app.command
def verify(
    folder: RunFolder,
    /,
    *,
    log: Annotated[tuple[Path, ...], Parameter(metavar="FILE", consume_multiple=1)],
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Check each figure against the logs of the simulated servers.

    Args:
        folder: folder of the run
        log: logs of `tandem simulate --log`, one for each server
    """
    import msgspec  # noqa: PLC0415 - loaded when a run is read

    from tandem.bench.figures.ground_truth import compare_ground_truth, format_lines  # noqa: PLC0415 - numpy

    comparison = compare_ground_truth(folder, log)
    document = msgspec.json.decode(msgspec.json.encode(comparison))  # null for NaN
    code = ExitCode.DONE if comparison.rows else ExitCode.EXTERNAL_FAILURE
    return print_result(
        document,
        format_lines(comparison, width=count_columns()),
        as_json=selection.as_json,
        code=code,
    )


def _report_outcome(outcome: RunOutcome, folder: Path, selection: Selection) -> ExitCode:
    """Report on what there is, and say what ended the run.

    Raises:
        TandemError: a fault ended it.
        KeyboardInterrupt: it was interrupted.
    """
    from tandem.bench.records.folder import RECORDS_FILE  # noqa: PLC0415 - the bench is loaded when it runs
    from tandem.bench.records.manifest import FILE  # noqa: PLC0415
    from tandem.cli.bench_report import report_run  # noqa: PLC0415 - numpy
    from tandem.judge.verdict import JudgeOptions  # noqa: PLC0415 - scipy

    code = ExitCode.DONE
    is_interrupted = outcome.reason == "interrupted"
    if (folder / RECORDS_FILE).exists() and not (outcome.fault and selection.as_json):
        # who has interrupted waits for no verdict; `report` gives it
        code = report_run(
            folder, None if is_interrupted else JudgeOptions(), as_json=selection.as_json
        )
    if is_interrupted and (folder / FILE).exists():
        resume = quote_command("tandem", "bench", "run", "--resume", str(folder))
        print(f"interrupted; go on with: {resume}", file=sys.stderr)
    if is_interrupted:
        raise KeyboardInterrupt
    if outcome.fault is not None:
        raise outcome.fault
    return code
