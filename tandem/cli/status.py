"""`tandem status`: what a fleet is, what it has cost since its launch, and what will end it.

Exit codes: 0 nothing needs attention; 1 something does; 2 bad input; 3 something could not be read.
"""

from __future__ import annotations

from tandem.cli import fleet
from tandem.cli.console import print_json
from tandem.cli.flags import EnvironmentName
from tandem.cli.selection import DEFAULTS, Selection
from tandem.errors import ExitCode


def status(*, env: EnvironmentName, selection: Selection = DEFAULTS) -> ExitCode:
    """Show the fleet, what it has cost since its launch, and what will end it.

    Args:
        env: the environment

    Raises:
        TandemError: the environment's file has not the form of one, or the account is another.
    """
    environment = fleet.read_environment(selection, env)
    from tandem.cli import status_report as report  # noqa: PLC0415 - boto3
    from tandem.ops import status as status_reader  # noqa: PLC0415
    from tandem.ops.account import create_session, require_account  # noqa: PLC0415
    from tandem.ops.guard_config import build_guard_config  # noqa: PLC0415
    from tandem.ops.status_warnings import list_warnings  # noqa: PLC0415

    aws_session = create_session()
    require_account(environment, aws_session)
    other_names = sorted(path.stem for path in selection.environments.glob("*.yaml") if path.stem != environment.name)
    fleet_status = status_reader.read_status(
        environment, build_guard_config(environment), status_reader.current_time(), other_names, aws_session
    )
    warnings = list_warnings(fleet_status)
    code = ExitCode.EXTERNAL_FAILURE if fleet_status.unknown else ExitCode.STALE if warnings else ExitCode.DONE
    if selection.as_json:
        print_json(report.status_as_dict(fleet_status, warnings) | {"exit_code": int(code)})
    else:
        report.print_status(fleet_status, warnings)
    return code
