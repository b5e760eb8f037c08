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

from tandem.commands.bench_flags import (
    REPORT_CODES,
    add_compare_flags,
    add_flags,
    add_publish_flags,
    add_report_flags,
)
from tandem.commands.outcome import Exit, print_json
from tandem.commands.selection import Selection
from tandem.shell_command import quote_command

if TYPE_CHECKING:
    from tandem.bench.fault import BenchError
    from tandem.bench.run import Outcome
    from tandem.bench.run_size import RunSize
    from tandem.bench.settings import Settings
    from tandem.commands.publish import Publishing

DEFAULT_SUITES = ("real",)
LEAST_SOCKETS = 512  # an open loop has as many as its servers are slow
EXIT_CODES = (
    "exit codes: 0 every request counted; 1 some failed, every cell has data; 2 bad input; 3 an arm was unreachable, "
    "a cell has no data, the disk is full, or with --publish not all is published; 4 void: a control failed, nothing "
    "may be concluded; 130 interrupted"
)
COMPARE_CODES = "exit codes: 0 compared; 2 bad input; 4 one of the runs is void, nothing may be concluded"


def add_verbs(parser: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    """Declare the verbs and what each takes; `shared` has the options of every command."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    does = "measure OpenAI-compatible servers, side by side"
    add_flags(verbs.add_parser("run", help=does, description=does, epilog=EXIT_CODES, parents=[shared]))
    does = "judge a run from its records: every figure again, the verdict, and the report to open"
    add_report_flags(verbs.add_parser("report", help=does, description=does, epilog=REPORT_CODES, parents=[shared]))
    does = "print each figure beside what the servers themselves logged"
    truth = verbs.add_parser("truth", help=does, description=does, epilog=parser.epilog, parents=[shared])
    truth.add_argument("folder", type=Path, metavar="DIR", help="the folder that a run wrote")
    truth.add_argument(
        "--log", type=Path, nargs="+", required=True, metavar="FILE", help="logs of `tandem twin --log`, one a server"
    )
    does = "hold two runs beside each other, such as before and after an upgrade"
    add_compare_flags(verbs.add_parser("compare", help=does, description=does, epilog=COMPARE_CODES, parents=[shared]))
    does = "send a run's figures to CloudWatch and its records to S3, as far as they are not there"
    add_publish_flags(verbs.add_parser("publish", help=does, description=does, epilog=parser.epilog, parents=[shared]))


def bench(chosen: Selection, options: argparse.Namespace) -> Exit:
    """Run one verb.

    Args:
        chosen: the folders of declared files, for --env.
        options: `verb` and the verb's own.

    Raises:
        SpecError: a declared file is refused.
        KeyboardInterrupt: the run was interrupted; what it recorded is reported before.
    """
    from tandem.bench.fault import BenchError  # noqa: PLC0415 - the bench is loaded when it runs

    try:
        if options.verb == "truth":
            return _truth(options.folder, options.log, chosen)
        if options.verb == "publish":
            from tandem.commands.publish import publish  # noqa: PLC0415 - the rules of an environment

            return publish(chosen, options)
        if options.verb == "compare":
            from tandem.commands.bench_compare import compare  # noqa: PLC0415 - numpy, scipy

            return compare(options.before, options.after, margin=options.margin, as_json=chosen.as_json)
        return _report(options.folder, options, chosen) if options.verb == "report" else _run(chosen, options)
    except BenchError as fault:
        _tell(fault, as_json=chosen.as_json)
        return Exit(fault.code)


def _tell(fault: BenchError, *, as_json: bool) -> None:
    if as_json:
        said = {"problem": fault.problem, "where": fault.where, "change": fault.change}
        print_json({"fault": said, "exit_code": fault.code})
    from tandem.bench.shown import clean  # noqa: PLC0415 - the bench is loaded when it runs

    for line in str(fault).splitlines():
        print(f"error: {clean(line)}", file=sys.stderr)


def _report(folder: Path, options: argparse.Namespace | None, chosen: Selection) -> Exit:
    from tandem.commands.bench_report import report  # noqa: PLC0415 - numpy

    return report(folder, options, chosen.as_json)


def _truth(folder: Path, logs: Sequence[Path], chosen: Selection) -> Exit:
    from tandem.bench.beside import beside, lines  # noqa: PLC0415 - numpy

    found = beside(folder, logs)
    if chosen.as_json:
        print_json(asdict(found))
    else:
        print("\n".join(lines(found)))
    return Exit.DONE if found.rows else Exit.WORLD_FAILED


def _run(chosen: Selection, options: argparse.Namespace) -> Exit:
    import uvloop  # noqa: PLC0415 - this verb alone needs an event loop

    from tandem.bench.run import Run  # noqa: PLC0415 - aiohttp, numpy
    from tandem.commands.bench_resume_flags import with_recorded  # noqa: PLC0415 - the bench is loaded when it runs

    options = with_recorded(options)
    settings = _settings(chosen, options)
    folder = options.resume or options.out
    _room_for_sockets(len(settings.arms) * max((*(settings.concurrency or ()), LEAST_SOCKETS)))
    sent = _publishing(chosen, options, settings, folder)
    run = Run(
        settings=settings, folder=folder, resume=options.resume is not None, on_round=sent,
        check=sent.check if sent else None,
    )  # fmt: skip
    outcome = uvloop.run(run.run())
    unsent = sent.ended() if sent else Exit.DONE
    return max(_ended(outcome, folder, chosen), unsent)


def _publishing(chosen: Selection, options: argparse.Namespace, settings: Settings, folder: Path) -> Publishing | None:
    if options.publish is None:
        if options.simulated:
            from tandem.commands.bench_arms import refused  # noqa: PLC0415 - the bench is loaded when it runs

            raise refused("--simulated without --publish", "both, for simulated servers", "add --publish, or drop it")
        return None
    from tandem.commands.publish import publishing  # noqa: PLC0415 - the rules of an environment

    return publishing(chosen, options, settings, folder)


def _room_for_sockets(wanted: int) -> None:
    """Raise how many files this process may open to what the system allows it, where it needs more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * wanted and soft != resource.RLIM_INFINITY:
        most = 2 * wanted if hard == resource.RLIM_INFINITY else min(2 * wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _ended(outcome: Outcome, folder: Path, chosen: Selection) -> Exit:
    """Report on what there is, and say what ended the run.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    from tandem.bench.folder import RECORDS  # noqa: PLC0415 - the bench is loaded when it runs

    code = Exit.DONE
    if outcome.begun and (folder / RECORDS).exists() and not (outcome.fault and chosen.as_json):
        figures_alone = outcome.reason == "interrupted"  # who has interrupted waits for no verdict; `report` gives it
        code = _report(folder, argparse.Namespace(figures=True) if figures_alone else None, chosen)
    if outcome.reason == "interrupted":
        if outcome.begun:
            resume = quote_command("tandem", "bench", "run", "--resume", str(folder))
            print(f"interrupted; go on with: {resume}", file=sys.stderr)
        raise KeyboardInterrupt
    if outcome.fault is not None:
        raise outcome.fault
    return code


def _settings(chosen: Selection, options: argparse.Namespace) -> Settings:
    from tandem.bench.settings import Settings  # noqa: PLC0415 - the bench is loaded when it runs
    from tandem.bench.suites.suite import load, narrowed  # noqa: PLC0415
    from tandem.bench.wire import TimeOuts  # noqa: PLC0415
    from tandem.commands.bench_arms import begun, measured, placed  # noqa: PLC0415
    from tandem.commands.bench_resume_flags import flags_of  # noqa: PLC0415

    size, who = _choose_size(options), measured(chosen, options)
    names = dict.fromkeys(options.suite or size.select_names(who.suites) or DEFAULT_SUITES)
    suites = tuple(load(name, llmperf_source=options.llmperf_source) for name in names)
    _refuse_namesakes([suite.name for suite in suites])
    suites = narrowed(suites, options.classes) if options.classes else size.narrow_suites(suites)
    size = size.fit_files(suites)
    longest = max(prompt.max_tokens or suite.defaults.max_tokens for suite in suites for prompt in suite.prompts)
    limits = [limit for limit in (who.most_tokens, size.max_tokens) if limit is not None and limit < longest]
    before = begun(options.resume)
    controls = before.control_rounds if before else size.control_rounds
    return Settings(
        arms=placed(who.arms, options.placement, before),
        environment=who.environment,
        experiment=who.experiment,
        instance_type=who.instance_type,
        api_key=_key(options.api_key_env),
        suites=suites,
        schedule=options.schedule or who.schedule or "interleaved",
        seed=options.seed,
        api=options.api,
        thinking=None if options.thinking is None else options.thinking == "on",
        temperature=options.temperature,
        max_tokens=options.max_tokens or min(limits, default=None),
        concurrency=options.concurrency or (None if options.rate else size.concurrency),
        rate_per_s=options.rate,
        rounds=None if options.duration is not None else options.rounds or size.rounds,
        control_rounds=controls if options.control_rounds is None else options.control_rounds,
        repeats=options.repeats,
        prompts_per_class=options.prompts_per_class or size.prompts_per_class,
        mixed=options.mixed,
        duration_s=options.duration,
        time_outs=TimeOuts(**options.time_outs),
        warm_up=options.warm_up,
        wanted=options.ask,
        goodput=options.goodput,
        price_usd_per_hour=options.price,
        flags=flags_of(getattr(options, "words", ())),
    )


def _choose_size(options: argparse.Namespace) -> RunSize:
    """Return the size that the flags name.

    Raises:
        BenchError: two sizes, or fewer rounds than the verdict of a quick run needs.
    """
    from tandem.bench.run_size import DEFAULT, FULL, QUICK  # noqa: PLC0415 - the bench is loaded when it runs
    from tandem.bench.schedule import FEWEST_ROUNDS  # noqa: PLC0415
    from tandem.commands.bench_arms import refused  # noqa: PLC0415

    if options.quick and options.full:
        raise refused("--full beside --quick", "one size of a run", "drop one of them")
    if options.quick and options.rounds is not None and options.rounds < FEWEST_ROUNDS:
        raise refused(
            f"--rounds {options.rounds} beside --quick", f"at least {FEWEST_ROUNDS} rounds: fewer give no verdict",
            "drop --rounds, or drop --quick for figures alone",
        )  # fmt: skip
    return QUICK if options.quick else FULL if options.full else DEFAULT


def _refuse_namesakes(names: list[str]) -> None:
    """Refuse suites that records could not tell apart.

    Raises:
        BenchError: two files have one name.
    """
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        from tandem.bench.fault import BenchError  # noqa: PLC0415 - the bench is loaded when it runs

        raise BenchError(f"two suites are named {twice}", where="--suite", change="rename one of the files")


def _key(variable: str | None) -> str | None:
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
