"""`python -m tandem.run serve | measure | judge`: what the pods of a run start.

Invariant: no traceback for a foreseeable fault; the last line of a failed process says what to do; what a Job is told
stands in its variable TANDEM_TASK and is refused at the border. A Job that is told to stop ends with 3.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tandem.artifacts.driver.log import log_event
from tandem.errors import INTERRUPT_EXIT_CODE, ExitCode, TandemError
from tandem.run.task_settings import read_task

ABOUT = "the runner of an environment, and the Jobs that it makes: measure one round, judge a run"
EPILOG = "exit codes: 0 done; 2 bad input; 3 an external service failed, or told to stop"
WORK_FOLDER = Path("/work/run")  # on the pod's own disk (charts/runner.py)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _build_parser().parse_args(argv)
    if "AWS_REGION" in os.environ:  # what pods are given; boto3 itself reads the other name only
        os.environ.setdefault("AWS_DEFAULT_REGION", os.environ["AWS_REGION"])
    try:
        return _run_command(options)
    except TandemError as error:
        log_event(error.problem, level="error", where=error.where, change=error.change, exit_code=error.exit_code)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPT_EXIT_CODE


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tandem.run", description=ABOUT, epilog=EPILOG)
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    serve = subparsers.add_parser("serve", help="take requests from the bucket and run them", epilog=EPILOG)
    serve.add_argument("--environment", required=True, help="name")
    serve.add_argument("--specs", type=Path, required=True, help="folder of environments/ and experiments/")
    for name, summary in (("measure", "measure one round of a run"), ("judge", "judge a run")):
        job = subparsers.add_parser(name, help=f"{summary}, as TANDEM_TASK says", epilog=EPILOG)
        job.add_argument("--folder", type=Path, default=WORK_FOLDER, help="its own: what it holds is thrown away")
    return parser


def _run_command(options: argparse.Namespace) -> int:
    """Import what a command needs, and run it."""
    if options.command == "serve":
        from tandem.run.runner import serve_requests  # noqa: PLC0415 - it hears SIGTERM by itself

        return int(serve_requests(options.environment, options.specs))
    task = read_task()
    if options.command == "measure":
        from tandem.run.measure_job import measure_round  # noqa: PLC0415 - aiohttp, numpy

        return measure_round(task, options.folder)
    from tandem.run.judge_job import judge_run  # noqa: PLC0415 - scipy, the chart library

    return judge_run(task, options.folder)


def _end_process(_signal_number: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    log_event("told to stop (SIGTERM): what is not stored is lost", level="warning")
    sys.exit(ExitCode.EXTERNAL_FAILURE)


if __name__ == "__main__":
    # a container's first process ignores a signal that it has no handler for
    signal.signal(signal.SIGTERM, _end_process)
    sys.exit(main())
