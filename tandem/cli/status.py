"""`tandem status`: what a fleet is, what it has cost since its launch, and what will end it.

Exit codes: 0 nothing needs attention; 1 something does; 2 bad input; 3 something could not be read.
"""

from __future__ import annotations

import argparse

from tandem.cli import fleet
from tandem.cli.outcome import print_json
from tandem.cli.selection import Selection
from tandem.errors import ExitCode, TandemError


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what `tandem status` takes."""
    parser.add_argument("--env", required=True, metavar="NAME", help="the environment")


def status(selection: Selection, options: argparse.Namespace) -> ExitCode:
    """Look at an environment's fleet through the AWS API.

    Args:
        selection: the folders of declared files.
        options: `env`.

    Raises:
        SpecError: the environment's file has not the form of one.
    """
    environment = fleet.read_environment(selection, options.env)
    from tandem.cli import status_report as report  # noqa: PLC0415 - boto3
    from tandem.ops import status as status_reader  # noqa: PLC0415
    from tandem.ops.account import create_session, require_account  # noqa: PLC0415
    from tandem.ops.guard_config import build_guard_config  # noqa: PLC0415
    from tandem.ops.status_warnings import list_warnings  # noqa: PLC0415

    try:
        aws_session = create_session()
        require_account(environment, aws_session)
        other_names = fleet.list_other_environments(selection, environment.name)
        fleet_status = status_reader.read_status(
            environment, build_guard_config(environment), status_reader.current_time(), other_names, aws_session
        )
    except TandemError as fault:
        return fleet.report_failure(fault, selection)
    open_concerns = list_warnings(fleet_status)
    code = ExitCode.EXTERNAL_FAILURE if fleet_status.unknown else ExitCode.STALE if open_concerns else ExitCode.DONE
    if selection.as_json:
        print_json(report.status_as_dict(fleet_status, open_concerns) | {"exit_code": int(code)})
    else:
        for line in report.format_status(fleet_status, open_concerns):
            print(line)
    return code
