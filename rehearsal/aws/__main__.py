"""`python -m rehearsal.aws`: rehearse an environment, or run the endpoint alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rehearsal.aws.deploy_cycle import RehearsalRequest, run_rehearsal
from rehearsal.aws.endpoint import run_endpoint
from rehearsal.aws.installation import REPOSITORY, EndpointError
from rehearsal.aws.report import format_summary
from tandem.declarations.faults import SpecError
from tandem.declarations.workspace import load_workspace
from tandem.shell_command import quote_command

BAD_INPUT = 2
EXTERNAL_ERROR = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 done, 2 bad input, 3 the rehearsal or the endpoint failed."""
    options = _build_parser().parse_args(arguments)
    try:
        if options.command == "start":
            state_dir = Path(options.state_dir) if options.state_dir else None
            account, region = _select_location(options)
            return run_endpoint(options.port, account, region, state_dir)
        return _run_rehearsal(options)
    except SpecError as spec_error:
        print(spec_error, file=sys.stderr)
        return BAD_INPUT
    except EndpointError as endpoint_error:
        print(endpoint_error, file=sys.stderr)
        return EXTERNAL_ERROR
    except KeyboardInterrupt:
        print("interrupted; the endpoint is stopped", file=sys.stderr)
        return EXTERNAL_ERROR


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rehearsal.aws", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    rehearse_parser = commands.add_parser(
        "rehearse", help="deploy, renew, destroy and adopt an environment locally"
    )
    rehearse_parser.add_argument("--env", required=True, metavar="NAME", help="the environment")
    rehearse_parser.add_argument(
        "--environments", type=Path, default=REPOSITORY / "environments", metavar="DIR"
    )
    rehearse_parser.add_argument(
        "--experiments", type=Path, default=REPOSITORY / "experiments", metavar="DIR"
    )
    rehearse_parser.add_argument(
        "--quick", action="store_true", help="bootstrap, deploy and hold only"
    )
    start_parser = commands.add_parser("start", help="run the endpoint until interrupted")
    start_parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    start_parser.add_argument(
        "--env", metavar="NAME", help="take account and region of this environment"
    )
    start_parser.add_argument(
        "--environments", type=Path, default=REPOSITORY / "environments", metavar="DIR"
    )
    start_parser.add_argument(
        "--experiments", type=Path, default=REPOSITORY / "experiments", metavar="DIR"
    )
    start_parser.add_argument(
        "--account", help="the account of every key that is none itself (default 000000000000)"
    )
    start_parser.add_argument("--region", help="(default us-east-2)")
    start_parser.add_argument("--state-dir", metavar="DIR", help="keep state across restarts")
    return parser


def _select_location(options: argparse.Namespace) -> tuple[str, str]:
    """Return account and region of the endpoint: the given ones, else those of the environment.

    Raises:
        SpecError: the environment is not there or refused.
    """
    account = "000000000000"
    region = "us-east-2"
    if options.env:
        workspace = load_workspace(options.environments, options.experiments, (options.env,))
        if workspace.faults:
            raise SpecError(workspace.faults)
        environment = workspace.environments[options.env].record
        account = environment.account
        region = environment.region
    return options.account or account, options.region or region


def _run_rehearsal(options: argparse.Namespace) -> int:
    request = RehearsalRequest(
        name=options.env,
        environments=options.environments,
        experiments=options.experiments,
        is_quick=options.quick,
    )
    result = run_rehearsal(request, lambda line: print(line, flush=True))
    start_command = quote_command(
        sys.executable, "-m", "rehearsal.aws", "start", "--env", options.env
    )
    print(f"by hand: {start_command} starts such an endpoint, and prints what to export")
    print(*format_summary(result), sep="\n", flush=True)
    return 0 if result.is_success else EXTERNAL_ERROR


if __name__ == "__main__":
    sys.exit(main())
