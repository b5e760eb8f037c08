"""`tandem bench run|report|truth|compare|publish`: measure servers, read again, hold against others, send to AWS.

Invariant: plan and progress go to standard error, the table or JSON to standard output; whatever ends a run, what it
recorded is kept and reported on. aiohttp, numpy and uvloop are loaded by these commands alone, and when they run.

Exit codes of `run`: 0 every request counted; 1 some failed, and every cell of every arm has data; 2 bad input; 3 an
arm could not be measured, or a cell has no request that succeeded, or the disk took no more, or with --publish not all
is published; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.cli.bench_flags import (
    REPORT_CODES,
    add_compare_flags,
    add_publish_flags,
    add_report_flags,
    add_run_flags,
)
from tandem.cli.outcome import print_json
from tandem.cli.selection import Selection
from tandem.errors import ExitCode, TandemError
from tandem.shell_command import quote_command
from tandem.spec.faults import SpecError

if TYPE_CHECKING:
    from tandem.bench.run import RunOutcome
    from tandem.bench.run_size import RunSize
    from tandem.bench.settings import RunSettings
    from tandem.cli.publish import RoundPublisher

DEFAULT_SUITES = ("real",)
MIN_SOCKETS = 512  # an open loop has as many as its servers are slow
EXIT_CODES = (
    "exit codes: 0 every request counted; 1 some failed, every cell has data; 2 bad input; 3 an arm was unreachable, "
    "a cell has no data, the disk is full, or with --publish not all is published; 4 void: a control failed, nothing "
    "may be concluded; 130 interrupted"
)
COMPARE_CODES = "exit codes: 0 compared; 2 bad input; 4 one of the runs is void, nothing may be concluded"


def add_verbs(parser: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    """Declare the verbs and what each takes; `shared` has the options of every command."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    description = "measure OpenAI-compatible servers, side by side"
    add_run_flags(
        verbs.add_parser("run", help=description, description=description, epilog=EXIT_CODES, parents=[shared])
    )
    description = "judge a run from its records: every figure again, the verdict, and the report to open"
    add_report_flags(
        verbs.add_parser("report", help=description, description=description, epilog=REPORT_CODES, parents=[shared])
    )
    description = "print each figure beside what the servers themselves logged"
    truth = verbs.add_parser("truth", help=description, description=description, epilog=parser.epilog, parents=[shared])
    truth.add_argument("folder", type=Path, metavar="DIR", help="the folder that a run wrote")
    truth.add_argument(
        "--log",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        help="logs of `tandem simulate --log`, one each",
    )
    description = "rewrite the records of an earlier Tandem in the form that this one reads"
    convert = verbs.add_parser(
        "convert", help=description, description=description, epilog=parser.epilog, parents=[shared]
    )
    convert.add_argument("folder", type=Path, metavar="RUN", help="the folder that a run wrote")
    description = "hold two runs beside each other, such as before and after an upgrade"
    add_compare_flags(
        verbs.add_parser("compare", help=description, description=description, epilog=COMPARE_CODES, parents=[shared])
    )
    description = "send a run's figures to CloudWatch and its records to S3, as far as they are not there"
    add_publish_flags(
        verbs.add_parser("publish", help=description, description=description, epilog=parser.epilog, parents=[shared])
    )


def bench(selection: Selection, options: argparse.Namespace) -> ExitCode:
    """Run one verb.

    Args:
        selection: the folders of declared files, for --env.
        options: `verb` and the verb's own.

    Raises:
        SpecError: a declared file is refused.
        KeyboardInterrupt: the run was interrupted; what it recorded is reported before.
    """
    try:
        if options.verb == "truth":
            return _verify_run(options.folder, options.log, selection)
        if options.verb == "convert":
            return _convert_run(options.folder, selection)
        if options.verb == "publish":
            from tandem.cli.publish import publish_folder  # noqa: PLC0415 - the rules of an environment

            return publish_folder(selection, options)
        if options.verb == "compare":
            from tandem.cli.bench_compare import print_comparison  # noqa: PLC0415 - numpy, scipy

            return print_comparison(options.before, options.after, margin=options.margin, as_json=selection.as_json)
        return (
            _report_run(options.folder, options, selection)
            if options.verb == "report"
            else _measure_servers(selection, options)
        )
    except SpecError:
        raise  # told by the program, with every fault of the file
    except TandemError as fault:
        _print_fault(fault, as_json=selection.as_json)
        return ExitCode(fault.exit_code)


def _print_fault(fault: TandemError, *, as_json: bool) -> None:
    if as_json:
        print_json({"error": fault.as_dict(), "exit_code": int(fault.exit_code)})
    from tandem.bench.terminal_text import clean_text  # noqa: PLC0415 - the bench is loaded when it runs

    for line in str(fault).splitlines():
        print(f"error: {clean_text(line)}", file=sys.stderr)


def _report_run(folder: Path, options: argparse.Namespace | None, selection: Selection) -> ExitCode:
    from tandem.cli.bench_report import report_run  # noqa: PLC0415 - numpy

    return report_run(folder, options, selection.as_json)


def _verify_run(folder: Path, logs: Sequence[Path], selection: Selection) -> ExitCode:
    from tandem.bench.ground_truth import compare_ground_truth, format_lines  # noqa: PLC0415 - numpy

    comparison = compare_ground_truth(folder, logs)
    if selection.as_json:
        print_json(asdict(comparison))
    else:
        print("\n".join(format_lines(comparison)))
    return ExitCode.DONE if comparison.rows else ExitCode.EXTERNAL_FAILURE


def _convert_run(folder: Path, selection: Selection) -> ExitCode:
    from tandem.bench.convert import convert_run  # noqa: PLC0415 - the bench is loaded when it runs

    names = [path.name for path in convert_run(folder)]
    if selection.as_json:
        print_json({"folder": str(folder), "files": names, "exit_code": int(ExitCode.DONE)})
    elif names:
        print(f"converted {' and '.join(names)} in {folder}; the old files are kept as *-schema1.jsonl")
    else:
        print(f"the records in {folder} need no conversion")
    return ExitCode.DONE


def _measure_servers(selection: Selection, options: argparse.Namespace) -> ExitCode:
    import uvloop  # noqa: PLC0415 - this verb alone needs an event loop

    from tandem.bench.run import MeasurementRun  # noqa: PLC0415 - aiohttp, numpy
    from tandem.cli.bench_resume_flags import restore_flags  # noqa: PLC0415 - the bench is loaded when it runs

    options = restore_flags(options)
    settings = _build_settings(selection, options)
    folder = options.resume or options.out
    _raise_file_limit(len(settings.arms) * max((*(settings.concurrency or ()), MIN_SOCKETS)))
    publisher = _build_publisher(selection, options, settings, folder)
    run = MeasurementRun(
        settings=settings, folder=folder, resume=options.resume is not None, on_round=publisher,
        check=publisher.check if publisher else None,
    )  # fmt: skip
    outcome = uvloop.run(run.run())
    publish_code = publisher.finish() if publisher else ExitCode.DONE
    return max(_report_outcome(outcome, folder, selection), publish_code)


def _build_publisher(
    selection: Selection, options: argparse.Namespace, settings: RunSettings, folder: Path
) -> RoundPublisher | None:
    if options.publish is None:
        if options.simulated:
            from tandem.cli.bench_arms import build_flag_error  # noqa: PLC0415 - the bench is loaded when it runs

            raise build_flag_error(
                "--simulated without --publish", "both, for simulated servers", "add --publish, or drop it"
            )
        return None
    from tandem.cli.publish import build_publisher  # noqa: PLC0415 - the rules of an environment

    return build_publisher(selection, options, settings, folder)


def _raise_file_limit(socket_count: int) -> None:
    """Raise how many files this process may open to what the system allows it, where it needs more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * socket_count and soft != resource.RLIM_INFINITY:
        limit = 2 * socket_count if hard == resource.RLIM_INFINITY else min(2 * socket_count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _report_outcome(outcome: RunOutcome, folder: Path, selection: Selection) -> ExitCode:
    """Report on what there is, and say what ended the run.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    from tandem.bench.folder import RECORDS_FILE  # noqa: PLC0415 - the bench is loaded when it runs

    code = ExitCode.DONE
    if outcome.has_folder and (folder / RECORDS_FILE).exists() and not (outcome.fault and selection.as_json):
        figures_alone = outcome.reason == "interrupted"  # who has interrupted waits for no verdict; `report` gives it
        code = _report_run(folder, argparse.Namespace(figures=True) if figures_alone else None, selection)
    if outcome.reason == "interrupted":
        if outcome.has_folder:
            resume = quote_command("tandem", "bench", "run", "--resume", str(folder))
            print(f"interrupted; go on with: {resume}", file=sys.stderr)
        raise KeyboardInterrupt
    if outcome.fault is not None:
        raise outcome.fault
    return code


def _build_settings(selection: Selection, options: argparse.Namespace) -> RunSettings:
    from tandem.bench.manifest import Timeouts  # noqa: PLC0415
    from tandem.bench.settings import RunSettings  # noqa: PLC0415 - the bench is loaded when it runs
    from tandem.bench.suites.suite import load_suite, narrow_suites  # noqa: PLC0415
    from tandem.cli.bench_arms import assign_placements, read_previous_run, select_arms  # noqa: PLC0415
    from tandem.cli.bench_resume_flags import parse_flags  # noqa: PLC0415

    size, run_arms, previous_run = (
        _choose_size(options),
        select_arms(selection, options),
        read_previous_run(options.resume),
    )
    size = size.keep_manifest_size(previous_run) if previous_run else size
    names = dict.fromkeys(options.suite or size.select_names(run_arms.suites) or DEFAULT_SUITES)
    suites = tuple(load_suite(name, llmperf_source=options.llmperf_source) for name in names)
    _refuse_duplicate_names([suite.name for suite in suites])
    suites = narrow_suites(suites, options.classes) if options.classes else size.narrow_suites(suites)
    size = size.fit_files(suites)
    longest = max(prompt.max_tokens or suite.defaults.max_tokens for suite in suites for prompt in suite.prompts)
    limits = [limit for limit in (run_arms.most_tokens, size.max_tokens) if limit is not None and limit < longest]
    return RunSettings(
        arms=assign_placements(run_arms.arms, options.placement, previous_run),
        environment=run_arms.environment,
        experiment=run_arms.experiment,
        instance_type=run_arms.instance_type,
        api_key=_read_api_key(options.api_key_env),
        suites=suites,
        schedule=options.schedule or run_arms.schedule or "interleaved",
        seed=options.seed,
        api=options.api,
        thinking=None if options.thinking is None else options.thinking == "on",
        temperature=options.temperature,
        max_tokens=options.max_tokens or min(limits, default=None),
        concurrency=options.concurrency or (None if options.rate else size.concurrency),
        rate_per_s=options.rate,
        rounds=None if options.duration is not None else options.rounds or size.rounds,
        control_rounds=size.control_rounds if options.control_rounds is None else options.control_rounds,
        repeats=options.repeats,
        prompts_per_class=options.prompts_per_class or size.prompts_per_class,
        mixes_classes=options.mixed,
        duration_s=options.duration,
        timeouts=Timeouts(**options.time_outs),
        warm_up=options.warm_up,
        extras=options.ask,
        goodput=options.goodput,
        price_usd_per_hour=options.price,
        flags=parse_flags(getattr(options, "words", ())),
    )


def _choose_size(options: argparse.Namespace) -> RunSize:
    """Return the size that the flags name.

    Raises:
        BenchError: two sizes, or fewer rounds than the verdict of a quick run needs.
    """
    from tandem.bench.run_size import DEFAULT_SIZE, FULL_SIZE, QUICK_SIZE  # noqa: PLC0415 - the bench is loaded when it runs
    from tandem.bench.schedule import FEWEST_ROUNDS  # noqa: PLC0415
    from tandem.cli.bench_arms import build_flag_error  # noqa: PLC0415

    if options.quick and options.full:
        raise build_flag_error("--full beside --quick", "one size of a run", "drop one of them")
    if options.quick and options.rounds is not None and options.rounds < FEWEST_ROUNDS:
        raise build_flag_error(
            f"--rounds {options.rounds} beside --quick", f"at least {FEWEST_ROUNDS} rounds: fewer give no verdict",
            "drop --rounds, or drop --quick for figures alone",
        )  # fmt: skip
    return QUICK_SIZE if options.quick else FULL_SIZE if options.full else DEFAULT_SIZE


def _refuse_duplicate_names(names: list[str]) -> None:
    """Refuse suites that records could not tell apart.

    Raises:
        BenchError: two files have one name.
    """
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        from tandem.bench.fault import BenchError  # noqa: PLC0415 - the bench is loaded when it runs

        raise BenchError(f"two suites are named {duplicate}", where="--suite", change="rename one of the files")


def _read_api_key(variable: str | None) -> str | None:
    """Return the servers' API key.

    Raises:
        BenchError: the variable is not set.
    """
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        from tandem.bench.fault import BenchError  # noqa: PLC0415 - the bench is loaded when it runs

        raise BenchError(f"the variable {variable} is not set", where="--api-key-env",
                         change=quote_command("export", f"{variable}=KEY"))  # fmt: skip
    return key
