"""`python -m tandem.run serve | measure | judge`: the commands of a run's pods.

Invariant: no traceback for a foreseeable fault; the last line of a failed process says what to do.
A Job reads its task from its variable TANDEM_TASK and refuses a bad one at the border. A Job that
gets SIGTERM ends with 3.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tandem.artifacts.driver.log import log_event
from tandem.artifacts.job_env import adopt_region, log_fault
from tandem.errors import ExitCode, SilentServerError, TandemError
from tandem.run.run_values import SILENT_EXIT_CODE
from tandem.run.task_settings import read_task

ABOUT = "the runner of an environment, and the Jobs that it makes: measure one round, judge a run"
EPILOG = (
    "exit codes: 0 done; 2 bad input; 3 an external service failed, or told to stop; 5 a server"
    " does not answer"
)
WORK_FOLDER = Path("/work/run")  # on the pod's own disk (charts/runner.py)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tandem.run", description=ABOUT, epilog=EPILOG)
    parser.add_argument("command", choices=("serve", "measure", "judge"))
    parser.add_argument("--environment", help="of `serve`: its name")
    parser.add_argument(
        "--specs", type=Path, help="of `serve`: folder of environments/ and experiments/"
    )
    folder_help = "of a Job: its own, what it holds is thrown away"
    parser.add_argument("--folder", type=Path, default=WORK_FOLDER, help=folder_help)
    options = parser.parse_args(argv)
    if options.command == "serve" and not (options.environment and options.specs):
        parser.error("serve takes --environment and --specs")
    adopt_region()
    try:
        return _run_command(options)
    except TandemError as error:
        exit_code = (
            SILENT_EXIT_CODE if isinstance(error, SilentServerError) else int(error.exit_code)
        )
        log_fault(error, exit_code)
        return exit_code


def _run_command(options: argparse.Namespace) -> int:
    """Import the modules of a command, and run it."""
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
    # a container's first process ignores a signal for which it has no handler
    signal.signal(signal.SIGTERM, _end_process)
    sys.exit(main())
