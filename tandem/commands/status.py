"""`tandem status`: what a fleet is, what it has cost since its launch, and what will end it.

Exit codes: 0 nothing needs attention; 1 something does; 2 bad input; 3 something could not be read.
"""

from __future__ import annotations

import argparse

from tandem.commands import fleet
from tandem.commands.outcome import Exit, print_json
from tandem.commands.selection import Selection


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what `tandem status` takes."""
    parser.add_argument("--env", required=True, metavar="NAME", help="the environment")


def status(chosen: Selection, options: argparse.Namespace) -> Exit:
    """Look at an environment's fleet through the AWS API.

    Args:
        chosen: the folders of declared files.
        options: `env`.

    Raises:
        SpecError: the environment's file has not the form of one.
    """
    environment = fleet.environment_of(chosen, options.env)
    from tandem.commands import status_report as report  # noqa: PLC0415 - boto3
    from tandem.ops import status as looked  # noqa: PLC0415
    from tandem.ops.account import require_account, session  # noqa: PLC0415
    from tandem.ops.concerns import concerns  # noqa: PLC0415
    from tandem.ops.fault import OpsError  # noqa: PLC0415
    from tandem.ops.guarded import guarded  # noqa: PLC0415

    try:
        shared = session()
        require_account(environment, shared)
        others = fleet.siblings(chosen, environment.name)
        found = looked.status(environment, guarded(environment), looked.moment(), others, shared)
    except OpsError as fault:
        return fleet.failed(fault, chosen)
    wanting = concerns(found)
    code = Exit.WORLD_FAILED if found.unknown else Exit.STALE if wanting else Exit.DONE
    if chosen.as_json:
        print_json(report.plain(found, wanting) | {"exit_code": int(code)})
    else:
        for line in report.lines(found, wanting):
            print(line)
    return code
