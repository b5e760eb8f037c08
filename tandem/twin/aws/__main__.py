"""`python -m tandem.twin.aws`: rehearse an environment, or run the endpoint by itself."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tandem.shell_command import quote_command
from tandem.spec.faults import SpecError
from tandem.spec.load import load
from tandem.twin.aws.endpoint import serve
from tandem.twin.aws.installation import REPOSITORY, EndpointError
from tandem.twin.aws.rehearse import Request, rehearse
from tandem.twin.aws.report import document, lines

BAD_INPUT = 2
FAILED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 done, 2 bad input, 3 the rehearsal or the endpoint failed."""
    chosen = _parser().parse_args(arguments)
    try:
        if chosen.command == "start":
            state = Path(chosen.state_dir) if chosen.state_dir else None
            account, region = _place(chosen)
            return serve(chosen.port, account, region, state)
        return _rehearse(chosen)
    except SpecError as refusal:
        print(refusal, file=sys.stderr)
        return BAD_INPUT
    except EndpointError as failure:
        print(failure, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted; the endpoint is stopped", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tandem.twin.aws", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    play = commands.add_parser("rehearse", help="deploy, renew, destroy and adopt an environment locally")
    play.add_argument("--env", required=True, metavar="NAME", help="the environment")
    play.add_argument("--environments", type=Path, default=REPOSITORY / "environments", metavar="DIR")
    play.add_argument("--experiments", type=Path, default=REPOSITORY / "experiments", metavar="DIR")
    play.add_argument("--quick", action="store_true", help="bootstrap, deploy and hold only")
    play.add_argument("--json", action="store_true", help="print one JSON document, progress on stderr")
    start = commands.add_parser("start", help="run the endpoint until interrupted")
    start.add_argument("--port", type=int, default=0, help="0 takes a free one")
    start.add_argument("--env", metavar="NAME", help="take account and region of this environment")
    start.add_argument("--environments", type=Path, default=REPOSITORY / "environments", metavar="DIR")
    start.add_argument("--experiments", type=Path, default=REPOSITORY / "experiments", metavar="DIR")
    start.add_argument("--account", help="the account of every key that is none itself (default 000000000000)")
    start.add_argument("--region", help="(default us-east-2)")
    start.add_argument("--state-dir", metavar="DIR", help="keep state across restarts")
    return parser


def _place(chosen: argparse.Namespace) -> tuple[str, str]:
    """Return account and region of the endpoint: as given, else those of the environment.

    Raises:
        SpecError: the environment is not there or refused.
    """
    account, region = "000000000000", "us-east-2"
    if chosen.env:
        workspace = load(chosen.environments, chosen.experiments, (chosen.env,))
        if workspace.faults:
            raise SpecError(workspace.faults)
        environment = workspace.environments[chosen.env].environment
        assert environment is not None, "a file of good form"
        account, region = environment.account, environment.region
    return chosen.account or account, chosen.region or region


def _rehearse(chosen: argparse.Namespace) -> int:
    progress = sys.stderr if chosen.json else sys.stdout
    request = Request(
        name=chosen.env, environments=chosen.environments, experiments=chosen.experiments, quick=chosen.quick
    )
    found = rehearse(request, lambda line: print(line, file=progress, flush=True))
    if not chosen.json:
        by_hand = quote_command(sys.executable, "-m", "tandem.twin.aws", "start", "--env", chosen.env)
        print(f"by hand: {by_hand} starts such an endpoint, and prints what to export", flush=True)
    print(json.dumps(document(found), indent=2, default=str) if chosen.json else "\n".join(lines(found)))
    return 0 if found.passed else FAILED


if __name__ == "__main__":
    sys.exit(main())
